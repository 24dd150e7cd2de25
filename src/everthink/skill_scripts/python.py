"""A script in Python: a function `run` or a program, in a machine, or in Monty when it is a function.

    ScriptRequest --read--> a machine: guest.py calls the function, or runs the program with its arguments
                      |---> Monty: the function alone, in the part of Python that is there
                      '---> words: it needs a machine, and how one is had

A program needs files, a command line and packages, which only a real process has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import ToolError
from ..machines.port import CannotSpawn
from ..messages import encode_json
from ..sandbox.port import Job, Limits, Outcome, Sandbox, Stream
from ..skill_values import ScriptRequest
from .bridge import Bridge
from .endings import failure, plainly, program, returned, without_place
from .reading import Program
from .tree import OUTPUT, SKILL, artifacts, described, place_of

__all__ = ["needs_machine", "run_in_machine", "run_in_monty"]

MEMORY = 256 * 1024 * 1024
"""Bytes of a process in a machine, when nobody has set limits."""
_WORKSPACE = {
    "read_file": "path: str",
    "list_files": "path: str = '.'",
    "glob": "pattern: str",
    "stat": "path: str",
    "write_file": "path: str, content: str",
}


def needs_machine(path: str, why: str, problem: CannotSpawn) -> ToolError:
    """Nothing here can run it."""
    return ToolError(
        f"{path} needs a machine: {why}.",
        kept="Nothing was run.",
        next_step="Install one (apt install bubblewrap), or name one: skills.runner(machine=…)."
        + (f" {problem.next_step}" if problem.next_step else ""),
    )


async def run_in_machine(
    request: ScriptRequest,
    files: Mapping[str, bytes],
    found: Program,
    bridge: Bridge,
    sandbox: Sandbox,
    limits: Limits,
    *,
    has_network: bool,
) -> Any:
    """Run it as a real process."""
    job = Job(
        language="python",
        style="function",
        path="skill-script",
        source=_guest(),
        input={
            "path": request.path,
            "args": list(request.args),
            "has_run": found.has_run,
            "takes": found.takes,
            "input": request.input,
            "context": {"skill": described(request.skill), "args": list(request.args)},
            "network": has_network,
        },
        stdin=encode_json(request.input),
        cwd=SKILL,
        files=files,
        folders=frozenset({OUTPUT}),
        collect=(OUTPUT,),
        names={"bridge.call": "async def call(what, *given): ..."},
        limits=limits,
    )
    outcome = without_place(await sandbox.run(job, bridge))
    said: dict[str, Any] = outcome.value if _is_told(outcome.value) else {}
    if outcome.status != "done" or "failed" in said:
        error, written = said.get("failed", outcome.error), "".join(text for _, text in bridge.written)
        printed: list[tuple[Stream, str]] = [("stderr", plainly(outcome.place, written))]
        raise failure("Python", replace(outcome, error=error), printed, timeout=limits.wall)
    if found.has_run and "value" in said:
        return _wrapped(returned(said["value"]), artifacts(outcome.changed))
    return program(outcome, artifacts(outcome.changed))


async def run_in_monty(
    request: ScriptRequest,
    files: Mapping[str, bytes],
    found: Program,
    bridge: Bridge,
    sandbox: Sandbox,
    limits: Limits,
    *,
    has_network: bool,
) -> Any:
    """Run its function in an interpreter without a machine."""
    job = Job(
        language="python",
        path=request.path,
        source=f"{request.source}\n\n{_driver(found)}",
        cwd=SKILL,
        files=files,
        folders=frozenset({OUTPUT}),
        collect=(OUTPUT,),
        names=_functions(sorted(bridge.tools), has_network=has_network),
        limits=limits,
    )
    outcome = await sandbox.run(job, bridge)
    if outcome.status != "done":
        outcome = replace(outcome, error=_in_script(request, outcome.error or outcome.status))
        raise failure("Python", _with_way_out(outcome), bridge.written, timeout=limits.wall)
    return _wrapped(returned(outcome.value), artifacts(outcome.changed))


def _is_told(value: Any) -> bool:
    return isinstance(value, dict)


def _wrapped(value: Any, files: list[dict[str, str]]) -> Any:
    return {"result": value, "outputFiles": files} if files else value


def _driver(found: Program) -> str:
    """What calls `run`, as the last lines of the script."""
    given = ", ".join(
        f"json_of_run.loads(open({path!r}).read())"
        for path in ("/input.json", "/context.json")[: found.takes]
    )
    return f"import json as json_of_run\n{'await ' if found.is_async else ''}run({given})\n"


_FRAME = re.compile(r'  File "<python-input-\d+>", line (\d+), in .*\n(?:    .*\n)*')


def _in_script(request: ScriptRequest, words: str) -> str:
    """A trace with the path of the script, and without the line that calls it."""
    last = request.source.count("\n") + 1

    def shown(found: re.Match[str]) -> str:
        return "" if int(found[1]) > last else _INPUT.sub(f'"{place_of(request.path)}"', found[0], count=1)

    return _FRAME.sub(shown, words)


_INPUT = re.compile(r'"<python-input-\d+>"')


def _functions(tools: Sequence[str], *, has_network: bool) -> dict[str, str]:
    """What a script can ask for, as modules and functions of Monty."""
    named = "async def {}(input: Any = None, **named: Any) -> Any: ..."
    names = {"tools.call": "async def call(name: str, input: Any = None) -> Any: ..."}
    for tool in tools:
        function = tool.replace("-", "_")
        if function.isidentifier() and not function.startswith("__"):
            names.setdefault(f"tools.{function}", named.format(function))
    for verb, given in _WORKSPACE.items():
        names[f"workspace.{verb}"] = f"async def {verb}({given}) -> Any: ..."
    if has_network:
        names["fetch"] = "async def fetch(url: str, options: Any = None) -> Any: ..."
    return names


def _with_way_out(outcome: Outcome) -> Outcome:
    """Say how to get more of Python, when that is what is missing."""
    words = outcome.error or ""
    if "subset of Python" not in words and not words.startswith("Nothing was run."):
        return outcome
    more = "All of Python runs in a machine: apt install bubblewrap, or skills.runner(machine=…)."
    return replace(outcome, error=f"{words}\n{more}")


@cache
def _guest() -> str:
    return Path(__file__).with_name("guest.py").read_text("utf-8")
