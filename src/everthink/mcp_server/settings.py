"""Read what `App(mcp=…)` is given.

    App(mcp=True)   App(mcp={"exposed": True})   --endpoint_of--> McpEndpoint, or why not

Pure, and without the package `mcp`. What is not understood is refused where it was written.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..address import kebab
from ..errors import InvalidSettings, MissingExtra
from ..mcp_endpoint import McpEndpoint
from ..settings import as_settings, nearest, shown

__all__ = ["check_installed", "endpoint_of"]


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
