"""Records of fibers: looked up, forgotten, resolved by hand."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from everthink.errors import InvalidFiber
from everthink.fibers import FiberAborted, FiberCompleted, FiberContext, FiberFailed, FiberInterrupted
from everthink.testing.clock import ManualClock
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.fibers import Work, worker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def agent(open_app: OpenApp) -> Any:
    app = await open_app(cls := worker())
    return await live(app.agent(cls))


# --- looking up and forgetting


class Archive:
    """An agent with a fiber in every state, a second apart; they were settled in the order of SETTLED."""

    SETTLED = ("interrupted", "completed", "error", "aborted")
    ALL = ("running", "aborted", "error", "completed", "interrupted")

    def __init__(self, agent: Any, clock: ManualClock, running: Work) -> None:
        self.agent, self.clock, self.running = agent, clock, running

    async def names(self, **filters: Any) -> list[str]:
        return [found.name for found in await self.agent.list_fibers(**filters)]


@pytest.fixture
async def archive(open_app: OpenApp) -> Archive:
    clock = ManualClock()
    app = await open_app(cls := worker(on_fiber_recovered=lambda self, ctx: None), clock=clock)
    agent, cut = await live(app.agent(cls)), Work()
    await agent.start_fiber("interrupted", cut, fiber_id="interrupted", idempotency_key="key")
    await cut.began.wait()
    await app.evict(cls, "default")
    agent = await live(app.agent(cls))
    await clock.advance(1)
    await agent.start_fiber("completed", lambda ctx: None, fiber_id="completed", wait_for_completion=True)
    await clock.advance(1)
    await agent.start_fiber("error", lambda ctx: 1 / 0, fiber_id="error", wait_for_completion=True)
    await clock.advance(1)
    deaf, running = Work(), Work()
    await agent.start_fiber("aborted", deaf, fiber_id="aborted")
    await agent.cancel_fiber("aborted")
    deaf.may_end.set()
    await clock.advance(1)
    await agent.start_fiber("running", running, fiber_id="running")
    await running.began.wait()
    return Archive(agent, clock, running)


@pytest.mark.agent_case(179)
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, Archive.ALL),
        ({"status": "error"}, ["error"]),
        ({"status": ["completed", "interrupted"]}, ["completed", "interrupted"]),
        ({"status": []}, []),
        ({"status": "pending"}, []),
        ({"name": "completed"}, ["completed"]),
        ({"name": "completed", "status": "error"}, []),
        ({"limit": 2}, ["running", "aborted"]),
        ({"limit": 0}, ["running"]),
        ({"limit": -3}, ["running"]),
        ({"status": ["error", "aborted"], "limit": 1}, ["aborted"]),
    ],
)
async def test_fibers_are_listed_newest_first(archive: Archive, filters: dict[str, Any], found: Any) -> None:
    assert await archive.names(**filters) == list(found)


@pytest.mark.agent_case(179)
async def test_fifty_are_listed_unless_asked_and_never_more_than_a_hundred(agent: Any) -> None:
    await asyncio.gather(*(agent.start_fiber("work", lambda ctx: None) for _ in range(105)))
    assert len(await agent.list_fibers()) == 50
    assert len(await agent.list_fibers(limit=1000)) == 100


@pytest.mark.agent_case(179)
async def test_a_fiber_is_found_by_its_id_and_by_its_key(archive: Archive) -> None:
    agent = archive.agent
    assert (await agent.inspect_fiber("interrupted")).status == "interrupted"
    assert (await agent.inspect_fiber_by_key("key")).fiber_id == "interrupted"
    assert await agent.inspect_fiber("key") is None
    assert await agent.inspect_fiber_by_key("interrupted") is None


async def test_fibers_of_run_fiber_have_no_record(agent: Any) -> None:
    async def look(ctx: FiberContext) -> Any:
        return await agent.inspect_fiber(ctx.id), await agent.cancel_fiber(ctx.id), await agent.list_fibers()

    assert await agent.run_fiber("look", look) == (None, False, [])


@pytest.mark.agent_case(179)
@pytest.mark.parametrize(
    ("filters", "gone"),
    [
        ({}, ["completed", "error", "aborted"]),
        ({"status": "interrupted"}, ["interrupted"]),
        ({"status": ["interrupted", "error"]}, ["interrupted", "error"]),
        ({"status": ["running", "pending"]}, []),
        ({"status": []}, []),
        ({"limit": 2}, ["completed", "error"]),
        ({"limit": 0}, ["completed"]),
        ({"status": Archive.ALL, "limit": 3}, ["interrupted", "completed", "error"]),
    ],
)
async def test_fibers_that_are_over_are_forgotten_oldest_first(
    archive: Archive, filters: dict[str, Any], gone: list[str]
) -> None:
    assert await archive.agent.delete_fibers(**filters) == len(gone)
    assert await archive.names() == [name for name in Archive.ALL if name not in gone]


@pytest.mark.agent_case(179)
async def test_only_those_settled_before_a_time_are_forgotten(archive: Archive) -> None:
    limit = (await archive.agent.inspect_fiber("error")).settled_at
    assert await archive.agent.delete_fibers(settled_before=limit) == 1
    assert await archive.names() == ["running", "aborted", "error", "interrupted"]


@pytest.mark.agent_case(179)
async def test_a_forgotten_fiber_can_be_started_again(archive: Archive) -> None:
    await archive.agent.delete_fibers(status="interrupted")
    again = await archive.agent.start_fiber("again", lambda ctx: None, fiber_id="i", idempotency_key="key")
    assert again.accepted


# --- resolving


@pytest.mark.agent_case(185)
@pytest.mark.parametrize(
    ("outcome", "facts"),
    [
        (FiberCompleted(), ("completed", None, "half", {"n": 1})),
        (FiberCompleted(snapshot="all", metadata={"n": 2}), ("completed", None, "all", {"n": 2})),
        (FiberCompleted(snapshot=None, metadata=None), ("completed", None, None, None)),
        (FiberFailed("lost"), ("error", "lost", "half", {"n": 1})),
        (FiberFailed(snapshot=[1]), ("error", None, [1], {"n": 1})),
        (FiberAborted("enough"), ("aborted", "enough", "half", {"n": 1})),
        (FiberInterrupted("ask Ann"), ("interrupted", "ask Ann", "half", {"n": 1})),
    ],
)
async def test_an_interrupted_fiber_can_be_resolved_later(
    open_app: OpenApp, outcome: Any, facts: tuple[Any, ...]
) -> None:
    clock = ManualClock()
    app = await open_app(cls := worker(on_fiber_recovered=lambda self, ctx: None), clock=clock)
    work = Work(stash="half")
    await app.agent(cls).start_fiber("work", work, fiber_id="f", metadata={"n": 1})
    await work.began.wait()
    await app.evict(cls, "default")
    agent = await live(app.agent(cls))
    found = await agent.inspect_fiber("f")
    assert found.status == "interrupted"

    await clock.advance(60)
    assert await agent.resolve_fiber("f", outcome) is True
    over = await agent.inspect_fiber("f")
    assert (over.status, over.error, over.snapshot, over.metadata) == facts
    assert over.settled_at - found.settled_at == timedelta(seconds=60)
    # Only from interrupted
    assert await agent.resolve_fiber("f", FiberCompleted()) is (facts[0] == "interrupted")


@pytest.mark.agent_case(185)
@pytest.mark.parametrize("id", ["running", "completed", "error", "aborted", "unknown"])
async def test_only_an_interrupted_fiber_can_be_resolved(archive: Archive, id: str) -> None:
    before = await archive.agent.inspect_fiber(id)
    assert await archive.agent.resolve_fiber(id, FiberFailed("no")) is False
    assert await archive.agent.inspect_fiber(id) == before


@pytest.mark.parametrize(
    "outcome",
    [None, "completed", {"status": "completed"}, FiberCompleted(metadata=[])],
)
async def test_an_outcome_that_makes_no_sense_is_refused(archive: Archive, outcome: Any) -> None:
    with pytest.raises(InvalidFiber):
        await archive.agent.resolve_fiber("interrupted", outcome)
    assert (await archive.agent.inspect_fiber("interrupted")).status == "interrupted"
