"""What a large catalogue costs: a turn that is offered 300 tools of an MCP server against one that is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink.mcp import LocalServer
from everthink.testing.scripted import ScriptedModel, says

from .by_turns import cpu_of_turns
from .measure import Row
from .work import SHORT

TOOLS = 300
SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What to look for, in a few words."},
        "folder": {"type": "string", "description": "Where to look."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "order": {"type": "string", "enum": ["newest", "oldest", "largest"]},
        "deep": {"type": "boolean"},
    },
    "required": ["query"],
}


class Offered(Think):
    """Is offered the tools of the app's server."""

    model = ScriptedModel.forever(says(*SHORT.text))
    wait_for_mcp_connections = True


class Spared(Offered):
    """Is offered none."""

    include_mcp_tools = False


async def catalogue(folder: Path, *, turns: int) -> list[Row]:
    """CPU of a turn, with and without the catalogue, by turns. The same request, but for the tools."""
    servers = {"large": LocalServer(_server())}
    async with App(Offered, Spared, store=f"sqlite:///{folder / 'mcp.db'}", mcp_servers=servers) as app:
        offered, spared = await cpu_of_turns(app, (Offered, Spared), turns=turns)
        async with app.agent(Offered, "room-0") as agent:
            (server,) = await agent.list_mcp_servers()
        assert len(server.tools) == TOOLS
    what = f"CPU of a turn with {TOOLS} tools of an MCP server against one without"
    row = Row(what, "×", {"everthink": offered / spared})
    return [row.held_to("≤ 1.2 ×", offered <= 1.2 * spared)]


def _server() -> Any:
    from mcp.server import Server
    from mcp_types import ListToolsResult, Tool

    words = "Looks for documents that match the words, and says where they are and who wrote them. " * 3
    tools = [Tool(name=f"find_{n}", description=words, input_schema=SCHEMA) for n in range(TOOLS)]

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    return Server("large", on_list_tools=list_tools)
