"""Run a program that ends when whoever started it does, however that one ends.

    Node --python -m everthink.testing.child_process everthink.cli serve …--> the program

Standard input is a pipe that only the parent holds: it closes with the parent, even one that was killed.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

__all__ = ["main"]


def main(module: str, *args: str) -> None:
    """Run `module` as `python -m module args` would, on the leash."""
    threading.Thread(target=_hold, name="everthink leash", daemon=True).start()
    sys.argv = [module, *args]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _hold() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
