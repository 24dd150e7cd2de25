"""`resume_fiber`: an interrupted fiber goes on in its own row."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.errors import InvalidFiber, StoreClosed
from everthink.fibers import FiberContext, FiberFailed, FiberRecoveryContext
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.fibers import Fibers, Recovered, Work, all_ended, cut, worker
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio


class Steps:
    """Work in four steps, with a checkpoint after each; it stops before `pause` until it may go on."""

    def __init__(self, pause: int | None = None) -> None:
        self.done: list[int] = []
        self.pause = pause
        self.paused = asyncio.Event()

    async def __call__(self, ctx: FiberContext) -> str:
        for step in range(ctx.snapshot or 0, 4):
            if step == self.pause:
                self.paused.set()
                await asyncio.Event().wait()
            self.done.append(step)
            await ctx.stash(step + 1)
        return "all done"

    @property
    def hook(self) -> Any:
        def on_fiber_recovered(agent: Think, ctx: FiberRecoveryContext) -> None:
            agent.resume_fiber(ctx.id, self)

        return on_fiber_recovered


async def start(agent: Any, steps: Steps, *, managed: bool) -> None:
    if managed:
        await agent.start_fiber("steps", steps, fiber_id="f", idempotency_key="k")
    else:
        agent.run_fiber("steps", steps)


@pytest.mark.parametrize("managed", [False, True])
async def test_work_cut_off_again_and_again_does_each_step_once(
    open_app: OpenApp, tmp_path: Path, managed: bool
) -> None:
    steps = Steps(pause=1)
    app = await open_app(cls := worker(on_fiber_recovered=steps.hook))
    await start(await live(app.agent(cls)), steps, managed=managed)
    await steps.paused.wait()
    (first,) = Fibers(tmp_path).all()
    for pause in (2, 3, None):
        await app.evict(cls, "default")
        steps.pause = pause
        steps.paused.clear()
        agent = await live(app.agent(cls))
        if pause is not None:
            await steps.paused.wait()
            (row,) = Fibers(tmp_path).all()
            assert (row["id"], row["status"], row["is_open"]) == (first["id"], "running", 1)
    await all_ended(agent)
    assert steps.done == [0, 1, 2, 3]
    if managed:
        found = await agent.start_fiber("late", Work(), idempotency_key="k", wait_for_completion=True)
        assert (found.fiber_id, found.status, found.snapshot) == ("f", "completed", 4)
        assert (found.error, found.accepted) == (None, False)
    assert Fibers(tmp_path).open_names() == []


async def test_the_caller_gets_the_result(open_app: OpenApp) -> None:
    steps, results = Steps(pause=2), []

    async def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        steps.pause = None
        results.append(await self.resume_fiber(ctx.id, steps))

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await start(await live(app.agent(cls)), steps, managed=False)
    await steps.paused.wait()
    await app.evict(cls, "default")
    await live(app.agent(cls))
    assert results == ["all done"]


@pytest.mark.parametrize("managed", [False, True])
async def test_a_resumed_fiber_that_fails_is_settled_like_any_other(
    open_app: OpenApp, tmp_path: Path, managed: bool
) -> None:
    def fail(ctx: FiberContext) -> None:
        raise ValueError(f"no way on from {ctx.snapshot}")

    def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        self.resume_fiber(ctx.id, fail)

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work", stash="here", managed=managed)
    events = record_events(app)
    agent = await live(app.agent(cls))
    await all_ended(agent)
    if managed:
        found = await agent.inspect_fiber("work")
        assert (found.status, found.error) == ("error", "no way on from here")
    assert Fibers(tmp_path).open_names() == []
    told = [(event.type, event.payload["managed"]) for event in events if event.channel == "agents:fiber"]
    assert told == [
        ("fiber:recovery:detected", managed),
        ("fiber:run:interrupted", managed),
        ("fiber:recovery:attempt", managed),
        ("fiber:recovery:handled", managed),
        ("fiber:run:started", managed),
        ("fiber:run:failed", managed),
    ]


@pytest.mark.parametrize("managed", [False, True])
@pytest.mark.parametrize("answer", [ValueError("after all"), FiberFailed("after all")])
async def test_what_the_hook_says_after_resuming_does_not_end_the_fiber(
    open_app: OpenApp, tmp_path: Path, managed: bool, answer: Any
) -> None:
    work = Work()

    def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> Any:
        self.resume_fiber(ctx.id, work)
        if isinstance(answer, Exception):
            raise answer
        return answer

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work", managed=managed)
    agent = await live(app.agent(cls))
    await work.began.wait()
    assert Fibers(tmp_path).fiber_statuses() == {"work": "running"}
    assert agent._home.fibers.rescue.retry_at is None
    work.may_end.set()
    await all_ended(agent)
    assert work.returned == 1
    assert Fibers(tmp_path).fiber_statuses() == ({"work": "completed"} if managed else {})


@pytest.mark.parametrize("managed", [False, True])
async def test_a_fiber_that_was_resumed_for_another_is_not_recovered(
    open_app: OpenApp, tmp_path: Path, managed: bool
) -> None:
    # Given two fibers, and a hook that goes on with both when it gets the first
    seen, ids, work = list[str](), list[str](), Work()

    def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        seen.append(ctx.name)
        self.resume_fiber(ids[1], work)

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "a", "b", managed=managed)
    ids += [row["id"] for row in Fibers(tmp_path).all()]

    # When the scan comes to the second, then it runs already
    agent = await live(app.agent(cls))
    await work.began.wait()
    assert seen == ["a"]
    work.may_end.set()
    await all_ended(agent)
    assert work.returned == 1
    if managed:
        assert (await agent.inspect_fiber("b")).status == "completed"


async def test_an_interrupted_record_can_be_resumed_later(open_app: OpenApp) -> None:
    app = await open_app(cls := worker(on_fiber_recovered=Recovered().hook))
    await cut(app, cls, "work", stash={"step": 2}, managed=True)
    agent = await live(app.agent(cls))
    assert (await agent.inspect_fiber("work")).status == "interrupted"

    work = Work("finished")
    running = agent.resume_fiber("work", work)
    await work.began.wait()
    found = await agent.inspect_fiber("work")
    assert (found.status, found.settled_at) == ("running", None)
    assert work.calls[0].snapshot == {"step": 2}
    waiting = asyncio.create_task(agent.start_fiber("w", Work(), fiber_id="work", wait_for_completion=True))
    work.may_end.set()
    assert await running == "finished"
    assert (await waiting).status == "completed"


async def test_a_resumed_fiber_can_be_cancelled(open_app: OpenApp) -> None:
    app = await open_app(cls := worker(on_fiber_recovered=Recovered().hook))
    await cut(app, cls, "work", managed=True)
    agent, work = await live(app.agent(cls)), Work()
    agent.resume_fiber("work", work)
    await work.began.wait()
    assert await agent.cancel_fiber("work", "enough") is True
    assert work.calls[0].signal.reason == "enough"
    work.may_end.set()
    await all_ended(agent)
    assert (await agent.inspect_fiber("work")).status == "aborted"


@pytest.mark.parametrize("id", ["unknown", "completed"])
async def test_only_an_interrupted_fiber_can_be_resumed(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture, id: str
) -> None:
    app = await open_app(cls := worker())
    agent, work = await live(app.agent(cls)), Work()
    await agent.start_fiber("work", lambda ctx: None, fiber_id="completed", wait_for_completion=True)
    with pytest.raises(InvalidFiber, match=f"Fiber '{id}' is not interrupted"):
        await agent.resume_fiber(id, work)
    assert work.calls == []
    assert agent._home.holds.count == 0

    # Nobody has to wait for it, so it is logged as well
    with caplog.at_level(logging.ERROR, "everthink.fibers"):
        agent.resume_fiber(id, work)
        await all_ended(agent)
    assert "is not interrupted" in caplog.text


async def test_a_fiber_that_runs_cannot_be_resumed(open_app: OpenApp) -> None:
    app = await open_app(cls := worker())
    agent, work, other = await live(app.agent(cls)), Work(), Work()
    await agent.start_fiber("work", work, fiber_id="f")
    with pytest.raises(InvalidFiber, match="runs already"):
        agent.resume_fiber("f", other)
    await app.close()
    with pytest.raises(StoreClosed):
        agent.resume_fiber("f", other)
    assert other.calls == []


async def test_a_fiber_that_the_hook_begins_is_stored_before_the_old_one_is_forgotten(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a hook that begins a new fiber and returns at once
    work = Work()

    def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        self.run_fiber("new", work)

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "old")

    # When somebody looks at the moment the old one is gone, then the new one is there
    seen: list[list[str]] = []
    app.events.subscribe(lambda _: seen.append(Fibers(tmp_path).names()), type="fiber:recovery:handled")
    agent = await live(app.agent(cls))
    assert seen == [["new"]]
    work.may_end.set()
    await all_ended(agent)


@pytest.mark.parametrize("kind", ["resumed", "new"])
async def test_a_start_that_fails_leaves_no_fiber_running(
    open_app: OpenApp, tmp_path: Path, kind: str
) -> None:
    # Given start code that raises the first time, after the hook has taken up a fiber
    works: list[Work] = []
    fails = [False, True, False]

    def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        works.append(Work())
        if kind == "resumed":
            self.resume_fiber(ctx.id, works[-1])
        else:
            self.run_fiber(ctx.name, works[-1])

    async def on_start(self: Think, props: Any = None) -> None:
        if works:
            await works[-1].began.wait()
        if fails.pop(0):
            raise ValueError("not today")

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered, on_start=on_start))
    await cut(app, cls, "work")
    with pytest.raises(ValueError, match="not today"):
        await live(app.agent(cls))

    # When it is started again, then the fiber is taken up again, and only that one runs
    agent = await live(app.agent(cls))
    assert len(works) == 2
    for work in works:
        work.may_end.set()
    await all_ended(agent)
    assert [work.returned for work in works] == [0, 1]
    assert Fibers(tmp_path).all() == []


async def test_an_agent_that_comes_back_waits_until_its_fibers_have_stopped(open_app: OpenApp) -> None:
    # Given a fiber that takes its time to stop
    seen, began, may_stop = Recovered(), asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def slow(ctx: FiberContext) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await may_stop.wait()
            order.append("stopped")

    seen.answer = lambda ctx: order.append("recovered")
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    (await live(app.agent(cls))).run_fiber("slow", slow)
    await began.wait()

    # When the agent is dropped, and somebody asks for it at the same moment
    leaving = asyncio.create_task(app.evict(cls, "default"))
    await asyncio.sleep(0)
    coming = asyncio.create_task(live(app.agent(cls)))
    for _ in range(10):
        await asyncio.sleep(0)
    may_stop.set()
    await asyncio.gather(leaving, coming)
    assert order == ["stopped", "recovered"]
