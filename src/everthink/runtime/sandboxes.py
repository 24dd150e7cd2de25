"""The sandboxes of one process, made when the first script comes and ended with the app.

Directory --> Sandboxes --bash()--> the `bash` tool of every agent
                        --of(language)--> code that calls tools
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..sandbox.port import Sandbox

if TYPE_CHECKING:
    from ..sandbox.bash import BashSandbox

__all__ = ["Sandboxes"]


_ENGINES = {
    "python": ("..monty.sandbox", "MontySandbox"),
    "javascript": ("..sandbox.javascript", "JavaScriptSandbox"),
}


class Sandboxes:
    """What runs code of models, for all agents of a process."""

    def __init__(self) -> None:
        self._bash: BashSandbox | None = None
        self._others: dict[str, Sandbox] = {}

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

    async def close(self) -> None:
        """End every process that was started."""
        bash, self._bash = self._bash, None
        if bash is not None:
            await bash.aclose()
        others, self._others = self._others, {}
        for sandbox in others.values():
            await sandbox.aclose()
