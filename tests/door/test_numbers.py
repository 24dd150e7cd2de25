"""Turns are numbered from their rows: in the order of acceptance, whatever clocks say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink.journal.turn_rows import all_turns
from everthink.store.port import Statement
from everthink.testing import ManualClock, ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.cuts import Reports
from tests.support.turns import Database, all_over

pytestmark = pytest.mark.anyio

NOON = 1_800_000_000_000
AN_HOUR = 3_600_000


async def numbers(agent: Any) -> dict[str, int]:
    return {turn.request_id: turn.seq for turn in await all_turns((await live(agent))._home.store)}


async def test_turns_keep_their_order_when_the_clock_of_another_machine_is_behind(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given an agent that was cut off with one turn done, one in the middle and one that waits
    model = ScriptedModel(
        says("One."), says("Half ").then_hangs(), says("Two."), says("Three."), says("Four.")
    )
    cls = assistant(model)
    app = await open_app(cls, clock=ManualClock(NOON))
    agent = app.agent(cls, "room")
    await agent.save_messages("first")
    for text in ("second", "third"):
        await agent.submit_messages(text, submission_id=text)
    await model.until_silent()
    before = await numbers(agent)
    assert list(before.values()) == [1, 2, 3]
    await app.close()

    # When it goes on where the clock is an hour behind, and somebody sends more at once
    app = await open_app(cls, clock=ManualClock(NOON - AN_HOUR))
    agent = app.agent(cls, "room")
    await agent.submit_messages("fourth", submission_id="fourth")
    await all_over(app, cls, "room")

    # Then what came later has the greater number, and ran later
    assert await numbers(agent) == {**before, "fourth": 4}
    asked = [text for text in Database(tmp_path).texts() if text in ("first", "second", "third", "fourth")]
    assert asked == ["first", "second", "third", "fourth"]


async def test_numbers_go_on_from_those_that_a_clock_has_made(open_app: OpenApp) -> None:
    # Given rows whose numbers were made from the time
    cls = assistant(ScriptedModel(says("One."), says("Two.")))
    app = await open_app(cls)
    agent = app.agent(cls, "room")
    await agent.save_messages("first")
    (before,) = (await numbers(agent)).values()
    store = (await live(agent))._home.store
    await store.apply([Statement("UPDATE turns SET seq = ? WHERE agent = :agent", (NOON << 10,))])
    await app.close()

    # When the agent goes on
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("second")

    # Then the next number is above them
    assert before == 1
    assert sorted((await numbers(app.agent(cls, "room"))).values()) == [NOON << 10, (NOON << 10) + 1]


async def test_what_the_start_code_sends_runs_once(open_app: OpenApp, tmp_path: Path) -> None:
    # Given start code that sends turns, the first of which runs while the agent still starts
    go = asyncio.Event()
    model = ScriptedModel(says("A ").waits(go).says("whole."), says("B"), says("C"))

    async def on_start(self: Any, props: Any = None) -> None:
        for text in ("one", "two", "three"):
            await self.submit_messages(text, submission_id=text)

    cls = assistant(model, on_start=on_start)
    app = await open_app(cls)
    recoveries = Reports(app)
    await live(app.agent(cls, "room"))
    go.set()
    await all_over(app, cls, "room")

    # Then each is answered once, and nothing counts as cut off
    assert Database(tmp_path).texts() == ["one", "A whole.", "two", "B", "three", "C"]
    assert (len(model.requests), recoveries.names) == (3, [])
