"""Parts of an agent that are its own and are made when they are first asked for.

class Think: workspace: Workspace = OWN_WORKSPACE  -->  agent.workspace is made by its home
"""

from __future__ import annotations

from typing import Any

__all__ = ["OWN_WORKSPACE"]


class _OwnWorkspace:
    """Stands for the workspace that every agent has, until an agent asks for its own."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else instance._home.workspace

    def __repr__(self) -> str:
        return "Workspace()"


OWN_WORKSPACE: Any = _OwnWorkspace()
