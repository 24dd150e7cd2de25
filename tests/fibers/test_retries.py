"""Recovery of fibers that does not end at once: later tries, deadlines, ages; and who is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import App, tool
from everthink.current import in_active_turn
from everthink.errors import NotInFiber, StoreFull
from everthink.fibers import FiberCompleted, FiberContext, FiberRecovery, FiberRecoveryContext
from everthink.fibers import recovery as fiber_recovery
from everthink.store.port import Commit
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import calls, says
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.fibers import Fibers, Recovered, Work, cut, waiting_agents, worker
from tests.support.turns import gated_app, record_events

pytestmark = pytest.mark.anyio


class Ward:
    """An agent whose fibers were cut off, on a clock that stands still. `start` lets it look for them."""

    def __init__(self, open_app: OpenApp, seen: Recovered, **members: Any) -> None:
        self.seen, self.clock, self._open_app = seen, ManualClock(), open_app
        self.cls = worker(on_fiber_recovered=seen.hook, **members)

    async def admit(self, *names: str, managed: Any = False) -> Ward:
        self.app: App = await self._open_app(self.cls, clock=self.clock)
        await cut(self.app, self.cls, *names, managed=managed)
        return self

    async def start(self) -> Any:
        self.agent = await live(self.app.agent(self.cls))
        return self.agent

    async def scanned(self, calls: int) -> None:
        """Return once the hook was called so often and the scan that did so is over."""
        await self.seen.until(calls)
        scan = self.agent._home.fibers.rescue._scan
        if scan is not None:
            await asyncio.wait([scan])

    async def pass_on(self, seconds: float, calls: int) -> None:
        """Nothing happens for this long, and at its end the hook has been called so often."""
        before = len(self.seen.contexts)
        await self.clock.advance(seconds - 0.001)
        await asyncio.sleep(0)
        assert len(self.seen.contexts) == before
        await self.clock.advance(0.001)
        await self.scanned(calls)

    @property
    def wait(self) -> float | None:
        """Seconds until the next scan."""
        at = self.agent._home.fibers.rescue.retry_at
        return None if at is None else (at - self.clock.now_ms()) / 1000


# --- trying again


@pytest.mark.agent_case(171, 172)
async def test_a_fiber_whose_hook_fails_is_kept_and_tried_ever_later(
    open_app: OpenApp, tmp_path: Path
) -> None:
    ward = await Ward(open_app, Recovered(ValueError("not now"))).admit("poison")
    await ward.start()
    for tries, delay in enumerate((30, 60, 120, 240, 300, 300), 1):
        assert Fibers(tmp_path).names() == ["poison"]
        assert (len(ward.seen.contexts), ward.wait) == (tries, delay)
        await ward.pass_on(delay, tries + 1)


@pytest.mark.agent_case(172)
async def test_the_wait_starts_over_with_progress_and_ends_when_nothing_is_left(
    open_app: OpenApp, tmp_path: Path
) -> None:
    failing = {"a", "b"}
    seen = Recovered(lambda ctx: ValueError("not now") if ctx.name in failing else None)
    ward = await Ward(open_app, seen).admit("a", "b")
    await ward.start()
    await ward.pass_on(30, 4)
    await ward.pass_on(60, 6)
    assert ward.wait == 120

    failing.remove("a")
    await ward.pass_on(120, 8)
    assert Fibers(tmp_path).names() == ["b"]
    assert ward.wait == 30

    failing.clear()
    await ward.pass_on(30, 9)
    assert Fibers(tmp_path).all() == []
    assert ward.wait is None
    assert await waiting_agents(ward.agent._home.store.database) == []
    await ward.clock.advance(3600)
    assert len(seen.contexts) == 9


@pytest.mark.agent_case(172)
async def test_a_restart_tries_at_once_and_does_not_forget_how_often_it_failed(open_app: OpenApp) -> None:
    ward = await Ward(open_app, Recovered(ValueError("not now"))).admit("poison")
    await ward.start()
    await ward.pass_on(30, 2)
    assert ward.wait == 60
    await ward.app.evict(ward.cls, "default")
    await ward.start()
    assert (len(ward.seen.contexts), ward.wait) == (3, 120)


@pytest.mark.agent_case(172)
async def test_an_agent_that_left_memory_is_woken_for_the_next_try(open_app: OpenApp) -> None:
    ward = await Ward(open_app, Recovered(ValueError("not now"))).admit("poison")
    await ward.start()
    await ward.app.evict(ward.cls, "default")
    await ward.clock.advance(29.999)
    await asyncio.sleep(0)
    assert len(ward.seen.contexts) == 1
    await ward.clock.advance(0.001)
    await ward.seen.until(2)


async def test_a_new_process_wakes_agents_with_fibers_by_itself(open_app: OpenApp) -> None:
    # Given two agents with fibers: the hook of one has failed, the other's is cut off now
    clock, seen = ManualClock(), Recovered(lambda ctx: ValueError() if ctx.name == "poison" else None)
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook), clock=clock)
    await cut(app, cls, "poison", name="ann")
    await live(app.agent(cls, "ann"))
    work = Work()
    (await live(app.agent(cls, "ben"))).run_fiber("fresh", work)
    await work.began.wait()
    assert seen.names == ["poison"]
    await app.close()

    # When the process comes back and nobody asks for them
    app = await open_app(cls, clock=clock)
    store = (await app.open()).store

    # Then the one is recovered at once, the other when its time has come
    await seen.until(2)
    assert seen.names == ["poison", "fresh"]
    await live(app.agent(cls, "ben"))
    assert await waiting_agents(store) == [("Assistant/ann", clock.now_ms() + 30_000)]
    await clock.advance(30)
    await seen.until(3)
    assert seen.names == ["poison", "fresh", "poison"]


async def test_those_that_wait_are_found_earliest_first(open_app: OpenApp) -> None:
    clock, seen = ManualClock(), Recovered(ValueError("not now"))
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook), clock=clock)
    for name in ("ann", "ben"):
        await cut(app, cls, "poison", name=name)
        await live(app.agent(cls, name))
        await clock.advance(1)
    running = Work()
    (await live(app.agent(cls, "cleo"))).run_fiber("work", running)
    await running.began.wait()
    now = clock.now_ms()
    assert await waiting_agents((await app.open()).store) == [
        ("Assistant/cleo", 0),
        ("Assistant/ann", now + 28_000),
        ("Assistant/ben", now + 29_000),
    ]


async def test_a_scan_that_the_database_refuses_is_made_up_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, seen = ManualClock(), Recovered(ValueError("not now"))
    refused = asyncio.Event()

    def full(commit: Commit) -> Exception | None:
        if not any("SET attempts" in statement.sql for statement in commit):
            return None
        refused.set()
        return StoreFull("No space left.")

    async with gated_app(tmp_path, cls := worker(on_fiber_recovered=seen.hook), clock=clock) as (app, store):
        await cut(app, cls, "poison")
        agent = await live(app.agent(cls))
        store.refuse(full)
        await clock.advance(30)
        await refused.wait()
        for task in [task for task in agent._home._tasks if "_again" in repr(task.get_coro())]:
            await asyncio.wait([task])
        store.refuse(lambda commit: None)
        await clock.advance(300)
        await seen.until(3)
    assert "No space left." in caplog.text


# --- too old, too many


@pytest.mark.agent_case(171, 188)
@pytest.mark.parametrize(("max_age", "is_kept"), [(100.0, False), (101.0, True), (0.0, True)])
async def test_an_old_fiber_is_dropped_when_its_hook_fails_once_more(
    open_app: OpenApp, tmp_path: Path, max_age: float, is_kept: bool
) -> None:
    seen = Recovered(ValueError("never"))
    ward = await Ward(open_app, seen, fiber_recovery=FiberRecovery(max_age=max_age)).admit("poison")
    await ward.clock.advance(100.5)
    events = record_events(ward.app, "fiber:recovery:failed", "fiber:recovery:skipped")
    await ward.start()
    assert len(Fibers(tmp_path).all()) == is_kept
    assert (ward.wait is not None) == is_kept
    expected = [("fiber:recovery:failed", "handler_error")]
    if not is_kept:
        expected.append(("fiber:recovery:skipped", "max_age_exceeded"))
    assert [(event.type, event.payload["reason"]) for event in events] == expected


async def test_an_old_fiber_whose_hook_works_is_handled(open_app: OpenApp, tmp_path: Path) -> None:
    ward = await Ward(open_app, Recovered()).admit("late")
    await ward.clock.advance(1_000_000)
    events = record_events(ward.app, "fiber:recovery:handled", "fiber:recovery:skipped")
    await ward.start()
    assert [event.type for event in events] == ["fiber:recovery:handled"]


@pytest.mark.agent_case(189)
async def test_a_scan_stops_at_its_deadline_and_the_rest_is_done_later(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given five fibers whose hook takes six seconds, and a deadline of ten
    takes = [6.0]
    ward = Ward(open_app, Recovered(lambda ctx: ward.clock.advance(takes[0])))
    await ward.admit("a", "b", "c", "d", "e")
    events = record_events(ward.app, "fiber:recovery:skipped")

    # When the agent starts, then it has come to two of them
    await ward.start()
    assert ward.seen.names == ["a", "b"]
    assert Fibers(tmp_path).names() == ["c", "d", "e"]
    (skipped,) = events
    assert (skipped.payload["fiberName"], skipped.payload["reason"]) == ("c", "scan_deadline_exceeded")

    # and to the others half a minute later
    takes[0] = 0.0
    await ward.pass_on(30, 5)
    assert ward.seen.names == ["a", "b", "c", "d", "e"]
    assert Fibers(tmp_path).all() == []
    assert ward.wait is None


async def test_a_deadline_of_zero_is_none(open_app: OpenApp) -> None:
    ward = Ward(
        open_app,
        Recovered(lambda ctx: ward.clock.advance(3600)),
        fiber_recovery=FiberRecovery(scan_deadline=0.0),
    )
    await ward.admit("a", "b", "c")
    await ward.start()
    assert ward.seen.names == ["a", "b", "c"]


async def test_a_fiber_that_always_fails_does_not_keep_the_others_waiting(open_app: OpenApp) -> None:
    async def slow_failure() -> None:
        await ward.clock.advance(takes[0])
        raise ValueError("after a long time")

    takes = [11.0]
    ward = Ward(open_app, Recovered(lambda ctx: slow_failure() if ctx.name == "poison" else None))
    await ward.admit("poison", "a", "b")
    await ward.start()
    assert ward.seen.names == ["poison"]
    takes[0] = 0.0
    await ward.pass_on(30, 4)
    assert ward.seen.names == ["poison", "a", "b", "poison"]


@pytest.mark.agent_case(182)
async def test_those_who_wait_for_a_fiber_that_is_being_recovered_get_its_final_record(
    open_app: OpenApp,
) -> None:
    # Given a fiber that the first scan did not come to
    may_end = asyncio.Event()

    async def recover(ctx: FiberRecoveryContext) -> Any:
        if ctx.name == "slow":
            await ward.clock.advance(11)
        else:
            await may_end.wait()
        return FiberCompleted(snapshot=f"{ctx.name} is done")

    ward = Ward(open_app, Recovered(recover))
    await ward.admit("slow", "rest", managed=True)
    agent, other = await ward.start(), Work()
    assert (await agent.inspect_fiber("rest")).status == "running"

    # When several people ask for it and wait
    async def ask() -> Any:
        return await agent.start_fiber("again", other, fiber_id="rest", wait_for_completion=True)

    waiting = [asyncio.create_task(ask()) for _ in range(3)]
    await ward.seen.until(2)
    assert (await agent.inspect_fiber("rest")).status == "interrupted"
    assert not any(task.done() for task in waiting)
    may_end.set()

    # Then it is recovered once, and all of them get what came of it
    for found in await asyncio.gather(*waiting):
        assert (found.status, found.snapshot, found.accepted) == ("completed", "rest is done", False)
    assert ward.seen.names == ["slow", "rest"]
    assert other.calls == []


async def test_the_hook_is_no_part_of_the_fiber_that_waits_for_it(open_app: OpenApp, tmp_path: Path) -> None:
    async def recover(ctx: FiberRecoveryContext) -> Any:
        if ctx.name == "slow":
            await ward.clock.advance(11)
            return None
        with pytest.raises(NotInFiber):
            await ward.agent.stash("of the hook")
        return FiberCompleted()

    async def wait(ctx: FiberContext) -> Any:
        await ctx.stash("of the fiber that waits")
        found = await ward.agent.start_fiber("again", Work(), fiber_id="rest", wait_for_completion=True)
        return found.status, Fibers(tmp_path).snapshots()["waits"]

    ward = Ward(open_app, Recovered(recover))
    await ward.admit("slow", "rest", managed=True)
    agent = await ward.start()
    assert await agent.run_fiber("waits", wait) == ("completed", "of the fiber that waits")


async def test_a_fiber_that_the_scan_did_not_come_to_can_be_cancelled(open_app: OpenApp) -> None:
    ward = Ward(open_app, Recovered(lambda ctx: ward.clock.advance(11)))
    await ward.admit("slow", "rest", managed=True)
    agent = await ward.start()
    assert await agent.cancel_fiber("rest", "enough") is True
    await ward.clock.advance(30)
    await agent._home.fibers.recover()
    assert ward.seen.names == ["slow"]
    assert (await agent.inspect_fiber("rest")).status == "aborted"


# --- who is told


async def test_observers_are_told_each_step(open_app: OpenApp) -> None:
    ward = Ward(open_app, Recovered(lambda ctx: ward.clock.advance(0.5)))
    await ward.admit("work", managed=True)
    await ward.clock.advance(5)
    events = record_events(ward.app)
    await ward.start()
    who = {"fiberId": "work", "fiberName": "work", "managed": True}
    assert [(e.type, e.payload) for e in events if e.channel == "agents:fiber"] == [
        ("fiber:recovery:detected", {**who, "recoveryReason": "interrupted", "elapsedMs": 5000}),
        ("fiber:run:interrupted", {**who, "recoveryReason": "interrupted"}),
        ("fiber:recovery:attempt", {**who, "recoveryReason": "interrupted"}),
        ("fiber:recovery:handled", {**who, "status": "managed", "elapsedMs": 500}),
    ]


async def test_no_turn_waits_for_a_later_try(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given an agent that is woken by a tool of another agent, and whose hook fails
    monkeypatch.setattr(fiber_recovery, "FIRST_RETRY", 0.0)
    inside: list[bool] = []

    def answer(ctx: FiberRecoveryContext) -> Exception | None:
        inside.append(in_active_turn("Assistant/ann"))
        return ValueError("not now") if len(inside) == 1 else None

    @tool
    async def wake() -> str:
        """Wake the other one."""
        await live(app.agent(cls, "ben"))
        return "awake"

    seen = Recovered(answer)
    plays, members = (calls("wake"), says("Done.")), {"on_fiber_recovered": seen.hook}
    app = await open_app(cls := worker(*plays, get_tools=lambda self: [wake], **members))
    await cut(app, cls, "work", name="ben")
    await app.agent(cls, "ann").save_messages("Wake ben.")

    # When it is tried again, then that is no part of the other's turn any more
    await seen.until(2)
    assert inside == [True, False]
