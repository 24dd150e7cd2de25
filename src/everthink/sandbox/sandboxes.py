"""The sandboxes of one process, made when the first script comes and ended with the app.

Directory --> Sandboxes --bash()--> the `bash` tool of every agent
                        --javascript()--> whatever runs code of models
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bash import BashSandbox
    from .javascript import JavaScriptSandbox

__all__ = ["Sandboxes"]


class Sandboxes:
    """What runs code of models, for all agents of a process."""

    def __init__(self) -> None:
        self._bash: BashSandbox | None = None
        self._javascript: JavaScriptSandbox | None = None

    def bash(self) -> BashSandbox:
        """Where bash scripts run."""
        if self._bash is None:
            from .bash import BashSandbox

            self._bash = BashSandbox()
        return self._bash

    def javascript(self) -> JavaScriptSandbox:
        """Where JavaScript and TypeScript run."""
        if self._javascript is None:
            from .javascript import JavaScriptSandbox

            self._javascript = JavaScriptSandbox()
        return self._javascript

    async def close(self) -> None:
        """End every process that was started."""
        opened = (self._bash, self._javascript)
        self._bash = self._javascript = None
        for sandbox in opened:
            if sandbox is not None:
                await sandbox.aclose()
