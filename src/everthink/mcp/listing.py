"""How the MCP servers of an agent stand and what they offer, as code and as clients are told it.

    McpServers --McpServer, Catalogue--> told --> cf_agent_mcp_servers, Agent.get_mcp_servers
    list_mcp_servers(state="ready") --> Wanted --takes--> McpServer

Pure. What looks like a key in an address is hidden from clients: they see where a server is, not how one is
let in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from ..masking import mask
from .catalogue import Catalogue
from .places import McpServer, ServerState

__all__ = ["Wanted", "told"]

_NAMED = {
    "input_schema": "inputSchema",
    "output_schema": "outputSchema",
    "mime_type": "mimeType",
    "uri_template": "uriTemplate",
}
_HIDDEN = frozenset({"hash", "read_only", "idempotent", "destructive", "open_world"})


class Wanted(NamedTuple):
    """Which servers are meant: those that fit everything that is said. Several values: one of them."""

    id: str | Collection[str] | None = None
    name: str | Collection[str] | None = None
    state: ServerState | Collection[ServerState] | None = None

    def takes(self, server: McpServer) -> bool:
        """True for a server that is meant."""
        found = (server.id, server.name, server.state)
        return all(_fits(wanted, value) for wanted, value in zip(self, found, strict=True))


def _fits(wanted: Any, value: str) -> bool:
    return wanted is None or (value == wanted if isinstance(wanted, str) else value in wanted)


def told(servers: Iterable[tuple[McpServer, Catalogue | None]]) -> dict[str, Any]:
    """All of them, as JSON: how each stands, then what they offer together."""
    told: dict[str, Any] = {"servers": {}, "tools": [], "prompts": [], "resources": []}
    for server, offer in servers:
        if server.id in told["servers"]:
            continue  # one of the app that came later: the agent's own is meant by that id
        told["servers"][server.id] = {
            "name": server.name,
            "server_url": mask(server.url),
            "auth_url": server.auth_url,
            "state": server.state,
            "error": server.error,
            "instructions": offer.instructions if offer is not None else None,
            "capabilities": offer.capabilities if offer is not None else None,
        }
        if offer is not None:
            told["tools"] += entries(server.id, offer.tools)
            told["prompts"] += entries(server.id, offer.prompts)
            told["resources"] += entries(server.id, offer.resources)
    return told


def entries(server: str, offered: Iterable[msgspec.Struct]) -> list[dict[str, Any]]:
    """What one server offers of a kind."""
    return [{**_entry(one), "serverId": server} for one in offered]


def _entry(one: msgspec.Struct) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(one)
    return {_NAMED.get(key, key): value for key, value in built.items() if key not in _HIDDEN}
