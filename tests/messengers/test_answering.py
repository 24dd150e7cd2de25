"""A message comes in by a webhook, an answer goes out: once, whole, also after a crash."""

from __future__ import annotations

import asyncio

import pytest

from everthink.testing import ScriptedModel, says
from everthink.testing.telegram import TelegramServer
from tests.support.messengers import bot_class, talking

pytestmark = pytest.mark.anyio


async def test_a_message_is_answered_once_however_often_it_is_delivered(
    telegram: TelegramServer, store: str
) -> None:
    model = ScriptedModel(says("Paris."))
    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, model), store):
        told = await ann.say("Capital of France?")
        assert told.status == 200
        await telegram.until(lambda: ann.answers)
        assert [(await telegram.redeliver(told)).status for _ in range(3)] == [200, 200, 200]
    async with talking(telegram, bot_class(telegram, model), store):
        assert (await telegram.redeliver(told)).status == 200
    assert [shown.text for shown in ann.answers] == ["Paris."]
    assert len(model.requests) == 1


@pytest.mark.agent_case(424)
async def test_redeliveries_at_the_same_moment_are_one_message(telegram: TelegramServer, store: str) -> None:
    model = ScriptedModel(says("Once."))
    ann = telegram.private("Ann")
    async with talking(telegram, bot_class(telegram, model), store):
        told = await ann.say("Hello?")
        again = await asyncio.gather(*(telegram.redeliver(told) for _ in range(5)))
        assert {one.status for one in again} == {200}
        await telegram.until(lambda: ann.answers)
    assert [shown.text for shown in ann.answers] == ["Once."]
