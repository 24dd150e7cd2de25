"""Processes to be killed while a bot answers on a platform whose stand-in lives on in the test.

    test: the platform, people --HTTP--> run: the bot, until it is told to stop or dies --HTTP--> the platform

What a tool does is a line in a file that no database knows of.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from everthink import App, Think, tool
from everthink.messengers import MessengerDefinition
from everthink.messengers.discord import discord_messenger
from everthink.messengers.slack import slack_messenger
from everthink.models.port import Request, ToolMessage
from everthink.testing.in_process_server import Listening
from everthink.testing.platform import posted
from everthink.testing.scripted import Play, ScriptedModel, says
from tests.crash.nursery import fork_for_each_line

__all__ = ["HELLO", "STOP", "long_answer"]

HELLO, STOP = "/hello", "/stop-this-process"
LIMITS = {"slack": 11_900, "discord": 1_990}
FACTORIES = {"slack": slack_messenger, "discord": discord_messenger}


def long_answer(platform: str) -> str:
    """An answer in three messages."""
    words = (f"word{number:06d}" for number in range(LIMITS[platform] * 5 // 2 // 11))
    return " ".join(words)


class Clerk(Think):
    """Says something, asks, and says much."""

    include_workspace_tools = False

    @tool(needs_approval=True, on_interrupt="rerun")
    def refund(self, order: str) -> str:
        """Give the money back; safe to repeat."""
        path = Path(os.environ["EFFECTS"])
        if not path.exists():
            path.write_text(f"refund {order}\n")
        return f"refunded {order}"


async def run(platform: str, store: str, origin: str, options: dict[str, Any]) -> None:
    """Serve the bot of a platform."""
    whole = long_answer(platform)
    third = len(whole) // 3

    def play(request: Request) -> Play:
        if isinstance(request.messages[-1], ToolMessage):
            return says(whole[:third], whole[third : 2 * third], whole[2 * third :])
        return says("Let me see.").calls("refund", order="o1")

    factory: Any = FACTORIES[platform]
    definition: MessengerDefinition = factory(user_name="helper", burst=0.0, **options)
    bot: Any = type(
        "Clerk",
        (Clerk,),
        {
            "model": ScriptedModel(play, repeat=True, records=False),
            "messengers": {platform: definition},
        },
    )
    app = App(bot, store=store, grace=0.0, idle_after=None)
    stopped = asyncio.Event()

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != STOP:
            return await app(scope, receive, send)
        stopped.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with app, Listening(served) as server:
        await posted(f"{origin}{HELLO}?at={server.port}", {}, b"")
        await stopped.wait()


if __name__ == "__main__":
    fork_for_each_line(run)
