"""The sandboxes of one process, made when the first script comes and ended with the app.

Directory --> Sandboxes --bash()--> the `bash` tool of every agent
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bash import BashSandbox

__all__ = ["Sandboxes"]


class Sandboxes:
    """What runs code of models, for all agents of a process."""

    def __init__(self) -> None:
        self._bash: BashSandbox | None = None

    def bash(self) -> BashSandbox:
        """Where bash scripts run."""
        if self._bash is None:
            from .bash import BashSandbox

            self._bash = BashSandbox()
        return self._bash

    async def close(self) -> None:
        """End every process that was started."""
        bash, self._bash = self._bash, None
        if bash is not None:
            await bash.aclose()
