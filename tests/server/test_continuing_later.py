"""The wish to go on after an answer outlives the process that heard it, and nothing else does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink.testing import says

from ..support.browser import CONTINUE, ONE_CALL, TWO_CALLS, Asked, outcome
from ..support.turns import Database, all_over, home_of
from .conftest import Serve

pytestmark = pytest.mark.anyio

NO_SIGNAL: Any = {"state": "output-error", "errorText": "no signal", "autoContinue": False}


def wishes(folder: Path) -> list[dict[str, Any]]:
    return Database(folder).rows("SELECT value FROM kv WHERE name = 'continuation'")


@pytest.mark.case(293)
async def test_after_a_restart_an_answer_that_asks_for_nothing_completes_the_batch(serve: Serve) -> None:
    # Given a batch of which one answer is in, and asked to go on
    asked = await Asked.make(serve, TWO_CALLS, says("One failed."))
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")

    # When the agent is evicted and the rest is a failure that asks for nothing
    await asked.server.app.evict(asked.cls, "room")
    again = await asked.server.connect(asked.cls, id="one")
    await again.until_frame("mcp_servers")
    await asked.quiet()
    await again.answer("c2", **NO_SIGNAL)
    await again.until_frame("message_updated")
    await asked.quiet()

    # Then the agent goes on, and tells the tab that asked first
    offer = await again.until_frame("stream_resuming")
    await again.ack(offer["id"])
    await again.until_done(offer["id"])
    assert again.text == "One failed."
    assert outcome(again, "c2")["errorText"] == "no signal"
    assert asked.model.asked == 2


async def test_a_restart_right_after_the_last_answer_loses_nothing(serve: Serve) -> None:
    asked = await Asked.make(serve, ONE_CALL, says("You are in Paris."))
    await asked.one.answer("c1", "Paris", **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.server.app.evict(asked.cls, "room")

    # Whoever wakes the agent next, nobody has to answer or ask again
    home = await home_of(asked.server.app, asked.cls, "room")
    await asked.quiet()
    while home._tasks:
        await asyncio.wait(home._tasks)
    await all_over(asked.server.app, asked.cls, "room")
    messages = await asked.server.app.agent(asked.cls, "room").get_messages()
    assert [m.text for m in messages] == ["Where am I?", "", "You are in Paris."]
    assert asked.model.asked == 2


async def test_the_wish_is_kept_with_the_answer_and_forgotten_with_the_turn(
    serve: Serve, tmp_path: Path
) -> None:
    asked = await Asked.make(serve, TWO_CALLS, says("Both."))
    await asked.one.answer("c1", 1)
    await asked.one.until_frame("message_updated")
    assert wishes(tmp_path) == []
    await asked.one.answer("nobody's", 1, **CONTINUE)
    await asked.one.settled()
    assert wishes(tmp_path) == []
    await asked.one.answer("c2", 2, **CONTINUE)
    await asked.one.until_frame("message_updated", count=2)
    assert len(wishes(tmp_path)) == 1
    await asked.quiet()
    await asked.two.until_text("Both.")
    assert wishes(tmp_path) == []


async def test_a_new_message_takes_the_place_of_answers_that_never_came(serve: Serve, tmp_path: Path) -> None:
    # Given a batch that waits for its second answer, over a restart
    asked = await Asked.make(serve, TWO_CALLS, says("Never mind, then."))
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.server.app.evict(asked.cls, "room")
    again = await asked.server.connect(asked.cls, id="one")
    await again.until_frame("mcp_servers")
    await asked.quiet()
    assert len(wishes(tmp_path)) == 1

    # When the person says something else instead
    await again.until_done(await again.say("Forget it."))
    await all_over(asked.server.app, asked.cls, "room")
    await again.settled()

    # Then that is answered once, and the agent does not go on by itself afterwards
    assert again.text == "Never mind, then."
    assert asked.model.asked == 2
    assert asked.clock.waiting == 0
    assert (await home_of(asked.server.app, asked.cls, "room")).chat.continuations.pending is None
    assert wishes(tmp_path) == []


@pytest.mark.parametrize("end", ["reset_turn_state", "clear_messages"])
async def test_a_reset_forgets_the_wish_and_tells_who_waits(serve: Serve, tmp_path: Path, end: str) -> None:
    asked = await Asked.make(serve, ONE_CALL)
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.probe("p")
    await asked.one.until_frame("stream_pending")
    await getattr(asked.server.app.agent(asked.cls, "room"), end)()
    assert await asked.one.until_frame("stream_resume_none") == {"type": "cf_agent_stream_resume_none"}
    assert wishes(tmp_path) == []
    await asked.clock.advance(1)
    await asked.one.settled()
    assert asked.model.asked == 1
