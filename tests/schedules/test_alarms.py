"""Timers: what may be scheduled, kept once, looked up, cancelled.

How they run is in test_alarms_running.py.
"""

from __future__ import annotations

import asyncio
import logging
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink import Retry, Think, tool
from everthink.clock import moment_of
from everthink.errors import InvalidCallback, InvalidRetry, InvalidSchedule, NotJson
from everthink.schedules.when import (
    as_ms,
    cron_after,
    every,
    moment,
)
from everthink.testing.clock import ManualClock
from everthink.timers import Schedule
from tests.runtime.conftest import BOTH, Open
from tests.support.agents import live
from tests.support.conversations import unhurried
from tests.support.timers import Diary, move
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio

NOW = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
"""What the clock shows at first: a Friday."""


@pytest.fixture
async def agent(start: Open, diary: Diary) -> Any:
    cls = diary.agent()
    return await live((await start(cls)).agent(cls, "a"))


# --- when


@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize(
    ("when", "type", "after", "extra"),
    [
        (90, "delayed", timedelta(seconds=90), {"delay_in_seconds": 90.0}),
        (0.25, "delayed", timedelta(milliseconds=250), {"delay_in_seconds": 0.25}),
        (timedelta(minutes=3), "delayed", timedelta(minutes=3), {"delay_in_seconds": 180.0}),
        (NOW + timedelta(hours=2), "scheduled", timedelta(hours=2), {}),
        (datetime(2027, 1, 16, 10, 0, tzinfo=ZoneInfo("Asia/Tokyo")), "scheduled", timedelta(hours=17), {}),
        ("30 9 * * *", "cron", timedelta(hours=1, minutes=30), {"cron": "30 9 * * *"}),
        ("0 0 * * MON", "cron", timedelta(days=2, hours=16), {"cron": "0 0 * * MON"}),
    ],
)
async def test_a_time_a_delay_or_a_cron_text_names_the_moment(
    agent: Any, when: Any, type: str, after: timedelta, extra: dict[str, Any]
) -> None:
    schedule = await agent.schedule(when, "note", {"n": 1})
    expected = {"delay_in_seconds": None, "cron": None, "interval_seconds": None} | extra
    assert schedule == Schedule(schedule.id, "note", {"n": 1}, type, NOW + after, **expected)  # type: ignore[arg-type]
    assert len(schedule.id) == 9
    assert await agent.get_schedule(schedule.id) == schedule


@pytest.mark.agent_case(136)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_an_interval_has_a_type_of_its_own_can_be_filtered_and_cancelled(agent: Any) -> None:
    interval = await agent.schedule_every(timedelta(minutes=5), "note")
    await agent.schedule(10, "note")
    assert (interval.type, interval.interval_seconds) == ("interval", 300.0)
    assert interval.time == NOW + timedelta(minutes=5)
    assert await agent.list_schedules(type="interval") == [interval]
    assert await agent.cancel_schedule(interval.id)
    assert await agent.list_schedules(type="interval") == []
    assert len(await agent.list_schedules()) == 1


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        (None, "Invalid schedule type"),
        (True, "Invalid schedule type"),
        ([60], "Invalid schedule type"),
        (math.nan, "never ends"),
        (math.inf, "never ends"),
        (1e300, "never ends"),
        (1_800_000_060.5, "is a delay of 57 years.*give a datetime"),
        (1_800_000_060_500, "give a datetime"),
        (datetime(2027, 1, 16, 9, 0), "has no time zone"),
        ("tomorrow", "Invalid cron expression"),
        ("", "Invalid cron expression"),
        ("61 * * * *", "Invalid cron expression"),
        ("0 0 30 2 *", "Invalid cron expression"),
        ("0 9 * * * *", r'6 fields, and needs 5.*: "0 9 \* \* \*" or "9 \* \* \* \*"'),
        ("*" * 300, "too long"),
    ],
)
async def test_what_names_no_moment_is_refused_and_nothing_is_stored(
    agent: Any, when: Any, complaint: str
) -> None:
    with pytest.raises(InvalidSchedule, match=complaint) as refused:
        await agent.schedule(when, "note")
    assert refused.value.kept == "Nothing was scheduled."
    assert await agent.list_schedules() == []


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, "60", None, True, 2_592_000.1, 1e300])
async def test_an_interval_is_a_positive_number_of_at_most_thirty_days(agent: Any, seconds: Any) -> None:
    with pytest.raises(InvalidSchedule, match="schedule_every: seconds"):
        await agent.schedule_every(seconds, "note")
    assert await agent.list_schedules() == []
    assert (await agent.schedule_every(2_592_000, "note")).interval_seconds == 2_592_000


