"""Messengers on the page: whose chat a conversation is, and how each message to it stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from everthink import Think
from everthink.messengers.discord import discord_messenger
from everthink.testing import ScriptedModel, says
from everthink.testing.discord import DiscordServer
from everthink.testing.telegram import TelegramChat, TelegramServer

from ..messengers.test_asking import clerk
from ..support.messengers import SECRET, bot_class
from ..support.server import Served
from .conftest import Develop

pytestmark = pytest.mark.anyio

LIST = "/everthink/conversations/bot"


@pytest.fixture
async def telegram(anyio_backend: str) -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        yield server


def listen(telegram: TelegramServer, server: Served) -> None:
    telegram.webhook(f"http://{server.host}/messengers/telegram/webhook", secret=SECRET)


def place(cls: str, chat: TelegramChat) -> str:
    """The conversation of a chat, below the addresses of the inspector."""
    return f"{cls}/default/sub/{cls}/messenger%3Atelegram%3Atelegram%3A{chat.id}"


async def inside(server: Served, cls: str, chat: TelegramChat) -> Any:
    """What the inspector has of it."""
    return (await server.http(f"/everthink/inspect/{place(cls, chat)}")).json


async def until(server: Served, cls: str, chat: TelegramChat, reached: Callable[[Any], object]) -> Any:
    """What it has once that is so."""
    return await until_at(server, place(cls, chat), reached)


async def until_at(server: Served, where: str, reached: Callable[[Any], object]) -> Any:
    """Look again whenever something happened in a conversation, as the page does."""
    events = await server.connect(f"/everthink/events/{where}")
    while True:
        seen = len(events.frames)
        found = (await server.http(f"/everthink/inspect/{where}")).json
        if found["deliveries"] and reached(found):
            return found
        await events.until(lambda seen=seen: len(events.frames) > seen)


async def test_a_conversation_says_whose_chat_it_is(develop: Develop, telegram: TelegramServer) -> None:
    model = ScriptedModel(lambda _: says("Hello."), repeat=True)
    server = await develop(bot_class(telegram, model))
    listen(telegram, server)
    ann, team = telegram.private("Ann"), telegram.group("Team")
    await ann.say("Hello there")
    await telegram.until(lambda: ann.answers)
    await team.say("@test_bot hello", by="Bob")
    await telegram.until(lambda: team.answers)

    told = (await inside(server, "bot", ann))["messenger"]
    assert told == {
        "messenger": "telegram",
        "provider": "telegram",
        "chat": "Ann",
        "thread": f"telegram:{ann.id}",
        "is_direct": True,
    }
    [root] = (await server.http(LIST)).json["conversations"]
    assert (root["name"], root["title"], root["messenger"]) == ("default", "default", None)
    chats = {one["title"]: one["messenger"]["is_direct"] for one in root["children"]}
    assert chats == {"Ann": True, "Team": False}


async def test_who_answers_for_all_is_marked_itself(develop: Develop, telegram: TelegramServer) -> None:
    cls = bot_class(telegram, ScriptedModel(says("Hello.")), conversation="self")
    server = await develop(cls)
    listen(telegram, server)
    ann = telegram.private("Ann")
    await ann.say("Hello there")
    await telegram.until(lambda: ann.answers)
    [one] = (await server.http(LIST)).json["conversations"]
    assert (one["title"], one["messenger"]["chat"]) == ("Hello there", "Ann")
    told = (await server.http("/everthink/inspect/bot/default")).json
    assert told["messenger"] == one["messenger"]


async def test_a_conversation_of_the_page_is_nobodys_chat(develop: Develop, telegram: TelegramServer) -> None:
    cls = bot_class(telegram, ScriptedModel(says("Hello.")))
    server = await develop(cls)
    chat = await server.connect(cls, "room")
    await chat.until_done(await chat.say("Hello"))
    told = (await server.http("/everthink/inspect/bot/room")).json
    assert (told["messenger"], told["deliveries"]) == (None, [])
    [one] = (await server.http(LIST)).json["conversations"]
    assert one["messenger"] is None


async def test_deliveries_move_as_things_happen(develop: Develop, telegram: TelegramServer) -> None:
    go = asyncio.Event()
    model = ScriptedModel(says("It is a long way to the ").waits(go).says("next town."))
    server = await develop(bot_class(telegram, model))
    listen(telegram, server)
    ann = telegram.private("Ann")
    slow = telegram.fault("sendMessage", "slow")
    await ann.say("How far?")

    def state(told: Any) -> str:
        return told["deliveries"][0]["state"]

    sending = await until(server, "bot", ann, lambda told: state(told) == "sending")
    assert sending["deliveries"][0]["ref"] is None
    slow.release()
    [sent] = (await until(server, "bot", ann, lambda told: state(told) == "sent"))["deliveries"]
    assert (sent["kind"], sent["part"], sent["ref"]) == ("answer", 0, ann.answers[0].id)
    go.set()
    [done] = (await until(server, "bot", ann, lambda told: state(told) == "done"))["deliveries"]
    assert done["shown"] == len("It is a long way to the next town.")
    assert (done["attempts"], done["next_at"], done["error"]) == (0, None, None)


async def test_what_a_platform_refuses_says_why_and_when_it_is_tried_again(
    develop: Develop, telegram: TelegramServer
) -> None:
    server = await develop(bot_class(telegram, ScriptedModel(says("Paris."), says("Rome."))))
    listen(telegram, server)
    ann, bob = telegram.private("Ann"), telegram.private("Bob")
    telegram.fault("sendMessage", "429", retry_after=3600)
    await ann.say("Capital of France?")
    told = await until(
        server,
        "bot",
        ann,
        lambda told: told["deliveries"][0]["error"],
    )
    [row] = told["deliveries"]
    assert (row["state"], row["attempts"]) == ("planned", 0)
    assert "Too Many Requests" in row["error"]
    assert 3_500_000 < row["next_at"] - told["now"] <= 3_600_000

    bob.is_blocked = True
    await bob.say("Capital of Italy?")
    told = await until(
        server,
        "bot",
        bob,
        lambda told: told["deliveries"][0]["state"] == "failed",
    )
    assert "blocked" in told["deliveries"][0]["error"]


async def test_a_question_and_who_decided_it(develop: Develop, telegram: TelegramServer) -> None:
    server = await develop(clerk(telegram, []))
    listen(telegram, server)
    ann = telegram.private("Ann")
    await ann.say("Refund order 7")
    await telegram.until(lambda: any(shown.buttons for shown in ann.answers))
    asked = next(shown for shown in ann.answers if shown.buttons)
    await ann.press(asked, "Deny")
    await telegram.until(lambda: "🚫" in asked.text)

    def question(told: Any) -> Any:
        return next(one for one in told["deliveries"] if one["kind"] == "question")

    told = await until(server, "clerk", ann, lambda told: question(told)["state"] == "done")
    found = question(told)
    assert (found["part"], found["ref"]) == (1000, asked.id)
    assert found["says"].endswith("🚫 Denied by Ann.")
    assert found["call_id"]


async def test_no_token_of_an_interaction_is_shown(develop: Develop, anyio_backend: str) -> None:
    async with DiscordServer() as discord:
        definition = discord_messenger(
            user_name="helper",
            application_id=discord.application_id,
            public_key=discord.public_key,
            token=discord.bot_token,
            api_url=discord.api_url,
        )
        attributes = {"model": ScriptedModel(says("Paris.")), "messengers": {"discord": definition}}
        server = await develop(type("Bot", (Think,), attributes))
        await discord.set_endpoint(f"http://{server.host}/messengers/discord/webhook")
        await discord.command("ask", {"text": "Capital of France?"}, by="ann")
        await discord.until(lambda: [shown.text for shown in discord.answers("@ann")] == ["Paris."])
        [root] = (await server.http(LIST)).json["conversations"]
        [child] = root["children"]
        where = f"bot/default/sub/bot/{child['name'].replace(':', '%3A')}"
        told = await until_at(server, where, lambda told: told["deliveries"][0]["state"] == "done")
        assert told["deliveries"][0]["ref"]
        answer = await server.http(f"/everthink/inspect/{where}")
        [asked] = discord.interactions
        assert asked.token not in answer.body.decode()
