"""A messenger that has another id in `get_messengers`, or is gone: what becomes of what is open."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.in_process_server import Listening
from everthink.testing.telegram import TelegramServer
from tests.support.hooks import until
from tests.support.messengers import bot_class, talking

pytestmark = pytest.mark.anyio

GONE = "The messenger is gone: get_messengers has none of this id."
DAY = 24 * 3600


def renamed(cls: type[Think], id: str = "support") -> type[Think]:
    """The same class with its messenger under another id; without one for `""`."""
    there = {id: cls.messengers["telegram"]} if id else {}
    return type("Bot", (cls,), {"messengers": there})


async def rows(app: App) -> list[tuple[Any, ...]]:
    return await (await app.open()).store.fetch("SELECT state, error FROM deliveries ORDER BY part")


async def are(app: App, *expected: tuple[Any, ...]) -> None:
    """Wait until the messages stand so."""

    async def stand_so() -> bool:
        return await rows(app) == list(expected)

    await until(stand_so)


async def passing(clock: ManualClock, failed: list[Any]) -> bool:
    await clock.advance(120)
    return bool(failed)


async def left(telegram: TelegramServer, cls: type[Think], store: str) -> None:
    """An answer that is not delivered when the process ends."""
    fault = telegram.fault("sendMessage", "500", times=1000)
    async with talking(telegram, cls, store) as (app, _):
        retried = asyncio.Event()
        app.events.subscribe(lambda event: retried.set(), type="messenger:delivery:retried")
        await telegram.private("Ann").say("Hi")
        await asyncio.wait_for(retried.wait(), 20)
    fault.times = 0


@pytest.mark.parametrize("id", ["support", ""])
async def test_what_waits_for_a_messenger_that_is_gone_is_told_at_the_start(
    telegram: TelegramServer, store: str, id: str, caplog: pytest.LogCaptureFixture
) -> None:
    cls = bot_class(telegram, ScriptedModel(says("Hello.")))
    await left(telegram, cls, store)
    clock = ManualClock()
    async with Listening(
        App(renamed(cls, id), store=store, clock=clock, grace=0.0, idle_after=None)
    ) as server:
        # Then it is said who is gone, and the row says so
        app = server.app
        await until(lambda: "there is no messenger 'telegram' any more" in caplog.text)
        assert "1 message waits for it" in caplog.text
        await are(app, ("planned", GONE))
        await clock.until_waiting()

        # And after a day it counts as failed, and observers hear of it
        failed: list[Any] = []
        app.events.subscribe(failed.append, type="messenger:delivery:failed")
        await clock.advance(DAY - 60)
        assert (await rows(app)) == [("planned", GONE)]
        await until(lambda: passing(clock, failed))
        assert (await rows(app)) == [("failed", GONE)]
    assert telegram.private("Ann").answers == []


async def test_what_waits_goes_on_when_the_messenger_comes_back(telegram: TelegramServer, store: str) -> None:
    cls, ann = bot_class(telegram, ScriptedModel(says("Hello."))), telegram.private("Ann")
    await left(telegram, cls, store)
    async with Listening(App(renamed(cls), store=store, grace=0.0, idle_after=None)) as server:
        await are(server.app, ("planned", GONE))
    async with talking(telegram, cls, store) as (app, _):
        await telegram.until(lambda: ann.answers)
        await are(app, ("done", None))
    assert [shown.text for shown in ann.answers] == ["Hello."]


APP = """
from everthink import App, Think
from everthink.messengers.telegram import telegram_messenger

class Bot(Think):
    model = "demo"
    messengers = {"support": telegram_messenger(token="1:a", user_name="test_bot", secret_token="s3cret")}

app = App(Bot, store="STORE")
"""


class Till(Think):
    @tool(needs_approval=True)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        return "refunded"


@pytest.mark.slow
async def test_doctor_names_the_messenger_that_is_gone(
    telegram: TelegramServer, store: str, tmp_path: Path
) -> None:
    # Given an answer that is not delivered, and a question that nobody has answered
    base = bot_class(telegram, ScriptedModel(calls("refund", order="7"), says("Hello.")))
    cls = type("Bot", (Till,), {"model": base.model, "messengers": base.messengers})
    async with talking(telegram, cls, store):
        await telegram.private("Bob").say("Refund order 7")
        await telegram.until(lambda: any(shown.buttons for shown in telegram.private("Bob").answers))
    await left(telegram, cls, store)

    # When the messenger is called otherwise
    (tmp_path / "shop.py").write_text(APP.replace("STORE", store))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everthink.cli", "doctor", "shop:app", "--offline", "--json"),
        cwd=tmp_path,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    (row,) = [one for one in json.loads(said)["checks"] if one["name"] == "messenger telegram"]
    assert (process.returncode, row["state"]) == (0, "note")
    assert row["found"] == (
        "Bot/default: there is no messenger 'telegram' any more (there is: support), and 1 message waits"
        " for it and 1 question waits for a button that nobody hears"
    )
    assert "by that id again" in row["mend"]
