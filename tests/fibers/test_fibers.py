"""Fibers of `run_fiber`: their results, their rows, their checkpoints."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, tool
from everthink.errors import InvalidFiber, NestedTurn, NotInFiber, NotJson, StoreFull
from everthink.fibers.values import FiberContext
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import calls, says
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.fibers import Fibers, Work, all_ended, worker
from tests.support.turns import gated_app, home_of, record_events

pytestmark = pytest.mark.anyio


async def agent_of(open_app: OpenApp, cls: type[Think] | None = None, **options: Any) -> Any:
    app = await open_app(cls := cls or worker(), **options)
    return await live(app.agent(cls))


# --- results and rows


@pytest.mark.agent_case(159)
async def test_a_fiber_returns_its_result_and_leaves_no_row(open_app: OpenApp, tmp_path: Path) -> None:
    agent, work = await agent_of(open_app), Work({"answer": 42})
    running = agent.run_fiber("count", work)
    await work.began.wait()
    assert Fibers(tmp_path).fiber_statuses() == {"count": "running"}

    work.may_end.set()
    assert await running == {"answer": 42}
    assert Fibers(tmp_path).all() == []


@pytest.mark.agent_case(159)
async def test_the_row_is_there_before_the_function_is_called(open_app: OpenApp, tmp_path: Path) -> None:
    agent = await agent_of(open_app)
    assert await agent.run_fiber("look", lambda ctx: Fibers(tmp_path).names()) == ["look"]


@pytest.mark.agent_case(159, 160)
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_error_reaches_the_caller_and_leaves_no_row(
    open_app: OpenApp, tmp_path: Path, is_async: bool
) -> None:
    def fail(ctx: FiberContext) -> None:
        raise ZeroDivisionError("no")

    async def fail_later(ctx: FiberContext) -> None:
        await ctx.stash("so far")
        fail(ctx)

    agent = await agent_of(open_app)
    with pytest.raises(ZeroDivisionError, match="no"):
        await agent.run_fiber("divide", fail_later if is_async else fail)
    assert Fibers(tmp_path).all() == []


async def test_a_fiber_can_be_run_from_outside(open_app: OpenApp) -> None:
    app = await open_app(cls := worker())
    async with app.agent(cls) as agent:
        assert await agent.run_fiber("double", lambda ctx: 2 * 21) == 42


async def test_a_live_fiber_has_no_snapshot(open_app: OpenApp) -> None:
    async def look(ctx: FiberContext) -> Any:
        await ctx.stash("kept")
        return ctx.snapshot, ctx.name, ctx.signal.aborted

    assert await (await agent_of(open_app)).run_fiber("look", look) == (None, "look", False)


@pytest.mark.agent_case(161)
async def test_a_running_fiber_holds_its_agent_in_memory(open_app: OpenApp) -> None:
    app = await open_app(cls := worker())
    home, agent = await home_of(app, cls), await live(app.agent(cls))
    works = [Work(), Work(error=ValueError("broke"))]
    running = [agent.run_fiber("hold", work) for work in works]
    for work in works:
        await work.began.wait()
    assert home.holds.count == 2
    works[0].may_end.set()
    await running[0]
    assert home.holds.count == 1
    works[1].may_end.set()
    with pytest.raises(ValueError, match="broke"):
        await running[1]
    assert home.holds.count == 0


@pytest.mark.agent_case(167)
async def test_fibers_that_nobody_waits_for_run_side_by_side(
    open_app: OpenApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await agent_of(open_app)
    works = [Work(), Work(error=ValueError("broke")), Work()]
    for work in works:
        agent.run_fiber("one of three", work)
    for work in works:
        await work.began.wait()
    assert Fibers(tmp_path).names() == ["one of three"] * 3

    with caplog.at_level(logging.WARNING, "everthink"):
        for work in works:
            work.may_end.set()
        await all_ended(agent)
    assert Fibers(tmp_path).all() == []
    assert [work.returned for work in works] == [1, 0, 1]
    assert "broke" in caplog.text


@pytest.mark.parametrize("began", [False, True])
async def test_a_fiber_that_its_caller_cancels_leaves_no_row(
    open_app: OpenApp, tmp_path: Path, began: bool
) -> None:
    agent, work = await agent_of(open_app), Work()
    running = agent.run_fiber("unwanted", work)
    if began:
        await work.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await agent._home.store.apply([])  # behind those before it
    assert len(work.calls) == began
    assert Fibers(tmp_path).all() == []
    assert agent._home.holds.count == 0


async def test_a_fiber_cancelled_while_its_row_is_written_leaves_no_row(tmp_path: Path) -> None:
    work = Work()
    async with gated_app(tmp_path, cls := worker()) as (app, store):
        agent = await live(app.agent(cls))
        store.hold()
        running = agent.run_fiber("unwanted", work)
        await store.until_waiting()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        store.release()
        await store.apply([])  # behind those before it
        assert work.calls == []
        assert Fibers(tmp_path).all() == []


async def test_a_fiber_whose_row_cannot_be_written_does_not_run(tmp_path: Path) -> None:
    work = Work()
    async with gated_app(tmp_path, cls := worker()) as (app, store):
        agent = await live(app.agent(cls))
        store.refuse(lambda commit: StoreFull("No space left."))
        with pytest.raises(StoreFull):
            await agent.run_fiber("unstored", work)
        assert work.calls == []
        assert agent._home.holds.count == 0


# --- checkpoints


@pytest.mark.agent_case(162)
async def test_a_checkpoint_is_durable_when_stash_returns(open_app: OpenApp, tmp_path: Path) -> None:
    agent = await agent_of(open_app)

    async def steps(ctx: FiberContext) -> list[Any]:
        seen: list[Any] = []
        for data in ({"step": 1, "left": [2, 3]}, {"step": 2}, None, "text"):
            await ctx.stash(data)
            seen.append(Fibers(tmp_path).snapshots()["steps"])
        await agent.stash({"through": "the agent"})
        return [*seen, Fibers(tmp_path).snapshots()["steps"]]

    assert await agent.run_fiber("steps", steps) == [
        {"step": 1, "left": [2, 3]},
        {"step": 2},
        None,
        "text",
        {"through": "the agent"},
    ]


@pytest.mark.agent_case(163)
async def test_each_checkpoint_goes_to_the_fiber_that_made_it(open_app: OpenApp, tmp_path: Path) -> None:
    agent, all_in, looked = await agent_of(open_app), asyncio.Barrier(4), asyncio.Event()

    async def work(ctx: FiberContext) -> None:
        await all_in.wait()
        await agent.stash({"mine": ctx.name})
        await asyncio.gather(asyncio.sleep(0), agent.stash({"still mine": ctx.name}))
        await all_in.wait()
        await looked.wait()

    running = [agent.run_fiber(name, work) for name in ("a", "b", "c")]
    await all_in.wait()
    await all_in.wait()
    assert Fibers(tmp_path).snapshots() == {name: {"still mine": name} for name in ("a", "b", "c")}
    looked.set()
    await asyncio.gather(*running)


@pytest.mark.agent_case(163)
async def test_a_fiber_inside_a_fiber_keeps_its_own_checkpoint(open_app: OpenApp, tmp_path: Path) -> None:
    agent = await agent_of(open_app)

    async def inner(ctx: FiberContext) -> dict[str, Any]:
        await agent.stash("inner")
        return Fibers(tmp_path).snapshots()

    async def outer(ctx: FiberContext) -> list[dict[str, Any]]:
        await agent.stash("outer, before")
        inside = await agent.run_fiber("inner", inner)
        await agent.stash("outer, after")
        return [inside, Fibers(tmp_path).snapshots()]

    assert await agent.run_fiber("outer", outer) == [
        {"outer": "outer, before", "inner": "inner"},
        {"outer": "outer, after"},
    ]


@pytest.mark.agent_case(164)
async def test_a_wrapper_of_the_framework_stays_with_its_fiber(open_app: OpenApp, tmp_path: Path) -> None:
    agent = await agent_of(open_app)

    async def internal(ctx: FiberContext) -> list[dict[str, Any]]:
        first = Fibers(tmp_path).snapshots()
        await agent.stash("through the agent")
        second = Fibers(tmp_path).snapshots()
        await ctx.stash("through the context")
        plain = await agent.run_fiber("plain", other)
        return [first, second, plain]

    async def other(ctx: FiberContext) -> dict[str, Any]:
        await agent.stash("plain")
        return Fibers(tmp_path).snapshots()

    run = agent._home.fibers.run(
        "internal", internal, snapshot=None, wrap=lambda data: {"kind": "reply", "user": data}
    )
    assert await run == [
        {"internal": {"kind": "reply", "user": None}},
        {"internal": {"kind": "reply", "user": "through the agent"}},
        {"internal": {"kind": "reply", "user": "through the context"}, "plain": "plain"},
    ]


@pytest.mark.agent_case(165)
async def test_a_failure_after_the_first_checkpoint_of_the_framework_leaves_no_row(
    open_app: OpenApp, tmp_path: Path
) -> None:
    agent = await agent_of(open_app)

    def fail(ctx: FiberContext) -> None:
        assert Fibers(tmp_path).snapshots() == {"internal": {"first": True}}
        raise ValueError("broke")

    with pytest.raises(ValueError, match="broke"):
        await agent._home.fibers.run("internal", fail, snapshot={"first": True})
    assert Fibers(tmp_path).all() == []

    # One that cannot be stored begins nothing
    with pytest.raises(NotJson):
        agent._home.fibers.run("internal", fail, snapshot=object())
    assert agent._home.holds.count == 0


@pytest.mark.agent_case(166)
async def test_a_checkpoint_outside_a_fiber_is_refused(open_app: OpenApp) -> None:
    agent = await agent_of(open_app)
    with pytest.raises(NotInFiber, match=r"stash\(\) called outside a fiber"):
        await agent.stash({"where": "nowhere"})


@pytest.mark.agent_case(166)
async def test_a_checkpoint_after_the_end_of_the_fiber_is_refused(open_app: OpenApp) -> None:
    agent, over = await agent_of(open_app), asyncio.Event()

    async def leaves_a_task(ctx: FiberContext) -> list[asyncio.Task[None]]:
        async def late(stash: Any) -> None:
            await over.wait()
            await stash("late")

        return [asyncio.create_task(late(ctx.stash)), asyncio.create_task(late(agent.stash))]

    tasks = await agent.run_fiber("leaves a task", leaves_a_task)
    over.set()
    for task in tasks:
        with pytest.raises(NotInFiber):
            await task


@pytest.mark.agent_case(166)
async def test_a_fiber_of_one_agent_is_no_fiber_of_another(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := worker())
    ann, ben = [await live(app.agent(cls, name)) for name in ("ann", "ben")]

    async def of_ben(ctx: FiberContext) -> None:
        await ann.stash("ann, inside ben")
        await ben.stash("ben")

    async def of_ann(ctx: FiberContext) -> dict[str, Any]:
        with pytest.raises(NotInFiber):
            await ben.stash("whose?")
        work = Work()
        running = ben.run_fiber("of ben", lambda ctx: of_ben_then(ctx, work))
        await work.began.wait()
        found = Fibers(tmp_path).snapshots()
        work.may_end.set()
        await running
        return found

    async def of_ben_then(ctx: FiberContext, work: Work) -> None:
        await of_ben(ctx)
        await work(ctx)

    assert await ann.run_fiber("of ann", of_ann) == {"of ann": "ann, inside ben", "of ben": "ben"}


@pytest.mark.parametrize("data", [object(), {1, 2}, {"deep": [float, 1]}, {1: 2}, float("nan"), b"x"])
async def test_what_is_not_json_is_refused_and_the_last_checkpoint_stays(
    open_app: OpenApp, tmp_path: Path, data: Any
) -> None:
    async def work(ctx: FiberContext) -> Any:
        await ctx.stash("good")
        with pytest.raises(NotJson, match=r"checkpoint.* which JSON does not have"):
            await ctx.stash(data)
        return Fibers(tmp_path).snapshots()

    assert await (await agent_of(open_app)).run_fiber("work", work) == {"work": "good"}


# --- fibers and turns


async def test_the_innermost_of_turn_and_fiber_gets_the_checkpoint(open_app: OpenApp, tmp_path: Path) -> None:
    seen: list[Any] = []

    def stored() -> tuple[Any, Any]:
        (turn,) = Fibers(tmp_path).rows("SELECT stash FROM turns")
        return json.loads(turn["stash"]), Fibers(tmp_path).snapshots()

    @tool
    async def work() -> str:
        """Work."""
        await agent.stash("of the turn")
        seen.append(stored())
        await agent.run_fiber("inner", inside)
        await agent.stash("of the turn again")
        seen.append(stored())
        return "done"

    async def inside(ctx: FiberContext) -> None:
        await agent.stash("of the inner fiber")
        seen.append(stored())

    async def outside(ctx: FiberContext) -> Any:
        await agent.stash("of the outer fiber")
        result = await agent.save_messages("Work!")
        await agent.stash("of the outer fiber again")
        seen.append(Fibers(tmp_path).snapshots())
        return result.status

    agent = await agent_of(open_app, worker(calls("work"), says("Done."), get_tools=lambda self: [work]))
    assert await agent.run_fiber("outer", outside) == "completed"
    assert seen == [
        ("of the turn", {"outer": "of the outer fiber"}),
        ("of the turn", {"outer": "of the outer fiber", "inner": "of the inner fiber"}),
        ("of the turn again", {"outer": "of the outer fiber"}),
        {"outer": "of the outer fiber again"},
    ]


async def test_a_fiber_that_no_turn_waits_for_may_wait_for_turns(open_app: OpenApp) -> None:
    async def ask(ctx: FiberContext) -> None:
        await ctx.stash((await agent.save_messages("And then?")).status)

    @tool
    async def later() -> str:
        """Ask something later."""
        await agent.start_fiber("ask", ask, fiber_id="free")
        await agent.start_fiber("ask", ask, fiber_id="awaited", wait_for_completion=True)
        return "will do"

    model = (calls("later"), says("Yes."), says("The end."))
    agent = await agent_of(open_app, worker(*model, get_tools=lambda self: [later]))
    await agent.save_messages("Do it later.")
    free = await agent.start_fiber("ask", ask, fiber_id="free", wait_for_completion=True)
    assert (free.status, free.snapshot) == ("completed", "completed")
    # The one that its turn waits for would wait for that same turn
    awaited = await agent.inspect_fiber("awaited")
    assert awaited.status == "error"
    assert awaited.error == str(NestedTurn("programmatic"))


# --- events


async def test_observers_are_told_how_a_fiber_went(open_app: OpenApp) -> None:
    clock = ManualClock()
    app = await open_app(cls := worker(), clock=clock)
    agent, events = await live(app.agent(cls)), record_events(app)

    async def works(ctx: FiberContext) -> None:
        await clock.advance(1.5)

    async def fails(ctx: FiberContext) -> None:
        await clock.advance(0.25)
        raise KeyError

    await agent.run_fiber("works", works)
    with pytest.raises(KeyError):
        await agent.run_fiber("fails", fails)
    assert len({event.payload.pop("fiberId") for event in events}) == 2
    assert [(event.type, event.payload) for event in events] == [
        ("fiber:run:started", {"fiberName": "works", "managed": False}),
        ("fiber:run:completed", {"fiberName": "works", "managed": False, "elapsedMs": 1500}),
        ("fiber:run:started", {"fiberName": "fails", "managed": False}),
        ("fiber:run:failed", {"fiberName": "fails", "managed": False, "error": "KeyError", "elapsedMs": 250}),
    ]
    assert {event.channel for event in events} == {"agents:fiber"}


async def test_the_row_is_gone_when_observers_hear_of_the_end(open_app: OpenApp, tmp_path: Path) -> None:
    app = await open_app(cls := worker())
    left: list[list[str]] = []
    app.events.subscribe(lambda event: left.append(Fibers(tmp_path).names()), type="fiber:run:completed")
    async with app.agent(cls) as agent:
        await agent.run_fiber("work", lambda ctx: None)
    assert left == [[]]


async def test_a_function_with_a_yield_is_no_fiber(open_app: OpenApp, tmp_path: Path) -> None:
    agent = await agent_of(open_app)

    async def pieces(ctx: FiberContext) -> AsyncIterator[int]:
        yield 1

    with pytest.raises(InvalidFiber, match="pieces has a `yield`, so that calling it runs nothing of it"):
        await agent.start_fiber("x", pieces)
    with pytest.raises(InvalidFiber, match="pieces has a `yield`"):
        agent.run_fiber("x", pieces)
    assert Fibers(tmp_path).all() == []


async def test_a_failure_that_nobody_awaits_is_in_the_log_with_its_traceback(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await agent_of(open_app)
    ended = asyncio.Event()

    def fail(ctx: FiberContext) -> None:
        ended.set()
        raise ValueError("no bricks")

    agent.run_fiber("wall", fail)
    await ended.wait()
    while agent._home.fibers.running:  # noqa: ASYNC110 - whoever waited for it would see it
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [str(one.exc_info[1]) for one in caplog.records if one.exc_info] == ["no bricks"]

    # One that is awaited is its caller's
    caplog.clear()
    with pytest.raises(ValueError, match="no bricks"):
        await agent.run_fiber("wall", fail)
    gc.collect()
    assert [one for one in caplog.records if one.exc_info] == []
