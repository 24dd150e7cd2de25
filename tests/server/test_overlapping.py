"""Messages sent while a turn runs: what each tab is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.testing import ManualClock, ScriptedModel, says

from ..support.agents import assistant
from ..support.server import kinds
from ..support.turns import Database, all_over
from .conftest import Serve

pytestmark = pytest.mark.anyio


async def test_queued_messages_are_shown_at_once_and_answered_in_order(serve: Serve) -> None:
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("One").waits(go).says("."), says("Two.")))
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    first = await one.say("first", message_id="u1")
    await one.until_text("One")
    second = await one.say("second", message_id="u2")
    await two.until(lambda: "second" in [m.text for m in two.messages])
    assert not two.responses(second)
    go.set()
    await asyncio.gather(one.until_done(second), two.until_done(second))
    assert one.is_done(first)
    texts = [m.text for m in one.messages]
    assert sorted(texts) == ["One.", "Two.", "first", "second"]
    assert texts.index("first") < texts.index("One.")
    assert [m.text for m in two.messages] == texts


@pytest.mark.case(149, 343)
async def test_a_dropped_message_is_rolled_back_at_its_sender_only(serve: Serve, tmp_path: Any) -> None:
    go = asyncio.Event()
    fired: list[str] = []
    cls = assistant(
        ScriptedModel(says("Busy").waits(go).says(".")),
        message_concurrency="drop",
        on_chat_response=lambda self, response: fired.append(response.request_id),
    )
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    first = await one.say("first")
    await asyncio.gather(one.until_text("Busy"), two.until_text("Busy"))
    before = len(one.frames)

    second = await one.say("second", message_id="u2")
    done = await one.until_done(second)
    assert kinds(one, since=before) == ["chat_messages", "done"]
    assert done["outcome"] == "skipped"
    assert done["messageIds"] == ["u2"]
    go.set()
    await asyncio.gather(one.until_done(first), two.until_done(first))
    assert two.responses(second) == []
    assert Database(tmp_path).texts() == ["first", "Busy."]
    await all_over(server.app, cls, "room")
    assert fired == [first]


@pytest.mark.case(149)
async def test_with_latest_the_superseded_sender_alone_is_told_skipped(serve: Serve) -> None:
    go = asyncio.Event()
    fired: list[str] = []
    cls = assistant(
        ScriptedModel(says("One").waits(go).says("."), says("Three.")),
        message_concurrency="latest",
        on_chat_response=lambda self, response: fired.append(response.request_id),
    )
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    first = await one.say("first")
    await asyncio.gather(one.until_text("One"), two.until_text("One"))
    second = await one.say("second")
    await two.until(lambda: "second" in [m.text for m in two.messages])
    third = await two.say("third")
    await one.until(lambda: "third" in [m.text for m in one.messages])
    go.set()
    await asyncio.gather(one.until_done(third), two.until_done(third))
    assert (await one.until_done(second))["outcome"] == "skipped"
    assert two.responses(second) == []
    await all_over(server.app, cls, "room")
    assert fired == [first, third]


async def test_debounce_answers_the_last_of_a_burst(serve: Serve) -> None:
    clock, go = ManualClock(), asyncio.Event()
    model = ScriptedModel(says("Zero").waits(go).says("."), says("All of it."))
    cls = assistant(model, message_concurrency="debounce")
    server = await serve(cls, clock=clock)
    chat = await server.connect(cls)
    await chat.say("zero")
    await chat.until_text("Zero")
    one, two = await chat.say("one"), await chat.say("two")
    await chat.settled()
    go.set()
    assert (await chat.until_done(one))["outcome"] == "skipped"
    await clock.until_waiting()
    await clock.advance(0.75)
    assert (await chat.until_done(two))["outcome"] == "completed"
    assert model.asked == 2
