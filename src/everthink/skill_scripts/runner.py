"""`skills.runner(...)`: runs the scripts of skills, each in the sandbox of its language.

    the tool run_skill_script --ScriptRequest--> Runner --running.py--> the result

A script has what the runner was given, and nothing of the turn that it serves; cancelled with it, it is
killed. What runs scripts is loaded with the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InvalidSettings
from ..guard.rules import Rules
from ..settings import check_call
from ..tools.collect import as_tools
from .rights import Permission, Rights, check_tools, is_factory

if TYPE_CHECKING:
    from ..engines.sandboxes import Sandboxes
    from ..machines.port import Machine
    from ..machines.sandbox import MachineSandbox
    from ..sandbox.port import Limits
    from ..skill_values import ScriptRequest

__all__ = ["Runner", "runner"]


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
    `network`: hosts that may be fetched, or True for the public web. `machine`: where real processes run,
    of Python, and of bash when it has a root of its own; without one the strongest here runs Python, with
    its own or `python`. `limits`: what else a script may use.
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
    if workspace in ("read", "read-write") and workspace_instance is None:
        raise InvalidSettings(
            f"runner(workspace={workspace!r}) does not say which workspace.",
            next_step="Write runner(workspace_instance=self.workspace, …) in get_skill_script_runner().",
        )
    if machine is not None and python is not None:
        raise InvalidSettings(
            "runner(machine=…, python=…): a machine has its own Python.",
            next_step="Name it there: machine=Bubblewrap(python=…).",
        )
    rights = Rights.of(workspace=workspace, files=workspace_instance, network=network, tools=tools)
    if not is_factory(tools):
        check_tools(as_tools(tools, "runner(tools=…)"))
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
        self.timeout = timeout
        """Seconds that one may take."""
        self._python, self._limits = python, limits
        self._named = machine
        self._machine: MachineSandbox | None = None
        self._own: Sandboxes | None = None

    @property
    def on_interrupt(self) -> Literal["report", "rerun"]:
        """What becomes of a run that a crash cut off. `rerun` when its scripts could not change anything."""
        return self.rights.on_interrupt

    async def run(self, request: ScriptRequest) -> Any:
        """Run a script and return its result. Raises `ToolError` with words for the model."""
        from .running import Engines, run_script

        engines = Engines(
            sandboxes=self._sandboxes(None if request.context is None else request.context.agent),
            machine=self._own_machine(),
            has_root=hasattr(self._named, "with_root"),
            python=self._python,
            timeout=self.timeout,
            limits=self._limits,
        )
        return await run_script(request, self.rights, engines)

    def told(self) -> dict[str, Any]:
        """What its scripts may do, as JSON, for people."""
        return {"rights": {**self.rights.told(), "timeout": self.timeout}}

    async def check(self, agent: Any = None) -> dict[str, str | None]:
        """Which languages run on this machine: `None` for those of which a line just ran, words for others.

        `agent`: one of the app whose sandboxes are asked.
        """
        from .running import languages

        return await languages(self._sandboxes(agent), self._own_machine(), self._python)

    async def aclose(self) -> None:
        """End what it has started outside of an app. Within one, the app does."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()
        machine, self._machine = self._machine, None
        if machine is not None:
            await machine.aclose()

    def _sandboxes(self, agent: Any) -> Sandboxes:
        """Those of the app whose agent asks; outside of one, its own."""
        from ..engines.sandboxes import Sandboxes

        shared = getattr(agent, "_sandboxes", None)
        if shared is not None:
            return shared()
        if self._own is None:
            self._own = Sandboxes()
        return self._own

    def _own_machine(self) -> MachineSandbox | None:
        from ..engines.sandboxes import rooted
        from ..machines.sandbox import MachineSandbox

        if self._machine is None and self._named is not None:
            self._machine = MachineSandbox(rooted(self._named))
        return self._machine
