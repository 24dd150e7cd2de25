"""The sandboxes of one process, made when the first script comes and ended with the app.

Directory --> Sandboxes --bash()--> the `bash` tool of every agent
                        --of(language)--> code that calls tools
                        --extensions(language)--> extensions
                        --machine()-----> scripts of skills
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..sandbox.port import Sandbox

if TYPE_CHECKING:
    from ..machines.port import Machine
    from ..machines.sandbox import MachineSandbox
    from ..sandbox.bash import BashSandbox

__all__ = ["Sandboxes", "rooted"]


_ENGINES = {
    "python": ("..monty.sandbox", "MontySandbox"),
    "javascript": ("..sandbox.javascript", "JavaScriptSandbox"),
}


AT_ROOT = ("input.json", "context.json", "skill", "output")
"""What scripts of skills look for at the root."""


def rooted(machine: Machine) -> Machine:
    """A machine that shows these at its root, if it has one of its own."""
    with_root: Any = getattr(machine, "with_root", None)
    return with_root(AT_ROOT) if with_root is not None else machine


class Sandboxes:
    """What runs code of models, for all agents of a process."""

    def __init__(self) -> None:
        self._bash: BashSandbox | None = None
        self._others: dict[str, Sandbox] = {}
        self._extensions: dict[str, Sandbox] = {}
        self._machines: dict[str | None, MachineSandbox] = {}

    def bash(self) -> BashSandbox:
        """Where bash scripts run."""
        if self._bash is None:
            from ..sandbox.bash import BashSandbox

            self._bash = BashSandbox()
        return self._bash

    def of(self, language: str) -> Sandbox:
        """Where code of a language runs that calls tools."""
        if language not in self._others:
            module, name = _ENGINES[language]
            self._others[language] = getattr(import_module(module, __package__), name)()
        return self._others[language]

    def extensions(self, language: str) -> Sandbox:
        """Where extensions run that are in a language: children of their own, which keep what was loaded."""
        if language == "python":
            return self.of("python")
        if "javascript" not in self._extensions:
            from ..sandbox.javascript import JavaScriptSandbox

            self._extensions["javascript"] = JavaScriptSandbox(most=6, jobs_each=20_000, idle_after=300.0)
        return self._extensions["javascript"]

    async def machine(self, python: str | None = None) -> MachineSandbox:
        """Where real processes run, with a Python: the strongest machine that this computer has. Raises
        `CannotSpawn` where there is none, which is looked at again the next time."""
        if python not in self._machines:
            from ..machines.sandbox import MachineSandbox
            from ..machines.strongest import strongest

            found = await strongest(python=python)
            self._machines.setdefault(python, MachineSandbox(rooted(found)))
        return self._machines[python]

    async def close(self) -> None:
        """End every process that was started."""
        bash, self._bash = self._bash, None
        if bash is not None:
            await bash.aclose()
        others: list[Sandbox] = [
            *self._others.values(),
            *self._extensions.values(),
            *self._machines.values(),
        ]
        self._others, self._extensions, self._machines = {}, {}, {}
        for sandbox in others:
            await sandbox.aclose()
