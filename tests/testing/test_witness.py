"""Readers that remember and wait, and windows that ask as a browser does."""

from __future__ import annotations

import asyncio

import pytest

from everthink.door.chat_request import Dropped
from everthink.journal.feed import TurnAccepted, TurnEnded
from everthink.testing import ScriptedModel, Window, Witness, opens, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio


async def test_a_witness_waits_for_words_and_for_the_end(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Once upon ", "a time."))))
    witness = await Witness.of(app, cls, "room")
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("A story"))
    await witness.until_accepted(1)
    await witness.until_text("Once upon ")
    over = await witness.until_over()
    assert (over.status, witness.text) == ("completed", "Once upon a time.")
    await turn
    assert isinstance(witness.shown[0], TurnAccepted)
    assert witness.over == [over] == [s for s in witness.shown if isinstance(s, TurnEnded)]


async def test_a_witness_that_waits_in_vain_says_what_it_was_shown(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("Hello."))))
    witness = await Witness.of(app, cls)
    await app.agent(cls).save_messages("Hi")
    with pytest.raises(TimeoutError, match=r"TurnEnded.*'Hello\.'"):
        await witness.until_text("Goodbye", within=0.01)


async def test_a_witness_that_left_sees_nothing_more_and_one_that_looks_sees_each(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel(says("one"), says("two"))))
    seen: list[object] = []
    witness = await Witness.of(app, cls, look=seen.append)
    await app.agent(cls).save_messages("1")
    witness.leave()
    await app.agent(cls).save_messages("2")
    assert witness.text == "one"
    assert witness.shown == seen


async def test_a_window_sends_what_it_has_seen_and_keeps_its_tools(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hello."), says("Again."), says("Better."))
    app = await open_app(cls := assistant(model))
    window = await Window.of(app, cls)
    where = {"name": "where", "description": "Where are you?", "parameters": {"type": "object"}}

    await (await window.send("u1", "Hi", client_tools=[where])).result()
    await (await window.send("u2", "And?")).result()
    assert [message.text for message in window.messages] == ["Hi", "Hello.", "And?", "Again."]
    assert [spec.name for spec in model.last_request.tools] == ["where"]

    await (await window.regenerate("r3")).result()
    assert [message.text for message in window.messages] == ["Hi", "Hello.", "And?", "Better."]


async def test_a_window_that_was_refused_forgets_what_was_typed(open_app: OpenApp) -> None:
    may_end = asyncio.Event()
    app = await open_app(cls := assistant(ScriptedModel(opens().waits(may_end)), message_concurrency="drop"))
    window, witness = await Window.of(app, cls), await Witness.of(app, cls)
    first = await window.send("u1", "Wait")
    await witness.until_accepted(1)
    assert await window.try_to_send("u2", "Hello?") == Dropped("u2")
    assert "u2" not in [message.id for message in window.messages]
    with pytest.raises(AssertionError, match="message_concurrency"):
        await window.send("u3", "Hello?")
    may_end.set()
    await first.result()
