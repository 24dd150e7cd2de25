"""A script on its way: looked at, given a bridge, run in the sandbox of its language.

    Runner --ScriptRequest, Rights--> check --> Bridge --> JavaScript | bash | Python: a machine, or Monty

Nothing runs before every path of the request is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ..calling import awaited
from ..engines.sandboxes import Sandboxes
from ..errors import ToolError
from ..machines.port import CannotSpawn
from ..machines.sandbox import MachineSandbox
from ..sandbox.port import Limits
from ..skill_values import ScriptRequest
from ..tools.collect import as_tools
from ..tools.tool import Tool
from ..words import said
from .bash import run_bash_script
from .bridge import Bridge
from .javascript import run_javascript
from .python import MEMORY, needs_machine, run_in_machine, run_in_monty
from .reading import read
from .rights import Rights, check_tools, is_factory
from .tree import check, mounted, with_room

__all__ = ["Engines", "languages", "run_script"]

_LANGUAGES: dict[str, Literal["javascript", "python", "bash"]] = {
    "js": "javascript",
    "mjs": "javascript",
    "ts": "javascript",
    "tsx": "javascript",
    "py": "python",
    "sh": "bash",
    "bash": "bash",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """Where scripts run, and within which bounds."""

    sandboxes: Sandboxes
    machine: MachineSandbox | None
    """One that was named; `None`: the strongest here."""
    has_root: bool
    """True when that machine shows files at the root: real bash finds them there."""
    python: str | None
    timeout: float
    limits: Limits | None

    def bounds(self, files: Mapping[str, bytes], **others: int) -> Limits:
        """The limits of a run: those that were set, or defaults with room for its files."""
        limits = self.limits or with_room(Limits(**others), files)
        return replace(limits, wall=self.timeout, cpu=self.timeout)


async def run_script(request: ScriptRequest, rights: Rights, engines: Engines) -> Any:
    """Run a script and return its result. Raises `ToolError` with words for the model."""
    check(request)
    language = _LANGUAGES.get(request.path.rpartition(".")[2].lower())
    if language is None:
        raise ToolError(
            f"{request.path} is in no language that is run here.",
            kept="Nothing was run.",
            next_step=f"Its name has to end in one of: {', '.join(_LANGUAGES)}.",
        )
    files, bridge = mounted(request), Bridge(rights, await _tools(request, rights), request.context)
    bounds, has_network = engines.bounds(files), rights.network is not None
    match language:
        case "javascript":
            engine = engines.sandboxes.of("javascript")
            return await run_javascript(request, files, bridge, engine, bounds, has_network=has_network)
        case "bash":
            engine, machine = engines.sandboxes.bash(), engines.machine
            if machine is not None and engines.has_root:
                engine, bounds = machine, engines.bounds(files, memory=MEMORY)
            return await run_bash_script(request, files, bridge, engine, bounds, rights)
        case "python":
            found = read(request.path, request.source)
            try:
                machine = engines.machine or await engines.sandboxes.machine(engines.python)
            except CannotSpawn as problem:
                if not found.has_run:
                    why = "it is a program, and real processes cannot be run here"
                    raise needs_machine(request.path, why, problem) from None
                monty = engines.sandboxes.of("python")
                return await run_in_monty(
                    request, files, found, bridge, monty, bounds, has_network=has_network
                )
            bounds = engines.bounds(files, memory=MEMORY)
            return await run_in_machine(
                request, files, found, bridge, machine, bounds, has_network=has_network
            )


async def languages(
    sandboxes: Sandboxes, machine: MachineSandbox | None, python: str | None
) -> dict[str, str | None]:
    """Which languages run here: `None` for those of which a line just ran, words for others."""
    found: dict[str, str | None] = {
        "JavaScript and TypeScript": await sandboxes.of("javascript").check(),
        "bash": await sandboxes.bash().check(),
    }
    try:
        found["Python"] = await (machine or await sandboxes.machine(python)).check()
    except CannotSpawn as problem:
        if (why := await sandboxes.of("python").check()) is not None:
            found["Python"] = why
        else:
            found["Python functions"] = None
            found["Python programs"] = said(f"They need a machine. {problem}")
    return found


async def _tools(request: ScriptRequest, rights: Rights) -> dict[str, Tool]:
    """The tools of a run: those of the runner, and no other."""
    tools = await awaited(rights.tools()) if is_factory(rights.tools) else rights.tools
    agent = None if request.context is None else request.context.agent
    found = check_tools(as_tools(tools, "runner(tools=…)"))
    return {name: tool if agent is None else tool.bind(agent) for name, tool in found.items()}
