"""How an app is offered to MCP clients, as a value: what `App(mcp=…)` takes.

App(mcp=True), App(mcp={"exposed": True}), App(mcp=McpEndpoint(…)) --> app/, mcp_server/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .kinds import FUNCTION, YES_NO, Kind, check, optional
from .surface import check_function

__all__ = ["McpEndpoint"]

_KINDS = {
    "path": Kind(
        'text, a path without its host, such as "mcp" or "api/mcp"',
        lambda value: isinstance(value, str) and re.fullmatch(r"/?[\w.~-]+(/[\w.~-]+)*/?", value) is not None,
    ),
    "agents": optional(
        Kind(
            "a list of agent classes, or of their names",
            lambda value: isinstance(value, list | tuple) and bool(cast("Sequence[Any]", value)),
        )
    ),
    "exposed": YES_NO,
    "new_name": optional(FUNCTION),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class McpEndpoint:
    """How an app is offered to MCP clients: each agent that chats is a tool `ask_…`."""

    path: str = "mcp"
    """Where the app speaks MCP: `/mcp`."""
    agents: Sequence[Any] | None = None
    """The agent classes that are offered, or their names; all when left out."""
    exposed: bool = False
    """True: `@exposed` methods are tools, too."""
    new_name: Callable[..., Any] | None = None
    """Names the conversation of somebody who names none, from their identity. Default: a random name."""

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            check(kind, getattr(self, name), f"McpEndpoint.{name}")
        if self.new_name is not None:
            check_function("new_name", self.new_name, ("identity",))
