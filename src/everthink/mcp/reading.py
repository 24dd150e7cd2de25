"""What an agent's own code asks of an MCP server: a tool, a prompt, a resource, as plain values.

    Agent.call_mcp_tool, get_mcp_prompt, read_mcp_resource --> call, prompt, resource --> Link --> the server

Outside a turn there is nobody to ask: a tool that has a question fails with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ToolError
from ..json_values import plain_json
from ..tools.context import ToolContext
from ..tools.question import Question
from .server import Server

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["call", "prompt", "resource"]


async def call(server: Server, tool: str, input: Mapping[str, Any], agent: Any) -> Any:
    """What a tool answers. Raises `ToolError` with why it did not."""
    given = plain_json(dict(input), "input", "call_mcp_tool")
    try:
        return await server.call(tool, given, ToolContext(agent=agent))
    except Question as asked:
        raise ToolError(
            f"The tool {tool!r} of the MCP server {server.name!r} asks a person something: {asked}",
            kept="It was not answered.",
            next_step="Let a model call it: in a turn a person can answer.",
        ) from None


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
