"""Prompts and resources of an MCP server, as plain values.

Agent.get_mcp_prompt, Agent.read_mcp_resource --> prompt, resource --> Link --> the server
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .server import Server

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["prompt", "resource"]


async def prompt(server: Server, name: str, arguments: dict[str, str] | None) -> list[dict[str, Any]]:
    """The messages of a prompt."""

    async def ask(client: Client, alive: Callable[[], None]) -> Any:
        return await client.get_prompt(name, arguments)

    result = await server.start().call(ask, server.timeouts, f"the prompt {name!r}")
    return [_plain(message) for message in result.messages]


async def resource(server: Server, uri: str) -> list[dict[str, Any]]:
    """The contents of a resource."""

    async def ask(client: Client, alive: Callable[[], None]) -> Any:
        return await client.read_resource(uri)

    result = await server.start().call(ask, server.timeouts, f"the resource {uri!r}")
    return [_plain(content) for content in result.contents]


def _plain(value: Any) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)
