"""What a large catalogue costs: a turn that is offered 300 tools of an MCP server against one that is not."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

from everthink import App, Think
from everthink.mcp import LocalServer
from everthink.testing.scripted import ScriptedModel, says

from .measure import Row, calm
from .work import QUESTION, SHORT

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
    taken: dict[type[Think], list[float]] = {Offered: [], Spared: []}
    servers = {"large": LocalServer(_server())}
    async with App(*taken, store=f"sqlite:///{folder / 'mcp.db'}", mcp_servers=servers) as app:
        for number in range(-20, turns):
            for cls, cpu in taken.items():
                if number % 20 == 0:
                    calm()
                began = time.process_time()
                await app.agent(cls, f"room-{number // 20}").save_messages(QUESTION)
                if number % 20 and number > 0:  # the first of a room opens it
                    cpu.append(time.process_time() - began)
        async with app.agent(Offered, "room-0") as agent:
            (server,) = await agent.list_mcp_servers()
        assert len(server.tools) == TOOLS
    offered, spared = (median(cpu) for cpu in taken.values())
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