@unhurried
@given(st.text(max_size=30))
def test_any_text_is_a_cron_expression_or_refused(text: str) -> None:
    now = as_ms(NOW)
    try:
        due = moment(text, now=now)
    except InvalidSchedule:
        return
    assert due.type == "cron"
    assert due.time > now


@unhurried
@given(
    st.sampled_from(["* * * * *", "*/7 3 * * *", "0 9 1 * *", "15 14 * * 1-5", "0 0 29 2 *"]),
    st.integers(0, 4_000_000_000_000),
)
def test_the_next_time_of_a_cron_is_after_the_one_before_and_on_a_minute(cron: str, after: int) -> None:
    first = cron_after(cron, after)
    assert first > after
    assert first % 60_000 == 0
    assert cron_after(cron, first) > first
    # Nothing lies in between
    assert cron_after(cron, first - 1) == first


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))])))
@unhurried
def test_an_instant_is_the_same_after_it_was_stored(instant: datetime) -> None:
    back = moment_of(as_ms(instant))
    assert back.utcoffset() == timedelta(0)
    assert timedelta(0) <= instant - back < timedelta(milliseconds=1)


def test_a_moment_in_the_past_is_due_at_once() -> None:
    now = as_ms(NOW)
    assert moment(-5, now=now).time == now - 5000
    assert every(0.0001, now=now).time == now + 1


# --- the callback


@pytest.mark.parametrize(
    ("callback", "complaint"),
    [
        ("nobody", r"self\.nobody is not a function"),
        ("name", r"self\.name is not a function"),
        (42, "Callback must be a string"),
        (None, "Callback must be a string"),
        (len, "Callback must be a string"),
        ("schedule_at", r"cannot be called later"),
        ("schedul_at", r"Did you mean 'schedule_at'\?"),
        ("pieces", r"self\.pieces has a `yield`, so that calling it runs nothing of it\. Nothing was stored"),
        ("look", r"self\.look is a tool, .*Write a method that calls it"),
    ],
)
async def test_a_callback_is_checked_when_it_is_given(
    start: Open, diary: Diary, callback: Any, complaint: str
) -> None:
    def schedule_at(self: Think, payload: Any, item: Any, more: Any) -> None: ...

    async def pieces(self: Think, payload: Any) -> Any:
        yield payload

    @tool
    def look(at: str) -> str:
        """Look."""
        return at

    cls = diary.agent(schedule_at=schedule_at, pieces=pieces, look=look)
    agent = (await start(cls)).agent(cls, "a")
    for refused in (
        agent.schedule(1, callback),
        agent.schedule_every(1, callback),
        agent.queue(callback),
    ):
        with pytest.raises(InvalidCallback, match=complaint):
            await refused
    assert await agent.list_schedules() == []
    assert await agent.get_queues() == []


async def test_a_method_may_be_given_itself_but_only_the_agent_s_own(start: Open, diary: Diary) -> None:
    cls = diary.agent()
    app = await start(cls)
    agent, other = await live(app.agent(cls, "a")), await live(app.agent(cls, "b"))
    assert (await agent.schedule(1, agent.note)).callback == "note"
    with pytest.raises(InvalidCallback):
        await agent.schedule(1, other.note)


async def test_a_callback_gets_as_much_as_it_takes(start: Open, diary: Diary, clock: ManualClock) -> None:
    def nothing(self: Any) -> None:
        diary.write("nothing")

    def payload_only(self: Any, payload: Any) -> None:
        diary.write(payload)

    async def everything(self: Any, *arguments: Any) -> None:
        diary.write((arguments[0], arguments[1].callback))

    cls = diary.agent(nothing=nothing, payload_only=payload_only, everything=everything)
    app = await start(cls)
    agent = app.agent(cls, "a")
    for seconds, name in enumerate(["nothing", "payload_only", "everything"], 1):
        await agent.schedule(seconds, name, {"n": seconds})
    await move(app, clock, 5)
    assert diary.lines == ["nothing", {"n": 2}, ({"n": 3}, "everything")]


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (object(), "payload is <object"),
        ({1}, r"payload is \{1\}, a set"),
        ({"to": [{1: 2}]}, r"a key of payload\['to'\]\[0\] is 1, an int"),
        (b"x", "payload is b'x', a bytes"),
    ],
)
async def test_a_payload_that_would_come_back_as_something_else_is_refused(
    agent: Any, payload: Any, told: str
) -> None:
    with pytest.raises(NotJson, match=f"{told}.*, which JSON does not have"):
        await agent.schedule(1, "note", payload)
    assert await agent.list_schedules() == []


