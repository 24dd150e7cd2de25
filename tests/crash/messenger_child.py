"""Processes to be killed while a bot answers on a platform whose stand-in lives on in the test.

    test: the platform, people --HTTP--> run: the bot, until it is told to stop or dies --HTTP--> the platform

What a tool does is a line in a file that no database knows of.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from everthink import App, Think, tool
from everthink.messengers import DeliveryPolicy, MessengerDefinition
from everthink.messengers.discord import discord_messenger
from everthink.messengers.slack import slack_messenger
from everthink.messengers.telegram import telegram_messenger
from everthink.models.port import (
    AssistantMessage,
    Finish,
    ModelEvent,
    Opened,
    Request,
    TextDelta,
    TextEnd,
    TextPart,
    TextStart,
    ToolMessage,
    UserMessage,
)
from everthink.testing.in_process_server import Listening
from everthink.testing.platform import posted
from everthink.testing.scripted import Play, ScriptedModel, says
from tests.crash.nursery import fork_for_each_line

__all__ = ["HELLO", "STOP", "long_answer", "short_answer"]

HELLO, STOP = "/hello", "/stop-this-process"
LIMITS = {"telegram": 3_400, "slack": 11_900, "discord": 1_990}
FACTORIES = {"telegram": telegram_messenger, "slack": slack_messenger, "discord": discord_messenger}
WORDS = 40
PATIENCE = 2.0
"""Seconds that a platform may take: what hangs is not waited for as long as it would be elsewhere."""


def long_answer(platform: str) -> str:
    """An answer in three messages."""
    words = (f"word{number:06d}" for number in range(LIMITS[platform] * 5 // 2 // 11))
    return " ".join(words)


def short_answer(question: str) -> str:
    """An answer in one message, and nobody else's."""
    return " ".join(f"{question}-{number}" for number in range(WORDS))


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


class Words:
    """Says its answer word by word, and goes on where it was cut off."""

    name = "words"
    continues = "prefill"

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """An answer to what was asked last."""
        question, said = "", ""
        for message in request.messages:
            texts = "".join(part.text for part in message.content if isinstance(part, TextPart))
            if isinstance(message, UserMessage):
                question, said = texts, ""
            elif isinstance(message, AssistantMessage):
                said = texts
        words = short_answer(question).split()
        first = len(re.findall(rf"{re.escape(question)}-\d+", said))
        yield Opened(model_id=self.name)
        yield TextStart("t")
        for number in range(first, len(words)):
            await asyncio.sleep(0.01)  # so that a process can die in the middle
            between = " " if number == first and said and not said.endswith(" ") else ""
            yield TextDelta("t", f"{between}{words[number]} ")
        yield TextEnd("t")
        yield Finish("stop")


def refunds(platform: str) -> ScriptedModel:
    """It asks whether it may, and tells all about it when it is done."""
    whole = long_answer(platform)
    third = len(whole) // 3

    def play(request: Request) -> Play:
        if isinstance(request.messages[-1], ToolMessage):
            return says(whole[:third], whole[third : 2 * third], whole[2 * third :])
        return says("Let me see.").calls("refund", order="o1")

    return ScriptedModel(play, repeat=True, records=False)


async def run(
    platform: str,
    store: str,
    origin: str,
    options: dict[str, Any],
    talks: bool = False,
    on_uncertain: Any = "repeat",
) -> None:
    """Serve the bot of a platform, until it is told to stop and has shown all that it has to show.

    `talks`: it answers many people, quickly, and asks nothing.
    """
    factory: Any = FACTORIES[platform]
    delivery = DeliveryPolicy(on_uncertain=on_uncertain)
    definition: MessengerDefinition = factory(user_name="helper", burst=0.0, delivery=delivery, **options)
    if talks:
        hurry(definition)
    bot: Any = type(
        "Clerk",
        (Clerk,),
        {"model": Words() if talks else refunds(platform), "messengers": {platform: definition}},
    )
    app = App(bot, store=store, grace=0.0, idle_after=None)
    stopped = asyncio.Event()

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != STOP:
            return await app(scope, receive, send)
        await all_told(app)
        stopped.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with app, Listening(served) as server:
        await posted(f"{origin}{HELLO}?at={server.port}&pid={os.getpid()}", {}, b"")
        await stopped.wait()


async def all_told(app: App) -> None:
    """Return once nothing is to be shown any more."""
    told = asyncio.Event()
    over = app.events.subscribe(
        lambda event: told.set(), type=("messenger:delivered", "messenger:delivery:failed")
    )
    store = (await app.open()).store
    while await store.fetch("SELECT 1 FROM deliveries WHERE state NOT IN ('done', 'failed') LIMIT 1"):
        await told.wait()
        told.clear()
    over()


def hurry(definition: MessengerDefinition) -> None:
    """Edit as often as it goes, and wait for nobody for long."""
    adapter: Any = definition.messenger
    adapter.limits = replace(
        adapter.limits, edit_every=0.05, edit_every_in_groups=0.05, sends_per_second=1000.0
    )
    adapter._rest._timeout = PATIENCE


if __name__ == "__main__":
    fork_for_each_line(run)
