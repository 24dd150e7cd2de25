"""Timers whose time has come: in which order they run, and when they run again.

What their failures mean is in test_alarms_failing.py.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Retry
from everthink.current import current_connection
from everthink.errors import StoreUnavailable
from everthink.schedules import alarms
from everthink.store.port import Commit
from everthink.testing.clock import ManualClock
from tests.runtime.conftest import BOTH, Open
from tests.support.agents import live
from tests.support.timers import Diary, Failing, move, quiet, storage
from tests.support.turns import gated_app, record_events

pytestmark = pytest.mark.anyio

NOW = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
ONCE = Retry(max_attempts=1)
AT_ONCE = Retry(base_delay=0.001, max_delay=0.001)
"""Three attempts with no wait that anybody would notice: less than a millisecond is none."""


def says(events: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type.removeprefix("schedule:"), event.payload) for event in events]


# --- on time, in order


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_timer_runs_at_its_time_and_not_before_and_is_gone(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    events = record_events(app, "schedule:*")
    agent = app.agent(cls, "a")
    timer = await agent.schedule(10, "note", {"what": "tea"})

    await move(app, clock, 9.999)
    assert diary.lines == []
    await move(app, clock, 0.001)
    assert diary.lines == [{"what": "tea"}]
    assert (diary.items[0].id, diary.items[0].time, diary.items[0].starts) == (timer.id, timer.time, 1)
    assert await agent.list_schedules() == []
    told = {"callback": "note", "id": timer.id}
    assert says(events) == [("create", told), ("execute", told)]

    await move(app, clock, 1000)
    assert len(diary.lines) == 1


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_what_is_due_runs_in_the_order_of_its_times_one_after_the_other(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    running = 0

    async def slowly(self: Any, payload: Any) -> None:
        nonlocal running
        running += 1
        assert running == 1
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        diary.write(payload)

    app = await start(cls := diary.agent(slowly=slowly))
    agent = app.agent(cls, "a")
    for seconds in (3, 1, 2, 5):
        await agent.schedule(seconds, "slowly", seconds)
    # They became due while nobody was there to run them
    await app.close()
    await clock.advance(60)
    await quiet(await start(cls))
    assert diary.lines == [1, 2, 3, 5]


async def test_a_moment_that_has_passed_is_run_at_once(start: Open, diary: Diary, clock: ManualClock) -> None:
    app = await start(cls := diary.agent())
    agent = app.agent(cls, "a")
    await agent.schedule(NOW - timedelta(days=1), "note", "yesterday")
    await agent.schedule(0, "note", "now")
    await quiet(app)
    assert diary.lines == ["yesterday", "now"]


@pytest.mark.agent_case(9, 10)
async def test_a_callback_knows_its_agent_and_runs_after_on_start(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    async def on_start(self: Any, props: Any = None) -> None:
        await asyncio.sleep(0)
        diary.write("started")

    async def remember(self: Any) -> None:
        diary.write((self.name, self.id))

    cls = diary.agent(on_start=on_start, remember=remember)
    app = await start(cls)
    await app.agent(cls, "rooms/7").schedule(10, "remember")
    await app.close()
    diary.lines.clear()
    await clock.advance(10)

    await quiet(await start(cls))
    assert diary.lines == ["started", ("rooms/7", "Keeper/rooms/7")]


async def test_a_callback_belongs_to_no_client_and_no_turn(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    class Reader:
        is_readonly = True

    async def change(self: Any) -> None:
        await self.set_state({"by": "timer"})
        diary.write((current_connection.get(), self.state))

    app = await start(cls := diary.agent(change=change))
    agent = await live(app.agent(cls, "a"))
    current_connection.set(Reader())
    await agent.schedule(0, "change")
    await quiet(app)
    await agent.queue("change")
    await diary.until(2)
    assert diary.lines == [(None, {"by": "timer"})] * 2


async def test_a_callback_may_schedule_and_cancel(start: Open, diary: Diary, clock: ManualClock) -> None:
    async def first(self: Any, payload: Any) -> None:
        diary.write("first")
        await self.cancel_schedule(payload["cancel"])
        await self.schedule(0, "note", "at once")
        await self.schedule(5, "note", "later")

    app = await start(cls := diary.agent(first=first))
    agent = app.agent(cls, "a")
    second = await agent.schedule(2, "note", "second")
    await agent.schedule(1, "first", {"cancel": second.id})
    await move(app, clock, 3)
    assert diary.lines == ["first", "at once"]
    await move(app, clock, 5)
    assert diary.lines == ["first", "at once", "later"]


async def test_what_a_callback_cancels_in_the_same_pass_does_not_run(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    async def stop_all(self: Any) -> None:
        for timer in await self.list_schedules():
            await self.cancel_schedule(timer.id)
        diary.write("stopped")

    app = await start(cls := diary.agent(stop_all=stop_all))
    agent = app.agent(cls, "a")
    await agent.schedule(1, "stop_all")
    await agent.schedule(2, "note", "never")
    await agent.schedule_every(3, "note", "never")
    await app.close()
    await clock.advance(10)
    app = await start(cls)
    await quiet(app)
    assert diary.lines == ["stopped"]
    await move(app, clock, 1000)
    assert diary.lines == ["stopped"]


# --- again and again


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_an_interval_is_measured_from_the_end_of_its_callback_and_never_catches_up(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    agent = app.agent(cls, "a")
    timer = await agent.schedule_every(60, "wait", "tick")
    await clock.advance(60)
    await diary.until(1)
    await clock.advance(45)  # the callback takes that long
    diary.gate.set()
    await quiet(app)
    assert (await agent.get_schedule(timer.id)).time == NOW + timedelta(seconds=60 + 45 + 60)
    await move(app, clock, 59.999)
    assert diary.lines == ["tick"]
    await move(app, clock, 0.001)
    assert diary.lines == ["tick"] * 2

    # An hour in which nobody was there is made up for once
    await app.close()
    await clock.advance(3600)
    await quiet(await start(cls))
    assert diary.lines == ["tick"] * 3


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_cron_goes_on_to_its_next_time_and_is_not_made_up_for(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    agent = app.agent(cls, "a")
    timer = await agent.schedule("*/10 * * * *", "note", "tick")
    await move(app, clock, 600)
    assert diary.lines == ["tick"]
    assert (await agent.get_schedule(timer.id)).time == NOW + timedelta(minutes=20)

    await app.close()
    await clock.advance(3600 + 61)
    app = await start(cls)
    await quiet(app)
    assert diary.lines == ["tick"] * 2
    assert diary.items[-1].time == NOW + timedelta(minutes=20)  # the moment it was meant for
    assert (await app.agent(cls, "a").get_schedule(timer.id)).time == NOW + timedelta(minutes=80)


async def test_a_clock_that_is_set_back_gives_no_time_of_a_cron_twice(start: Open, diary: Diary) -> None:
    class Wound(ManualClock):
        """A clock somebody sets."""

        set_by = 0

        def now_ms(self) -> int:
            return super().now_ms() + self.set_by

    clock = Wound()
    app = await start(cls := diary.agent(), clock=clock)
    agent = app.agent(cls, "a")
    timer = await agent.schedule("0 9 * * *", "wait", "tick")
    await clock.advance(3600)
    await diary.until(1)
    clock.set_by = -1_800_000  # half past eight again, while it runs
    diary.gate.set()
    await quiet(app)
    assert (await agent.get_schedule(timer.id)).time == NOW + timedelta(days=1, hours=1)
    await move(app, clock, 3600)
    assert diary.lines == ["tick"]
    # And one that jumps ahead is noticed within a minute
    clock.set_by = 2 * 86_400_000
    await move(app, clock, 60)
    assert diary.lines == ["tick"] * 2


@pytest.mark.agent_case(137)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_an_interval_outlives_a_callback_that_fails(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(ValueError("no"))
    app = await start(cls := diary.agent())
    events = record_events(app, "schedule:error")
    agent = app.agent(cls, "a")
    timer = await agent.schedule_every(60, "fail", 1, retry=ONCE)
    for runs in (1, 2, 3):
        await move(app, clock, 60)
        assert len(diary.lines) == runs
    assert [str(error) for error in diary.errors] == ["no"] * 3
    told = {"callback": "fail", "id": timer.id, "error": "no", "attempts": 1}
    assert says(events) == [("error", told)] * 3
    rows = await storage(app, cls, "a", "UPDATE alarms SET starts = starts RETURNING started_at, starts")
    assert [tuple(row) for row in rows] == [(None, 0)]


@pytest.mark.agent_case(138)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_an_interval_that_somebody_began_is_passed_over_until_it_counts_as_hung(
    start: Open, diary: Diary, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = await start(cls := diary.agent(hung_schedule_timeout=20.0))
    timer = await app.agent(cls, "a").schedule_every(10, "note", "tick")
    # The process began it five seconds ago and died
    await clock.advance(5)
    await storage(app, cls, "a", f"UPDATE alarms SET started_at = {clock.now_ms()}, starts = 1")
    await app.close()
    await clock.advance(5)

    app = await start(cls)
    await quiet(app)
    assert diary.lines == []
    assert "passed over" in caplog.text
    await move(app, clock, 14.999)
    assert diary.lines == []
    await move(app, clock, 0.001)
    assert diary.lines == ["tick"]
    assert diary.items[0].starts == 2  # it may have run before
    assert (await app.agent(cls, "a").get_schedule(timer.id)).starts == 0


@pytest.mark.agent_case(138)
async def test_an_interval_whose_start_is_unknown_is_forced(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    await app.agent(cls, "a").schedule_every(10, "note", "tick")
    await storage(app, cls, "a", "UPDATE alarms SET started_at = 0")
    await move(app, clock, 10)
    assert diary.lines == ["tick"]


# --- many of them


@pytest.mark.agent_case(145)
@pytest.mark.parametrize("count", [9, 10, 25])
async def test_ten_due_one_shots_of_one_callback_are_warned_about_and_still_run(
    start: Open, url: str, diary: Diary, clock: ManualClock, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    app = await start(cls := diary.agent())
    agent = app.agent(cls, "a")
    for number in range(count):
        await agent.schedule((number + 1) / 100, "note", number)
    await agent.schedule_every(1, "note", "rhythm")
    await app.close()
    await clock.advance(5)

    app = App(cls, store=url, clock=clock, grace=0.0)
    events = record_events(app, "schedule:duplicate_warning")
    async with app:
        await quiet(app)
    assert diary.lines == [*range(count), "rhythm"]
    if count < 10:
        assert (events, "due at once" in caplog.text) == ([], False)
    else:
        ((_, told),) = says(events)
        assert told == {"callback": "note", "count": count, "type": "one-shot"}
        assert f"{count} timers for 'note'" in caplog.text


async def test_more_timers_than_one_look_takes_all_run(
    start: Open, diary: Diary, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alarms, "BATCH", 10)
    app = await start(cls := diary.agent())
    agent = await live(app.agent(cls, "a"))
    await asyncio.gather(*(agent.schedule(1, "note", n) for n in range(33)))
    await move(app, clock, 1)
    assert sorted(diary.lines) == list(range(33))
    assert await agent.list_schedules() == []


# --- stopping


@pytest.mark.agent_case(13)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_an_interval_runs_on_the_agent_that_takes_the_place_of_an_evicted_one(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    async def whoami(self: Any) -> None:
        diary.write(id(self))

    app = await start(cls := diary.agent(whoami=whoami))
    first = await live(app.agent(cls, "a"))
    await first.schedule_every(60, "whoami")
    await move(app, clock, 60)
    await app.evict(cls, "a")
    await move(app, clock, 60)
    assert diary.lines[0] == id(first)
    assert diary.lines[1] != id(first)
    assert len(diary.lines) == 2


@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize("kind", ["one-shot", "interval", "cron"])
async def test_a_callback_that_is_stopped_with_its_process_runs_again_in_the_next(
    start: Open, diary: Diary, clock: ManualClock, kind: str
) -> None:
    app = await start(cls := diary.agent())
    agent = app.agent(cls, "a")
    if kind == "interval":
        await agent.schedule_every(60, "wait", kind)
    else:
        await agent.schedule("* * * * *" if kind == "cron" else 60, "wait", kind)
    await clock.advance(60)
    await diary.until(1)
    await app.close()

    # At once: nobody takes it for running
    diary.gate.set()
    await quiet(await start(cls))
    assert diary.lines == [kind, kind]


async def test_a_callback_gets_the_grace_period_and_nothing_is_begun_meanwhile(
    start: Open, diary: Diary, clock: ManualClock, url: str
) -> None:
    app = App(cls := diary.agent(), store=url, clock=clock, grace=30.0)
    await app.open()
    agent = app.agent(cls, "a")
    await agent.schedule(1, "wait", "long")
    await agent.schedule(1.5, "note", "next")
    await clock.advance(2)
    await diary.until(1)
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    diary.gate.set()
    await closing

    app = await start(cls)
    await quiet(app)
    assert diary.lines == ["long", "next"]  # the first one was done and is not done again
    assert await app.agent(cls, "a").list_schedules() == []


async def test_what_has_run_does_not_run_again_because_the_database_was_away(
    tmp_path: Path, diary: Diary, clock: ManualClock
) -> None:
    is_away = True

    def away(commit: Commit) -> Exception | None:
        return (
            StoreUnavailable("away") if is_away and commit[0].sql.startswith("DELETE FROM alarms") else None
        )

    cls = diary.agent()
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        agent = app.agent(cls, "a")
        await agent.schedule(1, "note", "once")
        store.refuse(away)
        await move(app, clock, 1)
        assert diary.lines == ["once"]
        for _ in range(3):
            await move(app, clock, 10)
        assert diary.lines == ["once"]
        is_away = False
        await move(app, clock, 300)
        assert diary.lines == ["once"]
        assert await agent.list_schedules() == []


async def test_one_commit_per_timer_ends_the_last_and_begins_the_next(
    tmp_path: Path, diary: Diary, clock: ManualClock
) -> None:
    cls = diary.agent()
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        for number in range(10):
            await app.agent(cls, "a").schedule(1 + number / 10, "note", number)
        await app.agent(cls, "a").schedule(0.5, "wait", "first")
        await clock.advance(0.5)
        await diary.until(1)
        await clock.advance(5)  # while the first one runs the others become due
        before = len(store.commits)
        diary.gate.set()
        await quiet(app)
        assert diary.lines[1:] == list(range(10))
        assert len(store.commits) - before == 12  # its end; the others; the end of the last


async def test_a_timer_that_cannot_be_marked_as_begun_does_not_begin(
    tmp_path: Path, diary: Diary, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    is_away = True

    def away(commit: Commit) -> Exception | None:
        return StoreUnavailable("away") if is_away and commit[0].sql.startswith("UPDATE alarms") else None

    cls = diary.agent()
    with caplog.at_level(logging.WARNING):
        async with gated_app(tmp_path, cls, clock=clock) as (app, store):
            await app.agent(cls, "a").schedule(1, "note", "once")
            store.refuse(away)
            await move(app, clock, 2)
            assert diary.lines == []
            is_away = False
            await move(app, clock, 5)
            assert diary.lines == ["once"]
    assert "could not do what was due" in caplog.text