@pytest.mark.agent_case(123)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_retry_options_are_checked_at_once_and_stored_as_given(agent: Any) -> None:
    for refused in (
        agent.schedule(1, "note", retry=Retry(base_delay=5.0)),
        agent.schedule_every(1, "note", retry=Retry(base_delay=5.0)),
        agent.queue("note", retry=Retry(base_delay=5.0)),
    ):
        with pytest.raises(InvalidRetry, match="base_delay must be <="):
            await refused
    assert await agent.list_schedules() == []
    assert await agent.get_queues() == []

    options = Retry(max_attempts=7, max_delay=9.5)
    timer = await agent.schedule(60, "note", retry=options)
    assert (await agent.get_schedule(timer.id)).retry == options
    assert (await agent.list_schedules())[0].retry == options


# --- looking up and cancelling


@pytest.mark.agent_case(135)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_looking_up_gives_the_schedule_or_nothing(agent: Any) -> None:
    timer = await agent.schedule(60, "note", [1, "two", None])
    assert await agent.get_schedule(timer.id) == timer
    assert await agent.get_schedule("other") is None
    shown = {field for field in dir(timer) if not field.startswith("_")}
    assert not shown & {"agent", "due_at", "running", "started_at", "execution_started_at", "strikes"}


@pytest.mark.agent_case(134)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_cancelling_says_whether_there_was_something(start: Open, diary: Diary) -> None:
    cls = diary.agent()
    app = await start(cls)
    events = record_events(app, "schedule:*")
    agent, other = app.agent(cls, "a"), app.agent(cls, "b")
    timer = await agent.schedule(60, "note")

    assert not await other.cancel_schedule(timer.id)  # each agent has its own
    assert await agent.cancel_schedule(timer.id)
    assert not await agent.cancel_schedule(timer.id)
    assert not await agent.cancel_schedule("never")
    told = {"callback": "note", "id": timer.id}
    assert [(e.type, e.payload) for e in events] == [("schedule:create", told), ("schedule:cancel", told)]


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_timers_are_listed_by_type_by_id_and_in_a_span_of_time(agent: Any) -> None:
    soon = await agent.schedule(10, "note", "soon")
    later = await agent.schedule(NOW + timedelta(minutes=10), "note", "later")
    daily = await agent.schedule("0 9 * * *", "note", "daily")
    rhythm = await agent.schedule_every(120, "note", "rhythm")

    assert await agent.list_schedules() == [soon, rhythm, later, daily]
    assert await agent.list_schedules(id=later.id) == [later]
    assert await agent.list_schedules(type="cron") == [daily]
    assert await agent.list_schedules(start=NOW + timedelta(minutes=2)) == [rhythm, later, daily]
    assert await agent.list_schedules(end=NOW + timedelta(minutes=2)) == [soon, rhythm]
    span = {"start": NOW + timedelta(minutes=1), "end": NOW + timedelta(minutes=30)}
    assert await agent.list_schedules(**span) == [rhythm, later]
    assert await agent.list_schedules(type="delayed", **span) == []
    with pytest.raises(InvalidSchedule, match="time zone"):
        await agent.list_schedules(start=datetime(2027, 1, 1))


# --- kept once


@pytest.mark.agent_case(140)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_cron_is_kept_once_by_expression_callback_and_payload(agent: Any) -> None:
    first = await agent.schedule("0 9 * * *", "note", {"a": 1, "b": 2})
    assert await agent.schedule("0  9 * *  *", "note", {"b": 2, "a": 1}) == first
    others = [
        await agent.schedule("0 10 * * *", "note", {"a": 1, "b": 2}),
        await agent.schedule("0 9 * * *", "fail", {"a": 1, "b": 2}),
        await agent.schedule("0 9 * * *", "note", {"a": 1}),
        await agent.schedule("0 9 * * *", "note"),
        await agent.schedule("0 9 * * *", "note", {"a": 1, "b": 2}, idempotent=False),
    ]
    assert len({first.id, *(other.id for other in others)}) == 6
    assert len(await agent.list_schedules()) == 6


@pytest.mark.agent_case(141)
@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize("when", [60, NOW + timedelta(minutes=1)])
async def test_delays_and_dates_are_kept_once_only_on_request(agent: Any, when: Any) -> None:
    first = await agent.schedule(when, "note", "x", idempotent=True)
    # The time is not compared
    later = 3600 if when == 60 else NOW + timedelta(hours=1)
    assert await agent.schedule(later, "note", "x", idempotent=True) == first
    assert (await agent.schedule(when, "note", "y", idempotent=True)).id != first.id
    assert (await agent.schedule(when, "fail", "x", idempotent=True)).id != first.id
    assert (await agent.schedule(when, "note", "x")).id != first.id
    assert (await agent.schedule(when, "note", "x", idempotent=False)).id != first.id
    assert len(await agent.list_schedules()) == 5


