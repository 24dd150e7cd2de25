"""How an app is offered to MCP clients: what `App(mcp=…)` takes.

    App(mcp=True)   App(mcp={"exposed": True})   --endpoint_of--> McpEndpoint, or why not

Pure, and without the package `mcp`. What is not understood is refused where it was written.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from ..address import kebab
from ..errors import InvalidSettings, MissingExtra
from ..kinds import FUNCTION, YES_NO, Kind, check, optional
from ..settings import as_settings, nearest, shown
from ..surface import check_function

__all__ = ["McpEndpoint", "check_installed", "endpoint_of"]

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


def endpoint_of(given: Any, classes: Mapping[str, type[Any]]) -> McpEndpoint | None:
    """What `App(mcp=…)` asks for; `None`: nothing. Raises when `mcp` is not installed."""
    if given is False or given is None:
        return None
    if given is not True and not isinstance(given, McpEndpoint | Mapping):
        raise InvalidSettings(
            f"App(mcp=…) is {shown(given)}.",
            next_step='It takes True, a dict such as {"exposed": True}, a McpEndpoint, or False.',
        )
    endpoint = McpEndpoint() if given is True else as_settings(McpEndpoint, given, "App(mcp=…)")
    if endpoint.agents is not None:
        endpoint = replace(endpoint, agents=[_class_of(one, classes) for one in endpoint.agents])
    check_installed("App(mcp=…)")
    return endpoint


def _class_of(given: Any, classes: Mapping[str, type[Any]]) -> type[Any]:
    """The class of the app that an entry of `agents` names."""
    for name, cls in classes.items():
        if given is cls or given in (name, kebab(name)):
            return cls
    name = given.__name__ if isinstance(given, type) else given
    near = nearest(name, classes) if isinstance(name, str) else None
    raise InvalidSettings(
        f"App(mcp=…) offers {cast('Any', name)!r}, which is no agent of this app.",
        next_step=f"Did you mean {near!r}?" if near else f"There are: {', '.join(classes)}.",
    )


def check_installed(what: str) -> None:
    """Raise `MissingExtra` when the package `mcp` is not there. It is not imported for that."""
    if importlib.util.find_spec("mcp") is None:
        raise MissingExtra(
            f"{what} needs the package mcp, which is not installed.",
            kept="Nothing was started.",
            next_step='Run: pip install "everthink[mcp]"',
        )
