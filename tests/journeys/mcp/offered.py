"""An app that is offered to MCP clients: `python -m tests.journeys.mcp.offered PORT STORE`.

The last user message says what the model does: `wait` begins an answer that never ends, `break` fails, `ask`
calls a tool that a person has to allow. Everything else is said back.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

from everthink import App, Think, exposed, tool
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play


def answer(request: Any) -> Play:
    asked = request.messages[-1].content[0].text
    match asked:
        case "wait":
            return says("It goes ").then_hangs()
        case "break":
            return says("It ").then_fails("The provider is away.", kind="fatal")
        case "ask":
            return says("I ask first. ").then(calls("postcard", to="Ada"))
        case _:
            return says(*(f"{word} " for word in asked.split()))


class Stage(Think):
    """Says things back."""

    model = ScriptedModel.forever(answer)

    @tool(needs_approval=True)
    def postcard(self, to: str) -> str:
        """Send a postcard."""
        return f"sent to {to}"

    @exposed
    def add(self, a: int, b: int) -> int:
        """Adds."""
        return a + b


def who(connection: Any) -> Any:
    """Who it is: a header says so."""
    return connection.headers.get("x-token")


if __name__ == "__main__":
    port, store = sys.argv[1:]
    app = App(
        Stage,
        store=store,
        grace=0,
        mcp={"exposed": True},
        authenticate=who,
        authorize=lambda identity, action, agent: agent.name != "secret",
    )
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
