"""The chunks of turns that are over are dropped after a while; those of turns that are not never are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import StoreUnavailable
from everthink.testing import ManualClock, ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.cuts import cut, pull
from tests.support.turns import Database, all_over, gated_app

pytestmark = pytest.mark.anyio

GRACE = 600.0


async def pass_time(app: App, clock: ManualClock, seconds: float) -> None:
    """Let time pass, and what it sets off come to its end."""
    directory: Any = await app.open()
    left = seconds
    while left > 0:
        await clock.advance(min(left, GRACE / 2))
        left -= GRACE / 2
        if directory._sweeping is not None:
            await asyncio.wait([directory._sweeping])


def timers(clock: ManualClock) -> int:
    """How many clean-ups are armed."""
    return sum(
        alarm.callback is not None and alarm.callback.__name__ == "_begin_tidying"  # type: ignore[attr-defined]
        for _, _, alarm in clock._alarms
    )


@pytest.mark.case(540)
async def test_one_clean_up_is_armed_however_many_turns_and_agents_there_are(open_app: OpenApp) -> None:
    clock = ManualClock()
    app = await open_app(cls := assistant(ScriptedModel(*[says("Hello.")] * 6)), clock=clock)
    assert timers(clock) == 0
    for name in ("one", "two", "three"):
        for _ in range(2):
            await app.agent(cls, name).save_messages("Hi")
            assert timers(clock) == 1


@pytest.mark.case(541, 544)
async def test_old_chunks_go_without_another_turn_and_recent_ones_stay(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given an agent whose turn ended, and one whose turn ended much later
    clock = ManualClock()
    app = await open_app(cls := assistant(ScriptedModel(says("Old."), says("New."))), clock=clock)
    await app.agent(cls, "old").save_messages("Hi")
    await pass_time(app, clock, GRACE + 10)
    await app.agent(cls, "new").save_messages("Hi")
    assert {row["agent"] for row in Database(tmp_path).segments()} == {"Assistant/old", "Assistant/new"}

    # When time passes and nothing else happens, then the one goes first, then the other
    await pass_time(app, clock, GRACE)
    assert {row["agent"] for row in Database(tmp_path).segments()} == {"Assistant/new"}
    await pass_time(app, clock, 2 * GRACE)
    assert Database(tmp_path).segments() == []
    # and the answers are there
    assert sorted(Database(tmp_path).texts()) == ["Hi", "Hi", "New.", "Old."]


@pytest.mark.case(541)
async def test_recent_chunks_survive_a_clean_up(open_app: OpenApp, tmp_path: Path) -> None:
    clock = ManualClock()
    app = await open_app(cls := assistant(ScriptedModel(says("Hello."))), clock=clock)
    await live(app.agent(cls, "room"))
    await clock.advance(GRACE - 1)
    await app.agent(cls, "room").save_messages("Hi")
    kept = Database(tmp_path).segments()
    await pass_time(app, clock, 2)
    assert Database(tmp_path).segments() == kept != []


@pytest.mark.case(544)
async def test_it_comes_again_only_while_somebody_lives_or_something_is_left(
    open_app: OpenApp, tmp_path: Path
) -> None:
    clock = ManualClock()
    app = await open_app(cls := assistant(ScriptedModel(says("Hello."))), clock=clock)
    await app.agent(cls, "room").save_messages("Hi")
    await pull(app, cls)

    # Its agent is gone; what is left of it goes too, and then nothing is armed
    await pass_time(app, clock, 3 * GRACE)
    assert Database(tmp_path).segments() == []
    assert timers(clock) == 0
    await live(app.agent(cls, "room"))
    assert timers(clock) == 1


@pytest.mark.case(542, 543)
async def test_the_chunks_of_a_turn_that_is_open_are_kept_however_old_they_are(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that was cut off, whose agent nobody reaches for a day
    clock = ManualClock()
    go = asyncio.Event()
    model = ScriptedModel(says("Half ").then_hangs(), says("who").waits(go).says("le."))
    app = await open_app(cls := assistant(model, model_timeout=0), clock=clock)
    await app.agent(cls, "room").submit_messages("Hi")
    await model.until_silent()
    await pull(app, cls)
    kept = Database(tmp_path).segments()
    await pass_time(app, clock, 86_400)
    assert Database(tmp_path).segments() == kept != []

    # When it goes on, very slowly
    await cut(app, cls)
    await model.until_silent()
    await pass_time(app, clock, 7200)
    assert Database(tmp_path).segments()[: len(kept)] == kept

    # Then nothing of it was lost
    go.set()
    await all_over(app, cls, "room")
    assert Database(tmp_path).texts() == ["Hi", "Half whole."]
    await pass_time(app, clock, 3 * GRACE)
    assert Database(tmp_path).segments() == []


@pytest.mark.case(544)
async def test_a_clean_up_that_fails_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    cls: type[Think] = assistant(ScriptedModel(says("Hello.")))
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        await app.agent(cls, "room").save_messages("Hi")
        store.refuse(lambda commit: StoreUnavailable("The database is gone."))
        await pass_time(app, clock, 2 * GRACE)
        assert "could not be dropped" in caplog.text
        assert Database(tmp_path).segments() != []
        store.refuse(lambda commit: None)
        await pass_time(app, clock, GRACE)
        assert Database(tmp_path).segments() == []