@pytest.mark.agent_case(143)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_intervals_are_kept_once_by_callback_interval_and_payload(agent: Any) -> None:
    first = await agent.schedule_every(60, "note", "x")
    assert await agent.schedule_every(60.0, "note", "x", retry=Retry(max_attempts=9)) == first
    others = [
        await agent.schedule_every(61, "note", "x"),
        await agent.schedule_every(60, "fail", "x"),
        await agent.schedule_every(60, "note", "y"),
    ]
    assert len({first.id, *(other.id for other in others)}) == 4
    assert len(await agent.list_schedules(type="interval")) == 4


async def test_a_hit_keeps_the_stored_options_and_tells_nobody(start: Open, diary: Diary) -> None:
    cls = diary.agent()
    app = await start(cls)
    events = record_events(app, "schedule:*")
    agent = app.agent(cls, "a")
    first = await agent.schedule("0 9 * * *", "note", retry=Retry(max_attempts=5))
    again = await agent.schedule("0 9 * * *", "note", retry=Retry(max_attempts=1))
    assert again == first
    assert again.retry == Retry(max_attempts=5)
    assert [event.type for event in events] == ["schedule:create"]


async def test_many_who_mean_the_same_timer_at_once_get_one(agent: Any) -> None:
    made = await asyncio.gather(*(agent.schedule_every(60, "note", {"x": 1}) for _ in range(20)))
    assert len({schedule.id for schedule in made}) == 1
    assert len(await agent.list_schedules()) == 1


async def test_each_agent_keeps_its_own(start: Open, diary: Diary) -> None:
    cls = diary.agent()
    app = await start(cls)
    first = await app.agent(cls, "a").schedule_every(60, "note")
    second = await app.agent(cls, "b").schedule_every(60, "note")
    assert first.id != second.id
    assert await app.agent(cls, "a").list_schedules() == [first]


# --- in on_start


@pytest.mark.agent_case(142)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_starting_over_and_over_does_not_multiply_idempotent_rows(start: Open, diary: Diary) -> None:
    async def on_start(self: Any, props: Any = None) -> None:
        await self.schedule("0 9 * * *", "note")
        await self.schedule_every(300, "note")
        await self.schedule(3600, "note", idempotent=True)

    cls = diary.agent(on_start=on_start)
    ids: set[tuple[str, ...]] = set()
    for _ in range(5):
        app = await start(cls)
        timers = await app.agent(cls, "a").list_schedules()
        ids.add(tuple(timer.id for timer in timers))
    assert len(ids) == 1
    assert len(ids.pop()) == 3


@pytest.mark.agent_case(139)
@pytest.mark.parametrize("when", [60, NOW + timedelta(minutes=1)])
async def test_scheduling_in_on_start_without_a_word_on_idempotency_warns_once(
    start: Open, diary: Diary, caplog: pytest.LogCaptureFixture, when: Any
) -> None:
    async def on_start(self: Any, props: Any = None) -> None:
        await self.schedule(when, "note", 1)
        await self.schedule(when, "note", 2)

    cls = diary.agent(on_start=on_start)
    with caplog.at_level(logging.WARNING, "everthink.runtime"):
        agent = (await start(cls)).agent(cls, "a")
        await agent.list_schedules()
        warnings = [record.message for record in caplog.records if "in on_start" in record.message]
        assert len(warnings) == 1
        assert "'note'" in warnings[0]
        # Afterwards it is nobody's business
        await agent.schedule(when, "fail")
    assert len([r for r in caplog.records if "in on_start" in r.message]) == 1


@pytest.mark.agent_case(139)
async def test_saying_it_either_way_or_scheduling_a_rhythm_does_not_warn(
    start: Open, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_start(self: Any, props: Any = None) -> None:
        await self.schedule(60, "note", idempotent=True)
        await self.schedule(60, "note", idempotent=False)
        await self.schedule("0 9 * * *", "note")
        await self.schedule_every(60, "note")

    cls = diary.agent(on_start=on_start)
    with caplog.at_level(logging.WARNING, "everthink.runtime"):
        assert len(await (await start(cls)).agent(cls, "a").list_schedules()) == 4
    assert [record.message for record in caplog.records] == []
