"""The waker: it sleeps until the earliest timer of all agents, and reaches those concerned by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from everthink.address import Address
from everthink.errors import StoreUnavailable
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.runtime.waker import AT_ONCE, PATIENCE, Waker
from everthink.schedules import alarm_queries as queries
from everthink.schedules.alarm_queries import AlarmRow
from everthink.store.marks import bound
from everthink.store.port import Statement
from everthink.testing import ManualClock, WatchedStore
from tests.runtime.conftest import BOTH, Open
from tests.support.timers import Diary, move, quiet, storage

pytestmark = pytest.mark.anyio


PLANS = ("Seq Scan", "SCAN", "Sort", "TEMP B-TREE")
"""What an engine says of a query that reads a whole table, or sorts what it read."""


class Reached:
    """Whom the waker reached, and how many at a time. `gate` keeps them busy; `errors` make it fail."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: list[Exception] = []
        self.busy = self.most = 0
        self._more = asyncio.Event()

    async def __call__(self, address: Address) -> None:
        self.names.append(address.id)
        self._more.set()
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await self.gate.wait()
            if self.errors:
                raise self.errors.pop(0)
        finally:
            self.busy -= 1

    async def until(self, count: int) -> None:
        while len(self.names) < count:
            self._more.clear()
            await self._more.wait()


def timer(agent: str, due: int, *, id: str = "t") -> Statement:
    row = AlarmRow(id, "note", "null", "scheduled", due, due, None, None, None, None, None, 0, 0)
    return bound([queries.created(agent.partition("/")[0], row, now=0)], agent)[0]


