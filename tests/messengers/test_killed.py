"""The process dies while it answers. What people see is one message, and the whole of it."""

from __future__ import annotations

import asyncio
import random

import pytest

from everthink.testing.node import Node
from everthink.testing.platform import Delivery
from everthink.testing.telegram import TelegramChat, TelegramServer
from tests.support.bots import WHOLE
from tests.support.messengers import SECRET
from tests.support.samples import sample

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def serving(telegram: TelegramServer, store: str) -> Node:
    env = {"BOT_TOKEN": telegram.token, "BOT_API": telegram.origin}
    return Node("tests.support.bots:Bot", store=store, env=env)


async def taken(telegram: TelegramServer, told: Delivery) -> None:
    """Deliver it as Telegram does, once more if nobody answered 200. The process is up."""
    if told.status != 200:
        await telegram.redeliver(told)
    assert told.status == 200


def is_whole(chat: TelegramChat) -> bool:
    return bool(chat.answers) and chat.answers[-1].text == WHOLE


@pytest.fixture(params=["sqlite", "postgres"])
def either_store(request: pytest.FixtureRequest, tmp_path: object) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/bot.db"
    return request.getfixturevalue("postgres_url")


@pytest.mark.agent_case(403)
async def test_an_answer_goes_on_in_the_same_message_after_a_kill(
    telegram: TelegramServer, either_store: str
) -> None:
    async with serving(telegram, either_store) as node:
        telegram.webhook(f"http://{node.host}/messengers/telegram/webhook", secret=SECRET)
        ann = telegram.private("Ann")
        await taken(telegram, await ann.say("go"))
        await telegram.until(lambda: ann.answers and ann.answers[0].before)  # it was edited: its id is kept
        await node.restart()
        await telegram.until(lambda: is_whole(ann))
    assert [shown.text for shown in ann.answers] == [WHOLE]


async def test_random_kills_and_redeliveries_lose_nothing_and_double_only_what_nobody_can_know(
    telegram: TelegramServer, store: str
) -> None:
    dice = random.Random(11)
    async with serving(telegram, store) as node:
        telegram.webhook(f"http://{node.host}/messengers/telegram/webhook", secret=SECRET)
        for number in range(sample(3, 40)):
            chats = [telegram.private(f"p{number}-{one}") for one in range(5)]
            told = await asyncio.gather(*(chat.say("go") for chat in chats))
            for _ in range(dice.randint(1, 3)):
                many = len(telegram.log) + dice.randint(1, 60)
                await telegram.until(
                    lambda many=many, chats=chats: len(telegram.log) > many or all(map(is_whole, chats))
                )
                await node.restart()
                await asyncio.gather(*(taken(telegram, one) for one in told))
            await asyncio.gather(*(telegram.redeliver(one) for one in told))
            await telegram.until(lambda chats=chats: all(map(is_whole, chats)), within=120)
            for chat in chats:
                whole = [shown for shown in chat.answers if shown.text == WHOLE]
                assert len(whole) == 1
                # A message of which nobody knew stays as it was when the process died, above the whole one.
                assert all(WHOLE.startswith(shown.text) for shown in chat.answers)
