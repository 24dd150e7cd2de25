"""Fibers that a dead process left: the hook gets them, and what it says is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.errors import NotInFiber, StoreClosed
from everthink.fibers import (
    FiberAborted,
    FiberCompleted,
    FiberContext,
    FiberFailed,
    FiberInterrupted,
    FiberRecoveryContext,
)
from everthink.store.port import Statement
from everthink.testing.clock import ManualClock
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.fibers import Fibers, Recovered, Work, all_ended, cut, late_app, worker
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio

Restart = Callable[[App, type[Think]], Awaitable[tuple[App, Any]]]


@pytest.fixture(params=["evicted", "reopened"])
def restart(request: pytest.FixtureRequest, open_app: OpenApp) -> Restart:
    """Drop the agent from memory, or close the app and open another on the same file."""

    async def again(app: App, cls: type[Think]) -> tuple[App, Any]:
        if request.param == "evicted":
            await app.evict(cls, "default")
        else:
            await app.close()
            app = await open_app(cls)
        return app, await live(app.agent(cls))

    return again


# --- fibers of run_fiber


@pytest.mark.agent_case(14, 169)
async def test_a_fiber_that_was_cut_off_comes_to_the_hook_with_its_snapshot(
    open_app: OpenApp, tmp_path: Path, restart: Restart
) -> None:
    seen, clock = Recovered(), ManualClock(1_800_000_000_500)
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook), clock=clock)
    agent, work = await live(app.agent(cls)), Work(stash={"step": 2})
    agent.run_fiber("import", work)
    await work.began.wait()

    await restart(app, cls)
    assert seen.contexts == [
        FiberRecoveryContext(
            id=work.calls[0].id,
            name="import",
            snapshot={"step": 2},
            created_at=datetime.fromtimestamp(1_800_000_000.5, UTC),
            recovery_reason="interrupted",
            status=None,
        )
    ]
    assert Fibers(tmp_path).all() == []
    assert len(work.calls) == 1


async def test_the_hook_runs_before_the_start_code(open_app: OpenApp) -> None:
    order: list[str] = []

    async def on_start(self: Think, props: Any = None) -> None:
        order.append("on_start")

    def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        order.append(f"recovered {ctx.name}")

    app = await open_app(cls := worker(on_start=on_start, on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work")
    await live(app.agent(cls))
    assert order == ["on_start", "recovered work", "on_start"]


@pytest.mark.agent_case(170)
async def test_several_fibers_are_all_recovered_oldest_first_and_only_once(
    open_app: OpenApp, restart: Restart
) -> None:
    seen = Recovered()
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    await cut(app, cls, "a", "b", "c", "a")
    app, _ = await restart(app, cls)
    assert seen.names == ["a", "b", "c", "a"]
    assert len({context.id for context in seen.contexts}) == 4
    await restart(app, cls)
    assert len(seen.names) == 4


@pytest.mark.agent_case(170)
async def test_fibers_that_run_are_left_alone(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a hook that goes on with the work in new fibers of the same name
    seen: list[str] = []
    again, managed = Work(), Work()

    async def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        seen.append(ctx.name)
        self.run_fiber(ctx.name, again)
        await self.start_fiber(ctx.name, managed)
        await again.began.wait()
        await managed.began.wait()

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work")

    # When the agent starts, and looks once more
    agent = await live(app.agent(cls))
    await agent._home.fibers.recover()

    # Then only the old one was recovered, and the new ones run
    assert seen == ["work"]
    assert Fibers(tmp_path).names() == ["work", "work"]
    again.may_end.set()
    managed.may_end.set()
    await all_ended(agent)
    assert (again.returned, managed.returned) == (1, 1)


async def test_a_fiber_that_ends_in_the_grace_period_is_not_recovered(open_app: OpenApp) -> None:
    seen = Recovered()
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook), grace=60.0)
    agent, plain, managed = await live(app.agent(cls)), Work("in time"), Work()
    running = agent.run_fiber("plain", plain)
    await agent.start_fiber("managed", managed, fiber_id="m")
    for work in (plain, managed):
        await work.began.wait()
    closing = asyncio.create_task(app.close())
    for _ in range(50):
        await asyncio.sleep(0)
    assert agent._home.fibers._is_closing
    plain.may_end.set()
    managed.may_end.set()
    await closing
    assert await running == "in time"
    app = await open_app(cls)
    assert (await app.agent(cls).inspect_fiber("m")).status == "completed"
    assert seen.names == []


async def test_a_fiber_may_keep_a_last_checkpoint_when_it_is_cut(open_app: OpenApp, restart: Restart) -> None:
    seen, began = Recovered(), asyncio.Event()

    async def careful(ctx: FiberContext) -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await ctx.stash("at the very end")

    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    (await live(app.agent(cls))).run_fiber("careful", careful)
    await began.wait()
    await restart(app, cls)
    assert [context.snapshot for context in seen.contexts] == ["at the very end"]


async def test_the_hook_is_part_of_no_fiber(open_app: OpenApp) -> None:
    async def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> None:
        with pytest.raises(NotInFiber):
            await self.stash("whose?")
        seen.append(ctx.name)

    seen: list[str] = []
    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work")
    await live(app.agent(cls))
    assert seen == ["work"]


@pytest.mark.parametrize("stored", ["{broken", ""])
async def test_an_unreadable_snapshot_is_no_snapshot(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture, stored: str
) -> None:
    seen = Recovered()
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    store = (await app.open()).store
    await cut(app, cls, "work", stash="good")
    await store.apply([Statement("UPDATE fibers SET snapshot = ?", (stored,))])
    with caplog.at_level(logging.WARNING, "everthink.fibers"):
        await live(app.agent(cls))
    assert [context.snapshot for context in seen.contexts] == [None]
    assert "snapshot of fiber" in caplog.text


async def test_without_a_hook_the_fiber_is_reported_and_forgotten(
    open_app: OpenApp, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = await open_app(cls := worker())
    await cut(app, cls, "forgotten", "kept", managed=["kept"])
    with caplog.at_level(logging.WARNING, "everthink.agent"):
        await live(app.agent(cls))
    for name in ("forgotten", "kept"):
        assert f"({name}) of Assistant/default was interrupted" in caplog.text
    assert Fibers(tmp_path).fiber_statuses() == {"kept": "interrupted"}
    assert Fibers(tmp_path).open_names() == []


async def test_a_hook_that_dies_with_its_process_runs_again(open_app: OpenApp, tmp_path: Path) -> None:
    # Given fibers whose hook is running when the process ends
    began = asyncio.Event()

    async def hang(ctx: FiberRecoveryContext) -> None:
        if ctx.name == "managed":
            began.set()
            await asyncio.Event().wait()

    seen = Recovered(hang)
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    await cut(app, cls, "plain", "managed", "last", managed=["managed"])
    starting = asyncio.create_task(live(app.agent(cls)))
    await began.wait()
    await app.close()
    await asyncio.wait([starting])
    assert isinstance(starting.exception(), StoreClosed)
    assert Fibers(tmp_path).open_names() == ["managed", "last"]

    # When it starts again, the hook is called again for that one, and for those it had not come to
    seen.answer, seen.contexts = FiberCompleted(), []
    app = await open_app(cls)
    assert (await app.agent(cls).inspect_fiber("managed")).status == "completed"
    assert seen.names == ["managed", "last"]
    assert Fibers(tmp_path).open_names() == []


# --- fibers of start_fiber


@pytest.mark.agent_case(15, 180, 184)
@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (None, ("interrupted", None, "half", {"n": 1})),
        (FiberCompleted(), ("completed", None, "half", {"n": 1})),
        (FiberCompleted(snapshot="all", metadata={"n": 2}), ("completed", None, "all", {"n": 2})),
        (FiberFailed("lost"), ("error", "lost", "half", {"n": 1})),
        (FiberFailed("lost", snapshot=None), ("error", "lost", None, {"n": 1})),
        (FiberAborted("enough"), ("aborted", "enough", "half", {"n": 1})),
        (FiberInterrupted("ask Ann"), ("interrupted", "ask Ann", "half", {"n": 1})),
    ],
)
async def test_what_the_hook_returns_is_stored(
    open_app: OpenApp, tmp_path: Path, restart: Restart, answer: Any, facts: tuple[Any, ...]
) -> None:
    seen, work = Recovered(answer), Work(stash="half")
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    await app.agent(cls).start_fiber("import", work, fiber_id="f", idempotency_key="k", metadata={"n": 1})
    await work.began.wait()

    app, agent = await restart(app, cls)
    (context,) = seen.contexts
    assert (context.id, context.name, context.snapshot) == ("f", "import", "half")
    assert (context.status, context.idempotency_key, context.metadata) == ("interrupted", "k", {"n": 1})
    found = await agent.inspect_fiber("f")
    assert (found.status, found.error, found.snapshot, found.metadata) == facts
    assert found.settled_at is not None
    assert Fibers(tmp_path).open_names() == []
    # and that is the end of it
    await restart(app, cls)
    assert len(seen.contexts) == 1


@pytest.mark.agent_case(180)
async def test_the_record_says_interrupted_while_the_hook_runs(open_app: OpenApp, tmp_path: Path) -> None:
    seen = Recovered(lambda ctx: found.append(Fibers(tmp_path).fiber_statuses()))
    found: list[Any] = []
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    await cut(app, cls, "work", managed=True)
    assert Fibers(tmp_path).fiber_statuses() == {"work": "running"}
    await live(app.agent(cls))
    assert found == [{"work": "interrupted"}]


@pytest.mark.agent_case(181)
async def test_a_fiber_that_was_accepted_and_never_begun_is_recovered(tmp_path: Path) -> None:
    seen, work = Recovered(FiberAborted("never begun")), Work()
    async with late_app(tmp_path, cls := worker(on_fiber_recovered=seen.hook)) as (app, _):
        await app.agent(cls).start_fiber("work", work, fiber_id="f")
        await app.evict(cls, "default")
        assert Fibers(tmp_path).fiber_statuses() == {"work": "pending"}
        found = await app.agent(cls).inspect_fiber("f")
        assert (found.status, found.error, found.started_at) == ("aborted", "never begun", None)
    assert seen.names == ["work"]
    assert work.calls == []


@pytest.mark.agent_case(183)
@pytest.mark.parametrize("end", ["cancelled", "completed"])
async def test_a_record_that_has_ended_is_not_recovered(
    open_app: OpenApp, restart: Restart, end: str
) -> None:
    seen, work = Recovered(), Work()
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    agent = await live(app.agent(cls))
    await agent.start_fiber("work", work, fiber_id="f")
    await work.began.wait()
    if end == "cancelled":
        await agent.cancel_fiber("f", "enough")  # its function does not listen and still runs
    else:
        work.may_end.set()
        await all_ended(agent)
    before = await agent.inspect_fiber("f")
    _, agent = await restart(app, cls)
    assert seen.names == []
    assert await agent.inspect_fiber("f") == before


@pytest.mark.agent_case(186)
async def test_a_hook_that_fails_makes_the_record_an_error(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Recovered(ValueError("no idea"))
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    await cut(app, cls, "work", stash="half", managed=True)
    events = record_events(app)
    agent = await live(app.agent(cls))
    found = await agent.inspect_fiber("work")
    assert (found.status, found.error, found.snapshot) == ("error", "no idea", "half")
    (failed,) = [event for event in events if event.type == "fiber:recovery:failed"]
    assert {**failed.payload, "elapsedMs": 0} == {
        "fiberId": "work",
        "fiberName": "work",
        "managed": True,
        "error": "no idea",
        "reason": "handler_error",
        "elapsedMs": 0,
    }
    assert "on_fiber_recovered" in caplog.text


@pytest.mark.parametrize("answer", ["completed", {"status": "completed"}, FiberCompleted(snapshot=object())])
async def test_an_answer_that_makes_no_sense_is_an_error(open_app: OpenApp, answer: Any) -> None:
    seen = Recovered(answer)
    app = await open_app(cls := worker(on_fiber_recovered=seen.hook))
    await cut(app, cls, "work", managed=True)
    assert (await app.agent(cls).inspect_fiber("work")).status == "error"


async def test_a_hook_whose_own_work_is_cancelled_has_failed(open_app: OpenApp) -> None:
    async def give_up(ctx: FiberRecoveryContext) -> None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    app = await open_app(cls := worker(on_fiber_recovered=Recovered(give_up).hook))
    await cut(app, cls, "work", managed=True)
    found = await app.agent(cls).inspect_fiber("work")
    assert (found.status, found.error) == ("error", "CancelledError")


@pytest.mark.parametrize(
    ("outcome", "facts"),
    [
        (FiberCompleted(snapshot="resolved"), ("completed", "resolved", None)),
        (FiberInterrupted("ask Ann"), ("interrupted", None, "ask Ann")),
    ],
)
async def test_whoever_resolves_a_fiber_inside_the_hook_has_the_last_word(
    open_app: OpenApp, outcome: Any, facts: tuple[Any, ...]
) -> None:
    async def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> Any:
        assert await self.resolve_fiber(ctx.id, outcome)
        return FiberFailed("returned")

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work", managed=True)
    found = await app.agent(cls).inspect_fiber("work")
    assert (found.status, found.snapshot, found.error) == facts


async def test_a_record_is_not_deleted_under_the_hands_of_its_hook(open_app: OpenApp) -> None:
    async def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> Any:
        deleted.append(await self.delete_fibers(status="interrupted"))
        return FiberCompleted()

    deleted: list[int] = []
    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work", managed=True)
    assert (await app.agent(cls).inspect_fiber("work")).status == "completed"
    assert deleted == [0]


@pytest.mark.agent_case(190)
async def test_waiting_for_an_interrupted_fiber_after_a_restart_ends(
    open_app: OpenApp, restart: Restart
) -> None:
    work, other = Work(), Work()
    app = await open_app(cls := worker(on_fiber_recovered=Recovered(FiberCompleted("all")).hook))
    await app.agent(cls).start_fiber("work", work, idempotency_key="k")
    await work.began.wait()
    _, agent = await restart(app, cls)
    found = await agent.start_fiber("work", other, idempotency_key="k", wait_for_completion=True)
    assert (found.status, found.snapshot, found.accepted) == ("completed", "all", False)
    assert other.calls == []


@pytest.mark.agent_case(182)
async def test_a_hook_that_waits_for_its_own_fiber_goes_on(open_app: OpenApp) -> None:
    async def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> Any:
        found = await self.start_fiber("again", Work(), fiber_id=ctx.id, wait_for_completion=True)
        return FiberCompleted(snapshot=f"was {found.status}")

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "work", managed=True)
    found = await app.agent(cls).inspect_fiber("work")
    assert (found.status, found.snapshot) == ("completed", "was interrupted")


@pytest.mark.agent_case(182)
async def test_a_hook_may_wait_for_another_fiber_that_was_cut_off(open_app: OpenApp) -> None:
    order: list[str] = []

    async def on_fiber_recovered(self: Think, ctx: FiberRecoveryContext) -> Any:
        if ctx.name == "first":
            other = await self.start_fiber("again", Work(), fiber_id="second", wait_for_completion=True)
            order.append(other.status)
        order.append(ctx.name)
        return FiberCompleted()

    app = await open_app(cls := worker(on_fiber_recovered=on_fiber_recovered))
    await cut(app, cls, "first", "second", managed=True)
    await live(app.agent(cls))
    assert order == ["second", "completed", "first"]