class Bench:
    """A waker on a real database, before it is started."""

    def __init__(self, store: WatchedStore, clock: ManualClock, *, left: tuple[str, ...] = ()) -> None:
        self.store, self.clock, self.reached = store, clock, Reached()
        self.waker = Waker(
            store=store, clock=clock, classes=["A", "B"], find=self.find, reach=self.reached, left=left
        )

    async def find(self, agent: str) -> Address:
        """The address of an agent without parents."""
        return Address.parse(agent)

    async def put(self, agent: str, after: float, *, id: str = "t") -> int:
        """A timer `after` seconds from now."""
        due = self.clock.now_ms() + round(after * 1000)
        await self.store.apply([timer(agent, due, id=id)])
        return due

    async def take(self, agent: str) -> None:
        """Its timer has run."""
        await self.store.apply([Statement("DELETE FROM alarms WHERE agent = ?", (agent,))])

    async def move(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await self.waker.idle()


@asynccontextmanager
async def opened(url: str, clock: ManualClock, **options: Any) -> AsyncIterator[Bench]:
    store = WatchedStore(await open_store(url, MIGRATIONS))
    bench = Bench(store, clock, **options)
    try:
        yield bench
    finally:
        await bench.waker.stop()
        await store.close()


# --- sleeping and waking


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_it_sleeps_until_the_earliest_timer_and_reaches_only_that_agent(
    url: str, clock: ManualClock
) -> None:
    async with opened(url, clock) as bench:
        await bench.put("A/late", 100)
        await bench.put("B/soon", 10)
        bench.waker.start()
        await bench.move(9.999)
        assert bench.reached.names == []
        await bench.move(0.001)
        assert bench.reached.names == ["B/soon"]
        await bench.take("B/soon")
        await bench.move(90)
        assert bench.reached.names == ["B/soon", "A/late"]


async def test_nothing_is_read_and_no_timer_runs_while_there_is_nothing_to_do(
    url: str, clock: ManualClock
) -> None:
    async with opened(url, clock) as bench:
        bench.waker.start()
        await bench.waker.idle()
        reads = len(bench.store.reads)
        assert clock.waiting == 0
        await bench.move(1_000_000)
        assert len(bench.store.reads) == reads

        # One far away costs a timer and no look at the database
        bench.waker.wake_at(await bench.put("A/far", 100_000))
        assert clock.waiting == 1
        await bench.move(99_999)
        assert (len(bench.store.reads), bench.reached.names) == (reads, [])
        await bench.move(1)
        assert bench.reached.names == ["A/far"]


async def test_an_earlier_timer_shortens_the_sleep_and_a_later_one_does_not_prolong_it(
    url: str, clock: ManualClock
) -> None:
    async with opened(url, clock) as bench:
        bench.waker.start()
        await bench.waker.idle()
        for agent, after in (("A/middle", 50), ("A/early", 20), ("A/late", 80)):
            bench.waker.wake_at(await bench.put(agent, after))
        for expected in ("A/early", "A/middle", "A/late"):
            await bench.move(19.999)
            assert expected not in bench.reached.names
            await bench.move(10.001)
            assert bench.reached.names[-1] == expected
            await bench.take(expected)


async def test_a_timer_that_was_cancelled_wakes_nobody(url: str, clock: ManualClock) -> None:
    async with opened(url, clock) as bench:
        bench.waker.start()
        bench.waker.wake_at(await bench.put("A/a", 10))
        await bench.take("A/a")
        await bench.move(20)
        assert bench.reached.names == []


async def test_a_timer_added_while_its_agent_is_busy_is_not_forgotten(url: str, clock: ManualClock) -> None:
    async with opened(url, clock) as bench:
        bench.reached.gate.clear()
        await bench.put("A/a", -1)
        bench.waker.start()
        await bench.reached.until(1)
        # The agent has looked already; this one is new
        bench.waker.wake_at(await bench.put("A/a", 0, id="second"))
        while not bench.waker._again:  # noqa: ASYNC110 - until the waker has met it busy
            await asyncio.sleep(0)
        bench.reached.gate.set()
        await bench.reached.until(2)
        await bench.take("A/a")
        await bench.waker.idle()
        assert bench.reached.names == ["A/a", "A/a"]


async def test_after_it_was_stopped_nobody_is_reached(url: str, clock: ManualClock) -> None:
    async with opened(url, clock) as bench:
        await bench.put("A/a", 10)
        bench.waker.start()
        await bench.waker.idle()
        await bench.waker.stop()
        bench.waker.wake_at(0)
        await clock.advance(100)
        assert (bench.reached.names, clock.waiting) == ([], 0)


# --- many


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_many_due_agents_are_woken_some_at_a_time_and_each_once(url: str, clock: ManualClock) -> None:
    async with opened(url, clock) as bench:
        agents = [f"A/{number:04}" for number in range(1200)]
        await bench.store.apply([timer(agent, 1 + number) for number, agent in enumerate(agents)])
        await bench.store.apply([timer("A/0000", 1, id="another")])
        bench.reached.gate.clear()
        bench.waker.start()
        await bench.reached.until(AT_ONCE)
        assert (bench.reached.busy, len(bench.reached.names)) == (AT_ONCE, AT_ONCE)
        bench.reached.gate.set()
        await bench.reached.until(len(agents))
        assert bench.reached.most == AT_ONCE
        await bench.waker.idle()
        assert sorted(bench.reached.names) == agents


async def test_an_agent_that_is_busy_for_long_keeps_nobody_else_waiting(url: str, clock: ManualClock) -> None:
    async with opened(url, clock) as bench:
        await bench.store.apply([timer(f"A/{n:02}", 1 + n) for n in range(AT_ONCE + 1)])
        bench.reached.gate.clear()
        bench.waker.start()
        await bench.reached.until(AT_ONCE)
        await clock.advance(PATIENCE)
        await bench.reached.until(AT_ONCE + 1)
        assert bench.reached.busy == AT_ONCE + 1


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_the_start_with_many_agents_is_one_query_that_reads_the_index_alone(
    url: str, clock: ManualClock
) -> None:
    async with opened(url, clock) as bench:
        fill = (
            "INSERT INTO alarms (agent, class, created_at, id, callback, payload, type, time, due_at, starts,"
            " strikes) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
            " SELECT 'A/' || i, 'A', 0, 't', 'note', 'null', 'scheduled', ? + i, ? + i, 0, 0 FROM n"
        )
        far = clock.now_ms() + 3_600_000
        await bench.store.apply([Statement(fill, (far, far))])
        await bench.store.apply([Statement("ANALYZE alarms")])
        bench.waker.start()
        await bench.waker.idle()
        looks = [sql for sql in bench.store.reads if sql == queries.NEXT]
        assert len(looks) == 2  # one for each class of the app, B having none
        assert (bench.reached.names, clock.waiting) == ([], 1)

        explain = "EXPLAIN" if url.startswith("postgres") else "EXPLAIN QUERY PLAN"
        for sql, params in ((queries.NEXT, ("A", -1, "", "", 500)), (queries.NEXT_CLASS, ("A",))):
            rows = await bench.store.fetch(f"{explain} {sql}", *params)
            plan = "\n".join(str(row[-1]) for row in rows)
            assert "alarms_due" in plan
            assert "COVERING INDEX" in plan or "Index Only Scan" in plan
            assert [word for word in PLANS if word in plan] == []


# --- what goes wrong


async def test_an_agent_that_fails_is_tried_ever_later_and_keeps_nobody_from_being_reached(
    url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(url, clock) as bench:
        bench.reached.errors = [RuntimeError("does not start")] * 3
        await bench.put("A/bad", -1)
        bench.waker.start()
        await bench.waker.idle()
        for seconds, reached in ((0.999, 1), (0.001, 2), (1.999, 2), (0.001, 3)):
            await bench.move(seconds)
            assert len(bench.reached.names) == reached
        bench.waker.wake_at(await bench.put("A/good", 0))
        await bench.waker.idle()
        assert bench.reached.names[3:] == ["A/good"]
        await bench.take("A/good")
        await bench.move(4)
        assert bench.reached.names[4:] == ["A/bad"]  # and this time it worked
        await bench.take("A/bad")
        await bench.move(1000)
        assert len(bench.reached.names) == 5
    assert "A/bad could not do what was due and is tried again in 4 s: does not start" in caplog.text


async def test_a_database_that_is_away_is_asked_again_ever_later(
    url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(url, clock, left=("SELECT agent FROM agents",)) as bench:
        bench.store.refuse_reads(lambda sql: StoreUnavailable("away"))
        await bench.put("A/a", -1)
        bench.waker.start()
        await bench.waker.idle()
        for _ in range(6):
            await bench.move(1)
        assert len(bench.store.reads) == 3  # at once, after 1 and after 3 seconds
        bench.store.refuse_reads(lambda sql: None)
        await bench.move(1)
        assert bench.reached.names == ["A/a"]
    assert "timers are looked at again in 4 s" in caplog.text


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_agents_of_a_class_that_is_not_in_this_app_are_left_alone_and_mentioned_once(
    url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(url, clock) as bench:
        await bench.put("Other/a", -10)
        await bench.put("Other/b", -10)
        await bench.put("Another/c", 10)
        await bench.put("A/a", 5)
        with caplog.at_level(logging.WARNING, "everthink.runtime"):
            bench.waker.start()
            await bench.waker.idle()
            await bench.move(60)
            await bench.take("A/a")
            await bench.move(60)
        assert set(bench.reached.names) == {"A/a"}
        warned = [record.message for record in caplog.records if "not in this app" in record.message]
        assert len(warned) == 2
        assert any("class Other," in message for message in warned)
        rows = await bench.store.fetch("SELECT agent FROM alarms ORDER BY agent")
        assert [row[0] for row in rows] == ["Another/c", "Other/a", "Other/b"]


# --- what was left, and other reasons


async def test_agents_with_work_left_are_reached_at_the_start_at_once_or_at_their_time(
    url: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    later = clock.now_ms() + 5000
    left = (
        "SELECT 'A/now' AS agent UNION ALL SELECT 'Other/x'",
        f"SELECT 'B/now' AS agent, 0 AS at UNION ALL SELECT 'B/later', {later}",
    )
    async with opened(url, clock, left=left) as bench:
        bench.waker.start()
        await bench.waker.idle()
        assert bench.reached.names == ["A/now", "B/now"]
        await bench.move(4.999)
        assert len(bench.reached.names) == 2
        await bench.move(0.001)
        assert bench.reached.names[2:] == ["B/later"]
        await bench.move(1000)
        assert len(bench.reached.names) == 3
    assert "class Other," in caplog.text


async def test_an_agent_may_be_asked_for_at_a_time_that_no_row_tells(url: str, clock: ManualClock) -> None:
    async with opened(url, clock) as bench:
        bench.waker.start()
        await bench.waker.idle()
        now = clock.now_ms()
        bench.waker.wake_at(now + 30_000, "A/a")
        bench.waker.wake_at(now + 10_000, "A/a")  # the earlier one counts
        bench.waker.wake_at(now + 20_000, "B/b")
        await bench.move(15)
        assert bench.reached.names == ["A/a"]
        await bench.move(5)
        assert bench.reached.names == ["A/a", "B/b"]
        await bench.move(100)
        assert len(bench.reached.names) == 2


# --- in an app


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_timer_of_an_earlier_process_runs_without_anybody_asking_for_its_agent(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    for number in range(40):
        await app.agent(cls, f"room-{number}").schedule(60, "note", number)
    app = await start(cls)
    assert len(await app.open()) == 0
    await move(app, clock, 60)
    assert sorted(diary.lines) == list(range(40))


@pytest.mark.agent_case(144)
async def test_asking_for_the_same_timer_again_mends_a_wake_that_was_lost(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    agent = app.agent(cls, "a")
    overdue = await agent.schedule(1000, "note", "overdue", idempotent=True)
    soon = await agent.schedule(1000, "note", "soon", idempotent=True)
    # Somebody moved them behind the waker's back
    now = clock.now_ms()
    for timer_id, at in ((overdue.id, now - 1000), (soon.id, now + 5000)):
        await storage(app, cls, "a", f"UPDATE alarms SET time = {at}, due_at = {at} WHERE id = '{timer_id}'")
    await quiet(app)
    assert diary.lines == []

    assert (await agent.schedule(9, "note", "soon", idempotent=True)).id == soon.id
    assert (await agent.schedule(9, "note", "overdue", idempotent=True)).id == overdue.id
    await quiet(app)
    assert diary.lines == ["overdue"]
    await move(app, clock, 5)
    assert diary.lines == ["overdue", "soon"]


async def test_an_agent_whose_start_fails_runs_its_timer_once_it_starts(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    is_broken = False

    async def on_start(self: Any, props: Any = None) -> None:
        if is_broken:
            raise RuntimeError("no network yet")

    app = await start(cls := diary.agent(on_start=on_start))
    await app.agent(cls, "a").schedule(1, "note", "tea")
    await app.close()
    await clock.advance(10)
    is_broken = True
    app = await start(cls)
    for _ in range(3):
        await move(app, clock, 1)
    assert diary.lines == []
    is_broken = False
    await move(app, clock, 4)
    assert diary.lines == ["tea"]


async def test_one_agent_that_hangs_does_not_keep_the_others_from_their_timers(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    await app.agent(cls, "slow").schedule(1, "wait", "slow")
    await app.agent(cls, "quick").schedule(2, "note", "quick")
    await clock.advance(1)
    await diary.until(1)
    await clock.advance(1)
    await diary.until(2)
    assert diary.lines == ["slow", "quick"]
    diary.gate.set()
