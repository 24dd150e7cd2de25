"""An agent with clerks: whoever names a tool of it has it called, and a clerk is asked in the same words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from everthink import Think, ToolContext, agent_tool, tool
from tests.journeys.page.asking import Caller, Desk

__all__ = ["Office"]


class Clerk(Desk):
    """Does one thing, and can be asked to wait: `POST …/go` lets it go on."""

    def format_agent_tool_input(self, input: Any) -> str:
        return input["query"]

    async def on_start(self, props: Any = None) -> None:
        self.go = asyncio.Event()

    async def on_request(self, request: Any) -> Any:
        self.go.set()
        return {}

    @tool
    async def dig(self) -> AsyncGenerator[str, None]:
        """Dig, and wait."""
        yield "one metre"
        await self.go.wait()
        yield "ten metres"

    @tool
    def note(self, text: str) -> str:
        """Write something down."""
        return f"noted {text}"

    @tool(needs_approval=True)
    def stamp(self) -> str:
        """Stamp it, which needs a person."""
        return "stamped"


class Office(Think):
    """Has clerks."""

    model = Caller()
    clerk = agent_tool(Clerk, description="Ask the clerk.", display_name="The clerk")

    @tool
    async def survey(self, ctx: ToolContext) -> list[str | None]:
        """Have three clerks write something down; the third is asked first."""
        runs = [
            self.run_agent_tool(
                Clerk,
                input={"query": f'note {{"text": "{number}"}}'},
                parent_tool_call_id=ctx.tool_call_id,
                display={"name": f"Clerk {number}"},
                display_order=number,
            )
            for number in (3, 1, 2)
        ]
        return [run.summary for run in await asyncio.gather(*runs)]
