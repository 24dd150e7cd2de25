"""An MCP server on this machine: `python -m tests.journeys.page.library PORT`."""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

__all__ = ["library"]

DAYS: dict[str, Any] = {
    "type": "object",
    "properties": {"days": {"type": "integer", "title": "For how many days?", "minimum": 1, "maximum": 30}},
    "required": ["days"],
}


def library() -> MCPServer:
    """A library, which asks before it lends something."""
    # The same key in every process, so that a question may be answered after a restart.
    security = RequestStateSecurity(keys=[b"k" * 32])
    server = MCPServer("library", instructions="Ask me about books.", request_state_security=security)

    @server.tool()
    def find_book(title: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Say on which shelf a book is."""
        return f"{title} is on shelf {len(title)}."

    @server.tool()
    async def borrow(title: str, ctx: Context) -> str | InputRequiredResult:  # pyright: ignore[reportUnusedFunction]
        """Lend a book, for as many days as the person wants it."""
        answers: Any = ctx.input_responses
        if not answers:
            params = ElicitRequestFormParams(message=f"You would like {title}.", requested_schema=DAYS)
            return InputRequiredResult(
                input_requests={"days": ElicitRequest(params=params)}, request_state=title
            )
        given = answers["days"]
        return f"{title}: {given.action} {given.content}"

    @server.prompt()
    def recommend(genre: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """A book of a genre."""
        return f"Recommend a book: {genre}"

    @server.resource("library://hours")
    def hours() -> str:  # pyright: ignore[reportUnusedFunction]
        """When the library is open."""
        return "9 to 17"

    return server


if __name__ == "__main__":
    import uvicorn

    app = library().streamable_http_app(stateless_http=True)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
