"""Timers that fail: which failures use them up, which keep them, and who is told."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from everthink import Retry, Think
from everthink.errors import LeaseLost, StoreUnavailable, TurnInterrupted
from everthink.testing.clock import ManualClock
from tests.runtime.conftest import BOTH, Open
from tests.support.timers import Diary, Failing, move, quiet, storage
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio

NOW = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
ONCE = Retry(max_attempts=1)
AT_ONCE = Retry(base_delay=0.001, max_delay=0.001)
"""Three attempts with no wait that anybody would notice: less than a millisecond is none."""


def says(events: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(event.type.removeprefix("schedule:"), event.payload) for event in events]


# --- failures of the application


@pytest.mark.agent_case(147)
@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize(
    "error",
    [ValueError("no"), RuntimeError("was interrupted because the process is stopping: upgrade"), KeyError()],
)
async def test_an_ordinary_error_uses_up_a_one_shot_after_its_attempts(
    start: Open, diary: Diary, clock: ManualClock, error: Exception
) -> None:
    diary.outcome = Failing(error)
    app = await start(cls := diary.agent(retry_options=AT_ONCE))
    events = record_events(app, "schedule:*")
    agent = app.agent(cls, "a")
    timer = await agent.schedule(1, "fail", "x")
    await move(app, clock, 1)

    assert diary.lines == ["x"] * 3
    assert diary.errors == [error]
    assert await agent.list_schedules() == []
    told = {"callback": "fail", "id": timer.id}
    assert says(events)[1:] == [
        ("execute", told),
        ("retry", told | {"attempt": 2, "maxAttempts": 3}),
        ("retry", told | {"attempt": 3, "maxAttempts": 3}),
        ("error", told | {"error": str(error) or type(error).__name__, "attempts": 3}),
    ]


async def test_a_callback_that_succeeds_in_the_end_is_no_failure(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(ValueError("no"), ValueError("no"), None)
    app = await start(cls := diary.agent(retry_options=AT_ONCE))
    await app.agent(cls, "a").schedule(1, "fail", "x")
    await move(app, clock, 1)
    assert (diary.lines, diary.errors) == (["x"] * 3, [])


async def test_attempts_wait_on_the_clock_as_their_options_say(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(ValueError("no"), None)
    app = await start(cls := diary.agent())
    await app.agent(cls, "a").schedule(1, "fail", "x", retry=Retry(2, 3600.0, 3600.0))
    await clock.advance(1)
    await diary.until(1)
    # It waits between nothing and an hour, whatever the luck
    assert diary.lines == ["x"]
    await move(app, clock, 3600)
    assert diary.lines == ["x", "x"]


async def test_a_failure_does_not_stop_what_is_due_behind_it(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(ValueError("no"))
    app = await start(cls := diary.agent(retry_options=ONCE))
    agent = app.agent(cls, "a")
    await agent.schedule(1, "fail", "bad")
    await agent.schedule(2, "note", "good")
    await app.close()
    await clock.advance(5)
    await quiet(await start(cls))
    assert diary.lines == ["bad", "good"]


async def test_what_on_error_raises_is_logged_and_changes_nothing(
    start: Open, diary: Diary, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_error(self: Any, error: BaseException) -> None:
        raise RuntimeError("the hook is broken too")

    diary.outcome = Failing(ValueError("no"))
    app = await start(cls := diary.agent(on_error=on_error, retry_options=ONCE))
    agent = app.agent(cls, "a")
    await agent.schedule(1, "fail", "x")
    await move(app, clock, 1)
    assert "the hook is broken too" in caplog.text
    assert await agent.list_schedules() == []


async def test_without_an_on_error_of_your_own_the_failure_is_logged(
    start: Open, diary: Diary, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:

    class Plain(Think):
        retry_options = ONCE

        def remind(self) -> None:
            raise ValueError("the tea is cold")

    app = await start(Plain)
    await app.agent(Plain, "a").schedule(1, "remind")
    await move(app, clock, 1)
    assert "Plain/a" in caplog.text
    assert "the tea is cold" in caplog.text


async def test_a_method_that_is_gone_takes_its_timer_along(
    start: Open, diary: Diary, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def old(self: Any) -> None: ...

    app = await start(before := diary.agent(old=old))
    await app.agent(before, "a").schedule(1, "old")
    await app.agent(before, "a").schedule(2, "note", "still here")
    await app.close()
    await clock.advance(5)

    app = await start(after := diary.agent())
    await quiet(app)
    assert "no method 'old'" in caplog.text
    assert diary.lines == ["still here"]
    assert (await app.agent(after, "a").list_schedules(), diary.errors) == ([], [])


async def test_a_payload_that_cannot_be_read_is_reported_and_does_not_stop_the_rest(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    events = record_events(app, "schedule:error")
    agent = app.agent(cls, "a")
    broken = await agent.schedule(1, "note", "x")
    await agent.schedule(1, "note", "whole")
    await storage(app, cls, "a", f"UPDATE alarms SET payload = '{{oops' WHERE id = '{broken.id}'")
    await move(app, clock, 1)
    assert diary.lines == ["whole"]
    ((_, told),) = says(events)
    assert (told["id"], told["attempts"]) == (broken.id, 0)
    assert len(diary.errors) == 1
    assert await agent.list_schedules() == []


async def test_something_cancelled_inside_a_callback_is_an_ordinary_failure(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    async def careless(self: Any) -> None:
        diary.write("tried")
        inner = asyncio.ensure_future(asyncio.sleep(3600))
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    app = await start(cls := diary.agent(careless=careless))
    agent = app.agent(cls, "a")
    await agent.schedule(1, "careless")
    await agent.schedule(2, "note", "next")
    await move(app, clock, 2)
    assert diary.lines == ["tried", "next"]
    assert [type(error) for error in diary.errors] == [asyncio.CancelledError]
    assert await agent.list_schedules() == []


# --- failures around the application


@pytest.mark.agent_case(146)
@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize("error", [LeaseLost("taken over"), TurnInterrupted("r1")])
async def test_a_one_shot_cut_off_by_a_restart_is_kept_and_burns_no_attempts(
    start: Open, diary: Diary, clock: ManualClock, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    diary.outcome = Failing(error, None)
    app = await start(cls := diary.agent(retry_options=AT_ONCE))
    events = record_events(app, "schedule:*")
    agent = app.agent(cls, "a")
    timer = await agent.schedule(1, "fail", "x")
    await agent.schedule(2, "note", "behind it")
    await clock.advance(1.5)
    await quiet(app)

    # The pass failed; nobody was told that the timer did
    assert diary.lines == ["x"]
    assert diary.errors == []
    assert [kind for kind, _ in says(events)] == ["create", "create", "execute"]
    assert "could not do what was due" in caplog.text
    assert (await agent.get_schedule(timer.id)).starts == 1

    # It is tried again after a moment, as a whole
    await move(app, clock, 1)
    assert diary.lines == ["x", "x", "behind it"]
    assert await agent.list_schedules() == []


class Flaky(Exception):
    """An error that says of itself that it passes."""

    retryable = True


def wrapped() -> Exception:
    error = RuntimeError("could not save")
    error.__cause__ = StoreUnavailable("away")
    return error


@pytest.mark.agent_case(148, 149)
@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize("error", [StoreUnavailable("away"), ConnectionResetError(), Flaky(), wrapped()])
async def test_a_failure_that_passes_is_tried_in_the_pass_first_and_then_keeps_the_one_shot(
    start: Open, diary: Diary, clock: ManualClock, error: Exception
) -> None:
    diary.outcome = Failing(error, error, error, None)
    app = await start(cls := diary.agent(retry_options=AT_ONCE))
    events = record_events(app, "schedule:*")
    agent = app.agent(cls, "a")
    await agent.schedule(1, "fail", "x")
    await move(app, clock, 1)
    assert len(diary.lines) == 3
    assert [kind for kind, _ in says(events)] == ["create", "execute", "retry", "retry"]
    assert (len(await agent.list_schedules()), diary.errors) == (1, [])
    await move(app, clock, 1)
    assert len(diary.lines) == 4
    assert await agent.list_schedules() == []


@pytest.mark.agent_case(149, 150)
async def test_if_the_last_error_is_the_application_s_own_the_row_is_used_up(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(StoreUnavailable("away"), StoreUnavailable("away"), ValueError("mine"))
    app = await start(cls := diary.agent(retry_options=AT_ONCE))
    agent = app.agent(cls, "a")
    await agent.schedule(1, "fail", "x")
    await move(app, clock, 1)
    assert (len(diary.lines), [str(error) for error in diary.errors]) == (3, ["mine"])
    assert await agent.list_schedules() == []


async def test_a_rhythm_goes_on_whatever_failed(start: Open, diary: Diary, clock: ManualClock) -> None:
    diary.outcome = Failing(StoreUnavailable("away"))
    app = await start(cls := diary.agent(retry_options=ONCE))
    agent = app.agent(cls, "a")
    await agent.schedule_every(60, "fail", "interval")
    await agent.schedule("* * * * *", "fail", "cron")
    for _ in range(3):
        await move(app, clock, 60)
    assert sorted(diary.lines) == ["cron"] * 3 + ["interval"] * 3
    assert len(diary.errors) == 6


async def test_a_pass_that_keeps_failing_is_tried_ever_later(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(LeaseLost("taken over"))
    app = await start(cls := diary.agent())
    await app.agent(cls, "a").schedule(1, "fail", "x")
    times: list[float] = []
    for _ in range(1200):
        await move(app, clock, 1)
        times += [clock.monotonic()] * (len(diary.lines) - len(times))
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


# --- running out of memory


@pytest.mark.agent_case(151, 152)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_one_shot_that_runs_out_of_memory_is_put_off_and_in_the_end_let_go(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(MemoryError("too much"))
    app = await start(cls := diary.agent())
    events = record_events(app, "alarm:memory_limit_reset", "schedule:error")
    agent = app.agent(cls, "a")
    timer = await agent.schedule(1, "fail", "x")
    await agent.schedule(1, "note", "small")

    await move(app, clock, 1)
    assert sorted(diary.lines) == ["small", "x"]  # not tried again at once, and it stops nobody
    assert diary.errors == []
    await move(app, clock, 29.999)
    assert len(diary.lines) == 2
    await move(app, clock, 0.001)
    assert len(diary.lines) == 3
    await move(app, clock, 60)
    assert len(diary.lines) == 4
    assert await agent.get_schedule(timer.id) is None
    assert [type(error) for error in diary.errors] == [MemoryError]
    struck = {"limit": 3, "error": "too much"}
    assert [(e.type, e.payload) for e in events] == [
        ("alarm:memory_limit_reset", struck | {"strikes": 1, "sealed": False}),
        ("alarm:memory_limit_reset", struck | {"strikes": 2, "sealed": False}),
        ("alarm:memory_limit_reset", struck | {"strikes": 3, "sealed": True}),
        ("schedule:error", {"callback": "fail", "id": timer.id, "error": "too much", "attempts": 1}),
    ]


@pytest.mark.agent_case(151, 153)
async def test_strikes_survive_a_restart_and_other_errors_are_none(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(MemoryError())
    app = await start(cls := diary.agent(max_alarm_memory_limit_strikes=2))
    agent = app.agent(cls, "a")
    timer = await agent.schedule(1, "fail", "x")
    await move(app, clock, 1)
    await app.close()
    await clock.advance(30)

    # Something else goes wrong on the way: it neither counts nor forgets
    diary.outcome = Failing(LeaseLost("gone"), MemoryError())
    app = await start(cls)
    await quiet(app)
    assert await app.agent(cls, "a").get_schedule(timer.id) is not None
    await move(app, clock, 1)
    assert await app.agent(cls, "a").get_schedule(timer.id) is None


@pytest.mark.agent_case(153)
async def test_a_clean_pass_forgets_strikes(start: Open, diary: Diary, clock: ManualClock) -> None:
    app = await start(cls := diary.agent())
    timer = await app.agent(cls, "a").schedule("* * * * *", "note", "x")
    await storage(app, cls, "a", "UPDATE alarms SET strikes = 2")
    await move(app, clock, 60)
    rows = await storage(app, cls, "a", "UPDATE alarms SET starts = 0 RETURNING id, strikes")
    assert [tuple(row) for row in rows] == [(timer.id, 0)]


async def test_a_rhythm_that_runs_out_of_memory_goes_on(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(MemoryError())
    app = await start(cls := diary.agent())
    await app.agent(cls, "a").schedule_every(60, "fail", "x")
    for runs in range(1, 6):
        await move(app, clock, 60)
        assert len(diary.lines) == runs
    assert len(diary.errors) == 5
