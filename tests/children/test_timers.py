"""What a child does by itself: timers, fibers, staying in memory. All of it is the child's, at any depth."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from everthink import Agent, App
from everthink.address import Address
from everthink.fibers import FiberRecoveryContext
from everthink.runtime.erasing import TABLES
from everthink.testing.clock import ManualClock
from tests.runtime.conftest import BOTH, Open
from tests.support.agents import live
from tests.support.fibers import Work
from tests.support.hooks import until
from tests.support.timers import Diary, move, quiet
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio

IDLE = 60.0
"""Seconds after which an agent that nobody needs leaves memory in these tests."""


def keeper(diary: Diary, **members: Any) -> type[Any]:
    """An agent that notes where it was when it was called; so do its children."""

    async def where(self: Agent, payload: Any) -> None:
        diary.write((payload, [name for _, name in self.self_path]))

    return diary.agent(where=where, **members)


async def family(app: App, cls: type[Any]) -> tuple[Any, Any, Any]:
    """A parent, its child and the child of that."""
    parent: Any = app.agent(cls, "p")
    child = await parent.sub_agent(cls, "c")
    return parent, child, await child.sub_agent(cls, "d")


async def rows_of(app: App, *ids: str) -> dict[str, int]:
    """How many rows each table has of these agents."""
    store, found = (await app.open()).store, dict[str, int]()
    for table in TABLES:
        sql = f"SELECT COUNT(*) FROM {table.name} WHERE agent IN ({', '.join('?' * len(ids))})"
        [(count,)] = await store.fetch(sql, *ids)
        found |= {table.name: count} if count else {}
    return found


async def in_memory(app: App) -> set[str]:
    return {address.id for address in (await app.open())._live}


# --- timers


@pytest.mark.agent_case(262)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_timers_run_in_the_child_that_set_them_also_after_a_restart(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := keeper(diary))
    for one in (await family(app, cls))[1:]:
        await one.schedule(10, "where", "once")
        await one.schedule("* * * * *", "where", "cron")
        await one.schedule_every(45, "where", "often")
    # When nobody asks for any of them, and the time comes
    app = await start(cls)
    await move(app, clock, 60)
    places = (["p", "c"], ["p", "c", "d"])
    assert sorted(diary.lines) == sorted((kind, at) for kind in ("once", "cron", "often") for at in places)
    # Then their parent was not needed for it
    assert (await app.open()).live(Address(cls.__name__, "p")) is None
    await move(app, clock, 60)
    assert Counter(kind for kind, _ in diary.lines) == {"once": 2, "cron": 4, "often": 4}


@pytest.mark.agent_case(263)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_timers_are_listed_kept_once_and_cancelled_by_their_own_agent(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    parent, child, deep = await family(app, cls)
    timer = await child.schedule(10, "note", "child", idempotent=True)
    assert (await child.schedule(10, "note", "child", idempotent=True)).id == timer.id
    other = await deep.schedule(10, "note", "child", idempotent=True)
    assert other.id != timer.id
    for one, own in ((parent, []), (child, [timer]), (deep, [other])):
        assert await one.list_schedules() == own
    for one in (parent, deep):
        assert await one.get_schedule(timer.id) is None
        assert not await one.cancel_schedule(timer.id)
    assert await child.cancel_schedule(timer.id)
    await move(app, clock, 10)
    assert [(item.id, item.payload) for item in diary.items] == [(other.id, "child")]


@pytest.mark.agent_case(264)
@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize("how", ["deleted", "destroyed", "erased"])
async def test_the_timers_of_all_below_go_with_whoever_is_deleted(
    start: Open, diary: Diary, clock: ManualClock, how: str
) -> None:
    app = await start(cls := keeper(diary))
    parent, child, deep = await family(app, cls)
    other: Any = await app.agent(cls, "other").sub_agent(cls, "c")
    for one in (child, deep, other):
        await one.schedule(10, "where")
        await one.schedule_every(10, "where")
    if how == "deleted":
        await parent.delete_sub_agent(cls, "c")
    elif how == "destroyed":
        await child.destroy()
    else:
        await app.erase(cls, "p")
    assert await rows_of(app, child.id, deep.id) == {}
    await move(app, clock, 10)
    assert diary.lines == [(None, ["other", "c"])] * 2


@pytest.mark.agent_case(266)
@pytest.mark.parametrize("kind", ["once", "cron", "often"])
async def test_a_timer_of_a_child_may_cancel_itself(
    start: Open, diary: Diary, clock: ManualClock, kind: str
) -> None:
    async def stop(self: Agent, payload: Any, item: Any) -> None:
        diary.write(await self.cancel_schedule(item.id))

    app = await start(cls := diary.agent(stop=stop))
    _, _, deep = await family(app, cls)
    if kind == "often":
        await deep.schedule_every(60, "stop")
    else:
        await deep.schedule("* * * * *" if kind == "cron" else 60, "stop")
    await move(app, clock, 60)
    assert diary.lines == [True]
    await move(app, clock, 600)
    assert (diary.lines, await deep.list_schedules()) == ([True], [])


@pytest.mark.agent_case(154, 158, 267)
@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize("where", ["timer", "job", "fiber"])
async def test_a_child_that_destroys_itself_takes_everything_of_its_own_along(
    start: Open, diary: Diary, clock: ManualClock, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    async def end(self: Agent, *given: Any) -> None:
        diary.write(self.name)
        await self.destroy()

    app = await start(cls := keeper(diary, end=end))
    parent, child, deep = await family(app, cls)
    # Given a child with timers, jobs and fibers, and so has the one below it
    for one in (child, deep):
        agent, work = await live(one), Work()
        await one.schedule_every(3600, "where")
        await agent.start_fiber("import", work)
        await work.began.wait()
        agent.run_fiber("plain", work)
    sibling = await parent.sub_agent(cls, "sibling")
    await sibling.schedule(20, "where", "still here")
    # When it destroys itself in something that nobody waits for
    if where == "timer":
        await child.schedule(10, "end")
    elif where == "job":
        await child.queue("end")
    else:
        agent = await live(child)
        agent.run_fiber("end", agent.end)
    await move(app, clock, 10)

    async def is_gone() -> bool:
        return not await parent.has_sub_agent(cls, "c")

    await until(is_gone)
    # Then nothing of it is left, for anybody to come back to
    assert [one.name for one in await parent.list_sub_agents()] == ["sibling"]
    assert await rows_of(app, child.id, deep.id) == {}
    await quiet(app)
    assert (diary.errors, caplog.messages) == ([], [])
    app = await start(cls)
    await move(app, clock, 7200)
    assert diary.lines == ["c", ("still here", ["p", "sibling"])]


@pytest.mark.agent_case(268)
async def test_what_is_told_of_timers_names_the_child(start: Open, diary: Diary, clock: ManualClock) -> None:
    app = await start(cls := diary.agent())
    _, child, deep = await family(app, cls)
    events = record_events(app, "schedule:*")
    for one in (child, deep):
        await one.schedule(10, "note")
    timer = await deep.schedule(99, "note")
    await deep.cancel_schedule(timer.id)
    await move(app, clock, 10)
    told = [(event.type, event.id, event.name) for event in events]
    assert told == [
        ("schedule:create", child.id, "c"),
        ("schedule:create", deep.id, "d"),
        ("schedule:create", deep.id, "d"),
        ("schedule:cancel", deep.id, "d"),
        *[("schedule:execute", id, name) for _, id, name in sorted(told[4:])],
    ]
    assert {id for _, id, _ in told[4:]} == {child.id, deep.id}


# --- staying in memory


@pytest.mark.agent_case(269)
async def test_a_child_that_is_held_stays_in_memory_whether_its_parents_do_or_not(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent(), idle_after=IDLE)
    _, _, deep = await family(app, cls)

    async def pass_time() -> None:
        """More than enough for an idle agent to leave."""
        for _ in range(8):
            await move(app, clock, IDLE / 2)

    # Given a child that is held twice
    agent = await live(deep)
    first, second = agent.keep_alive(), agent.keep_alive()
    await pass_time()
    assert await in_memory(app) == {deep.id}
    # Then each hold counts, however it is let go
    first.release()
    with pytest.raises(ValueError, match="no"):
        await agent.keep_alive_while(lambda: int("no"))
    assert await agent.keep_alive_while(lambda: 5) == 5
    await pass_time()
    assert await in_memory(app) == {deep.id}
    second.release()
    await pass_time()
    assert await in_memory(app) == set()


@pytest.mark.agent_case(269)
async def test_a_child_that_is_held_keeps_the_family_with_this_process(
    postgres_url: str, diary: Diary, clock: ManualClock
) -> None:
    async with App(cls := diary.agent(), store=postgres_url, clock=clock, grace=0.0) as app:
        parent, child, deep = await family(app, cls)
        directory = await app.open()
        with (await live(deep)).keep_alive():
            for one in (child, parent):
                await directory.evict(Address(cls.__name__, one.name, _above(one)))
            claimed = await directory.store.fetch("SELECT agent FROM claims")
            assert claimed == [(parent.id,)]
            assert await child.list_sub_agents()  # and whoever comes back finds it


def _above(handle: Any) -> tuple[tuple[str, str], ...]:
    return () if handle.name == "p" else (("Keeper", "p"),)


# --- fibers


@pytest.mark.agent_case(270)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_fibers_of_children_are_recovered_without_their_parents(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    async def on_fiber_recovered(self: Agent, ctx: FiberRecoveryContext) -> None:
        diary.write((f"{ctx.name} {ctx.snapshot}", [name for _, name in self.self_path]))
        await self.schedule(5, "where", f"goes on with {ctx.name}")

    app = await start(cls := keeper(diary, on_fiber_recovered=on_fiber_recovered))
    places, both = {"c": ["p", "c"], "d": ["p", "c", "d"]}, ("plain", "managed")
    parent, child, deep = await family(app, cls)
    gone = await parent.sub_agent(cls, "gone")
    # Given plain and managed fibers at two levels, and those of a child that is deleted
    for one in (child, deep, gone):
        agent = await live(one)
        for kind in both:
            work = Work(stash=1)
            if kind == "managed":
                await agent.start_fiber(kind, work)
            else:
                agent.run_fiber(kind, work)
            await work.began.wait()
    await parent.delete_sub_agent(cls, "gone")
    # When the next process starts and nobody asks for anything
    app = await start(cls)
    await quiet(app)
    assert sorted(diary.lines) == sorted((f"{kind} 1", at) for kind in both for at in places.values())
    assert await in_memory(app) == {child.id, deep.id}
    # Then what the hook has scheduled goes on in the child
    diary.lines.clear()
    await move(app, clock, 5)
    assert sorted(diary.lines) == sorted(
        (f"goes on with {kind}", at) for kind in both for at in places.values()
    )
    assert await rows_of(app, gone.id) == {}
