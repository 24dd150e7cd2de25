"""Processes to be killed while a tool of an MCP server runs, or asks a person something.

nursery --> run: a story in a room of its own, gone on with from wherever an earlier process left it
"""

from __future__ import annotations

from typing import Any

from everthink import App, Think
from everthink.models.port import Request, ToolMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from tests.crash.nursery import fork_for_each_line
from tests.support.agents import live

__all__ = ["STORIES", "go_on", "traveller"]

STORIES = ("tool", "question")


def answer(request: Request) -> Play:
    """Ask for what the person wants, then say that it is done."""
    if isinstance(request.messages[-1], ToolMessage):
        return says("Done.")
    text = str(request.messages[-1].content)
    return calls("asks_book", city="Rome") if "question" in text else calls("asks_pay", amount=7)


class Traveller(Think):
    model: Any = ScriptedModel(answer, repeat=True, records=False)
    wait_for_mcp_connections = True


def traveller(store: str, url: str) -> App:
    """An app whose agents have the server at `url`."""
    return App(Traveller, store=store, grace=0.0, idle_after=None, mcp_servers={"asks": url})


async def go_on(app: App, story: str, room: str) -> None:
    """Do what a person would who comes by again and again, until the story is over."""
    agent: Any = await live(app.agent(Traveller, room))
    for _ in range(10):
        await agent._home.chat.door.queue.wait_for_idle()
        messages = await agent.get_messages()
        parts = [part for message in messages for part in message.parts if "toolCallId" in part]
        if not messages:
            await agent.save_messages(story)
        elif parts and parts[-1]["state"] == "approval-requested":
            given = {"action": "accept", "content": {"seats": 2}}
            await agent.apply_tool_result(parts[-1]["toolCallId"], given)
        elif messages[-1].text.endswith("Done."):
            return
        else:
            await agent.continue_last_turn()
    raise AssertionError(f"{story} does not end: {messages}")


async def run(store: str, url: str, story: str, room: str) -> None:
    async with traveller(store, url) as app:
        await go_on(app, story, room)


if __name__ == "__main__":
    fork_for_each_line(run)
