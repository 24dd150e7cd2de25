"""An MCP server whose tool asks a person before it books: `python asking_server.py PORT`.

What it has booked stands in the file that BOOKED names, a line each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

SCHEMA = {"type": "object", "properties": {"seats": {"type": "integer", "minimum": 1}}, "required": ["seats"]}

# As a server comes it knows what it has asked until it ends; with a key of its own also after that.
KEPT = None if os.environ.get("FORGETS") else RequestStateSecurity(keys=[b"k" * 32])
server = MCPServer("asks", request_state_security=KEPT)


def note(what: str) -> None:
    with Path(os.environ["BOOKED"]).open("a") as file:
        file.write(f"{what}\n")


@server.tool()
async def book(city: str, ctx: Context) -> str | InputRequiredResult:
    """Book a trip."""
    given = ctx.input_responses
    if not given:
        asks = os.environ.get("ASKS", "How many seats to")
        form = ElicitRequestFormParams(message=f"{asks} {city}?", requested_schema=SCHEMA)
        return InputRequiredResult(
            input_requests={"seats": ElicitRequest(params=form)}, request_state=f"city={city}"
        )
    answer = given["seats"]
    if answer.action != "accept":
        return f"Nothing was booked: {answer.action}."
    booked = f"{answer.content['seats']} seats to {ctx.request_state.removeprefix('city=')}"
    note(booked)
    return f"Booked {booked}."


@server.tool()
def pay(amount: int) -> str:
    """Pay."""
    note(f"paid {amount}")
    return f"Paid {amount}."


if __name__ == "__main__":
    app = server.streamable_http_app(stateless_http=True)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_level="warning",
        timeout_graceful_shutdown=1,  # a client that listens for changes stays on the line
    )
