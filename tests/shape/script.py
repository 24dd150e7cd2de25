"""Run a command of scripts/ as its own process would, without the process.

run("cases", "--check") --> Ran: its exit code and what it said
"""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from dataclasses import dataclass

from .source import ROOT

__all__ = ["Ran", "run"]

SCRIPTS = ROOT / "scripts"


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(script: str, *arguments: str) -> Ran:
    """Run a script from its first line. Modules beside it are read anew as well, and forgotten."""
    path, argv, known = list(sys.path), sys.argv, set(sys.modules)
    said, complained = io.StringIO(), io.StringIO()
    sys.path.insert(0, str(SCRIPTS))
    sys.argv = [str(SCRIPTS / script), *arguments]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            runpy.run_path(sys.argv[0], run_name="__main__")
        code: object = 0
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.path[:], sys.argv = path, argv
        for beside in SCRIPTS.glob("*.py"):
            if beside.stem not in known:
                sys.modules.pop(beside.stem, None)
    if isinstance(code, str):  # as Python does it with `sys.exit("a sentence")`
        complained.write(f"{code}\n")
    return Ran(
        code if isinstance(code, int) else 0 if code is None else 1, said.getvalue(), complained.getvalue()
    )
