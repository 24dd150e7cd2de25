"""Holding an agent in memory: a count, who lets go, and who stays because of it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everthink import App
from everthink.errors import StoreClosed
from everthink.holds import Holds
from everthink.testing.clock import ManualClock
from tests.runtime.conftest import Open
from tests.support.agents import live
from tests.support.timers import Diary, move

pytestmark = pytest.mark.anyio

NOW = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
IDLE = 60.0
"""Seconds after which an agent that nobody needs leaves memory in these tests."""


async def is_awake(app: App) -> bool:
    return len(await app.open()) > 0


async def pass_time(app: App, clock: ManualClock, seconds: float = 4 * IDLE) -> None:
    """More than enough for an idle agent to leave."""
    for _ in range(8):
        await move(app, clock, seconds / 8)


# --- the count


@pytest.mark.agent_case(128)
async def test_holding_raises_the_count_and_writes_no_timer(start: Open, diary: Diary) -> None:
    app = await start(cls := diary.agent())
    agent = await live(app.agent(cls, "a"))
    assert agent._home.holds.count == 0
    hold = agent.keep_alive()
    assert agent._home.holds.count == 1
    assert await agent.list_schedules() == []
    hold.release()
    assert agent._home.holds.count == 0


@pytest.mark.agent_case(129)
def test_letting_go_counts_once_and_holds_are_independent() -> None:
    holds = Holds()
    first, second = holds.take(), holds.take()
    assert holds.count == 2
    first.release()
    first.release()
    assert holds.count == 1
    third = holds.take()
    second.release()
    assert (holds.count, third.is_released) == (1, False)
    third.release()
    second.release()
    assert holds.count == 0


async def test_a_hold_is_a_context_of_either_kind_and_may_be_awaited() -> None:
    holds = Holds()
    with holds.take():
        assert holds.count == 1
    async with holds.take() as hold:
        assert (holds.count, hold.is_released) == (1, False)
        hold.release()
        assert holds.count == 0
    assert holds.count == 0
    hold = await holds.take()
    assert holds.count == 1
    hold.release()
    assert holds.count == 0


@pytest.mark.agent_case(130)
@pytest.mark.parametrize("is_async", [True, False])
async def test_holding_while_something_runs_gives_its_result_and_lets_go(
    start: Open, diary: Diary, is_async: bool
) -> None:
    app = await start(cls := diary.agent())
    agent = await live(app.agent(cls, "a"))

    def work() -> Any:
        assert agent._home.holds.count == 1
        return later() if is_async else 42

    async def later() -> int:
        await asyncio.sleep(0)
        assert agent._home.holds.count == 1
        return 42

    assert await agent.keep_alive_while(work) == 42
    assert agent._home.holds.count == 0


@pytest.mark.agent_case(130)
@pytest.mark.parametrize("is_async", [True, False])
async def test_holding_while_something_fails_lets_go_too(start: Open, diary: Diary, is_async: bool) -> None:
    app = await start(cls := diary.agent())
    agent = await live(app.agent(cls, "a"))

    async def later() -> None:
        raise ValueError("no")

    def work() -> Any:
        if is_async:
            return later()
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await agent.keep_alive_while(work)
    assert agent._home.holds.count == 0


async def test_a_hold_taken_through_a_handle_is_the_agent_s(start: Open, diary: Diary) -> None:
    app = await start(cls := diary.agent())
    hold = (await live(app.agent(cls, "a"))).keep_alive()
    agent = await live(app.agent(cls, "a"))
    assert agent._home.holds.count == 1
    hold.release()
    assert agent._home.holds.count == 0


# --- who stays


@pytest.mark.agent_case(131)
async def test_an_agent_that_is_held_stays_in_memory_and_may_leave_afterwards(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent(), idle_after=IDLE)
    agent = await live(app.agent(cls, "a"))
    hold = agent.keep_alive()
    await pass_time(app, clock)
    assert await live(app.agent(cls, "a")) is agent
    hold.release()
    await pass_time(app, clock)
    assert not await is_awake(app)
    assert await live(app.agent(cls, "a")) is not agent


@pytest.mark.agent_case(132)
async def test_with_several_holds_it_stays_until_the_last_and_taking_one_again_keeps_it(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent(), idle_after=IDLE)
    agent = await live(app.agent(cls, "a"))
    first, second = agent.keep_alive(), agent.keep_alive()
    first.release()
    await pass_time(app, clock)
    assert await is_awake(app)
    second.release()
    third = agent.keep_alive()
    await pass_time(app, clock)
    assert await is_awake(app)
    third.release()
    await pass_time(app, clock)
    assert not await is_awake(app)


@pytest.mark.agent_case(133)
async def test_after_the_release_the_next_timer_is_what_wakes_the_agent(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent(), idle_after=IDLE)
    agent = await live(app.agent(cls, "a"))
    hold = agent.keep_alive()
    await agent.schedule(NOW + timedelta(hours=1), "note", "tea")
    hold.release()
    await pass_time(app, clock)
    assert not await is_awake(app)
    assert diary.lines == []

    await move(app, clock, 3600 - 4 * IDLE)
    assert diary.lines == ["tea"]
    await pass_time(app, clock)
    assert not await is_awake(app)


@pytest.mark.parametrize("kind", ["timer", "job"])
async def test_an_agent_stays_while_a_callback_runs(
    start: Open, diary: Diary, clock: ManualClock, kind: str
) -> None:
    app = await start(cls := diary.agent(), idle_after=IDLE)
    agent = await live(app.agent(cls, "a"))
    await (agent.queue("wait", "x") if kind == "job" else agent.schedule(0, "wait", "x"))
    await diary.until(1)
    for _ in range(8):
        await clock.advance(IDLE / 2)
    assert await live(app.agent(cls, "a")) is agent
    diary.gate.set()
    await agent._home.jobs.idle()
    await pass_time(app, clock)
    assert not await is_awake(app)
    assert diary.lines == ["x"]


async def test_holds_do_not_survive_a_restart(start: Open, diary: Diary, clock: ManualClock) -> None:
    app = await start(cls := diary.agent(), idle_after=IDLE)
    (await live(app.agent(cls, "a"))).keep_alive()
    app = await start(cls, idle_after=IDLE)
    agent = await live(app.agent(cls, "a"))
    assert agent._home.holds.count == 0


async def test_code_that_outlived_its_agent_writes_nothing_beside_the_next_one(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    # Given an object of an agent that has left memory, and the agent that has taken its place
    app = await start(cls := diary.agent(), idle_after=IDLE)
    agent = await live(app.agent(cls, "a"))
    await pass_time(app, clock)
    assert not await is_awake(app)
    await app.agent(cls, "a").set_state({"n": 1})
    # When the object is used, it is told
    writes = (agent.set_state({"n": 2}), agent.queue("note", "late"), agent.schedule(60, "note"))
    for write in writes:
        with pytest.raises(StoreClosed, match=r"a has left memory, and this object is not it any more\."):
            await write
    # Then nothing was lost or doubled
    handle = app.agent(cls, "a")
    assert (handle.state, await handle.get_queues(), await handle.list_schedules()) == ({"n": 1}, [], [])
