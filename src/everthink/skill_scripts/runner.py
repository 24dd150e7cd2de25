"""`skills.runner(...)`: runs the scripts of skills, each in the sandbox of its language.

    the tool run_skill_script --ScriptRequest--> Runner --check--> a Bridge, a sandbox --> the result

Nothing runs before all paths of the request are checked. A script has what the runner was given, and nothing
of the turn that it serves; cancelled with it, it is killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from ..calling import awaited
from ..engines.sandboxes import Sandboxes
from ..errors import InvalidSettings, ToolError
from ..guard.rules import Rules
from ..machines.port import CannotSpawn, Machine
from ..machines.sandbox import MachineSandbox
from ..sandbox.port import Limits
from ..settings import check_call
from ..skills.values import ScriptRequest
from ..tools.collect import as_tools
from ..tools.tool import Tool
from .bash import run_bash_script
from .bridge import Bridge
from .javascript import run_javascript
from .python import MEMORY, needs_machine, run_in_machine, run_in_monty
from .reading import read
from .rights import Permission, Rights
from .tree import check

__all__ = ["Runner", "runner"]

_LANGUAGES: dict[str, Literal["javascript", "python", "bash"]] = {
    "js": "javascript",
    "mjs": "javascript",
    "ts": "javascript",
    "tsx": "javascript",
    "py": "python",
    "sh": "bash",
    "bash": "bash",
}


def runner(
    *,
    timeout: float = 30.0,
    network: bool | Iterable[str] | Rules = False,
    workspace: Permission | None = None,
    workspace_instance: Any = None,
    tools: Any = None,
    machine: Machine | None = None,
    python: str | None = None,
    limits: Limits | None = None,
) -> Runner:
    """Run the scripts of skills: JavaScript, TypeScript, Python and bash, in sandboxes.

        def get_skill_script_runner(self):
            return skills.runner(workspace_instance=self.workspace, tools=[self.weather])

    `timeout`: seconds that a script may take. `workspace_instance`: a workspace that scripts may read, and
    with `workspace="read-write"` write. `tools`: those that scripts may call, or a function that gives them.
    `network`: hosts that may be fetched, or True for the public web. `machine`: where real processes run;
    without one the strongest here, with its Python or `python`. `limits`: what else a script may use.
    """
    check_call(
        "runner",
        timeout=timeout,
        network=network,
        workspace=workspace,
        workspace_instance=workspace_instance,
        machine=machine,
        python=python,
        limits=limits,
    )
    if machine is not None and python is not None:
        raise InvalidSettings(
            "runner(machine=…, python=…): a machine has its own Python.",
            next_step="Name it there: machine=Bubblewrap(python=…).",
        )
    rights = Rights.of(workspace=workspace, files=workspace_instance, network=network, tools=tools)
    if not _is_factory(tools):
        _checked(as_tools(tools, "runner(tools=…)"))
    return Runner(rights, timeout=timeout, machine=machine, python=python, limits=limits)


class Runner:
    """Runs scripts of skills. Made by `skills.runner()`."""

    def __init__(
        self,
        rights: Rights,
        *,
        timeout: float,
        machine: Machine | None,
        python: str | None,
        limits: Limits | None,
    ) -> None:
        self.rights = rights
        """What its scripts may do."""
        self._timeout, self._python, self._limits = timeout, python, limits
        self._machine = None if machine is None else MachineSandbox(machine)
        self._own: Sandboxes | None = None

    @property
    def on_interrupt(self) -> Literal["report", "rerun"]:
        """What becomes of a run that a crash cut off. `rerun` when its scripts could not change anything."""
        return self.rights.on_interrupt

    async def run(self, request: ScriptRequest) -> Any:
        """Run a script and return its result. Raises `ToolError` with words for the model."""
        check(request)
        language = _LANGUAGES.get(request.path.rpartition(".")[2].lower())
        if language is None:
            raise ToolError(
                f"{request.path} is in no language that is run here.",
                kept="Nothing was run.",
                next_step=f"Its name has to end in one of: {', '.join(_LANGUAGES)}.",
            )
        bridge = Bridge(self.rights, await self._tools(request), request.context)
        sandboxes, has_network = self._sandboxes(request), self.rights.network is not None
        match language:
            case "javascript":
                engine = sandboxes.of("javascript")
                return await run_javascript(request, bridge, engine, self._bounds(), has_network=has_network)
            case "bash":
                return await run_bash_script(request, bridge, sandboxes.bash(), self._bounds(), self.rights)
            case "python":
                return await self._run_python(request, bridge, sandboxes, has_network=has_network)

    async def _run_python(
        self, request: ScriptRequest, bridge: Bridge, sandboxes: Sandboxes, *, has_network: bool
    ) -> Any:
        found = read(request.path, request.source)
        try:
            machine = self._machine or await sandboxes.machine(self._python)
        except CannotSpawn as problem:
            if not found.has_run:
                why = "it is a program, and real processes cannot be run here"
                raise needs_machine(request.path, why, problem) from None
            monty, bounds = sandboxes.of("python"), self._bounds()
            return await run_in_monty(request, found, bridge, monty, bounds, has_network=has_network)
        bounds = self._bounds(memory=MEMORY)
        return await run_in_machine(request, found, bridge, machine, bounds, has_network=has_network)

    async def aclose(self) -> None:
        """End what it has started outside of an app. Within one, the app does."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()
        if self._machine is not None:
            await self._machine.aclose()

    def _bounds(self, **others: int) -> Limits:
        limits = self._limits or Limits(**others)
        return replace(limits, wall=self._timeout, cpu=self._timeout)

    def _sandboxes(self, request: ScriptRequest) -> Sandboxes:
        """Those of the app whose agent asks; outside of one, its own."""
        agent = None if request.context is None else request.context.agent
        shared = getattr(agent, "_sandboxes", None)
        if shared is not None:
            return shared()
        if self._own is None:
            self._own = Sandboxes()
        return self._own

    async def _tools(self, request: ScriptRequest) -> dict[str, Tool]:
        tools = self.rights.tools
        if _is_factory(tools):
            tools = await awaited(tools())
        agent = None if request.context is None else request.context.agent
        found = _checked(as_tools(tools, "runner(tools=…)"))
        return {name: tool if agent is None else tool.bind(agent) for name, tool in found.items()}


def _is_factory(tools: Any) -> bool:
    return callable(tools) and not isinstance(tools, Tool | Mapping)


def _checked(tools: dict[str, Tool]) -> dict[str, Tool]:
    for tool in tools.values():
        if not tool.has_body:
            raise InvalidSettings(
                f"runner(tools=…): {tool.name!r} runs in the browser, which a script cannot reach.",
                next_step="Give scripts tools that run on the server.",
            )
    return tools
