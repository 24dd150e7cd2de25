"""Strangers who send a lot: what others wait for them, and what it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.deliveries.crowd import TOO_MANY
from everthink.deliveries.inbox import LARGEST_FILE
from everthink.messengers.values import Attachment
from everthink.server import Limits
from everthink.testing import ScriptedModel, says, waits
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import bot_class, talking

pytestmark = pytest.mark.anyio


def hello() -> ScriptedModel:
    return ScriptedModel(lambda request: says("Hello."), repeat=True)


async def test_who_writes_without_end_does_not_make_others_wait_for_it(
    telegram: TelegramServer, store: str
) -> None:
    # Given a group with a bot that answers one by one, and is busy with an answer
    goes_on, told = asyncio.Event(), list[Any]()
    group, limits = telegram.group("G"), Limits(waiting_turns=8)
    model = ScriptedModel(lambda request: waits(goes_on).says("Hello."), repeat=True)
    async with talking(telegram, bot_class(telegram, model), store, limits=limits) as (app, _):
        app.events.subscribe(told.append, type="messenger:refused")
        # When somebody writes twenty times, then four of them wait, and they are told once that no more do
        sent = [await group.say(f"@{telegram.bot_name} {number}", by="Mallory") for number in range(20)]
        await app.events.drain()
        assert len(told) == 16
        # And one of them that comes again is one that was taken
        await telegram.redeliver(sent[0])
        # And somebody else is answered after those four
        await group.say(f"@{telegram.bot_name} Hi", by="Ann")
        await app.events.drain()
        assert len(told) == 16
        goes_on.set()
        await telegram.until(lambda: len(group.answers) == 6)
        asked = [str(request.messages[-1].content) for request in model.requests]
        assert len(asked) == 5
        assert "Ann: " in asked[-1]
    notices = [shown.text for shown in group.answers if "did not take this one" in shown.text]
    assert notices == [TOO_MANY.format(4)]


async def test_messages_that_come_at_once_are_counted_as_well(telegram: TelegramServer, store: str) -> None:
    goes_on, told = asyncio.Event(), list[Any]()
    group, limits = telegram.group("G"), Limits(waiting_turns=8)
    model = ScriptedModel(lambda request: waits(goes_on).says("Hello."), repeat=True)
    async with talking(telegram, bot_class(telegram, model), store, limits=limits) as (app, _):
        app.events.subscribe(told.append, type="messenger:refused")
        says_at_once = (group.say(f"@{telegram.bot_name} {number}", by="Mallory") for number in range(20))
        await asyncio.gather(*says_at_once)
        await app.events.drain()
        goes_on.set()
    assert len(told) == 16


async def test_pictures_of_one_message_have_the_room_of_one(telegram: TelegramServer, store: str) -> None:
    # Given two pictures of which the first leaves no room for the second
    asked: list[int] = []
    cls = bot_class(telegram, hello(), fetch_media=("image",))
    bot = cls.messengers["telegram"].messenger

    async def fetch(attachment: Attachment, *, most: int) -> bytes:
        asked.append(most)
        return b"x" * (most - 10)

    bot.fetch = fetch
    group = telegram.private("Ann")
    async with talking(telegram, cls, store):
        picture = telegram.file("a.png", b"x")
        await group.say("Look", photo=[picture], document={**picture, "mime_type": "image/png"})
        await telegram.until(lambda: group.answers)
    assert asked == [LARGEST_FILE, 10]
