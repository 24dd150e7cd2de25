"""Fibers of `start_fiber`: accepted once, waited for, cancelled, released when the process stops."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.errors import (
    FiberConflict,
    FiberStopped,
    InvalidFiber,
    NotInFiber,
    NotJson,
    StoreClosed,
    StoreFull,
)
from everthink.fibers import FiberFailed
from everthink.fibers.values import FiberContext
from everthink.store.port import Commit
from everthink.testing import ManualClock
from tests.conftest import OpenApp
from tests.support.agents import live
from tests.support.fibers import Fibers, Work, all_ended, late_app, worker
from tests.support.turns import gated_app, record_events

pytestmark = pytest.mark.anyio


@pytest.fixture
async def agent(open_app: OpenApp) -> Any:
    app = await open_app(cls := worker())
    return await live(app.agent(cls))


def holding(folder: Path, text: str) -> list[Path]:
    """The files in which a text stands."""
    return [file for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


async def settled(agent: Any, id: str) -> Any:
    """The final record, once there is one."""
    return await agent.start_fiber("again", Work(), fiber_id=id, wait_for_completion=True)


# --- accepting


@pytest.mark.agent_case(173)
async def test_a_fiber_is_accepted_and_completes(agent: Any, tmp_path: Path) -> None:
    work = Work(stash={"step": 1})
    accepted = await agent.start_fiber("import", work, fiber_id="f-1", metadata={"file": "a.csv"})
    assert (accepted.fiber_id, accepted.name, accepted.status) == ("f-1", "import", "pending")
    assert accepted.accepted
    assert accepted.metadata == {"file": "a.csv"}
    assert accepted.started_at is None
    assert accepted.created_at.utcoffset() == timedelta(0)

    await work.began.wait()
    running = await agent.inspect_fiber("f-1")
    assert (running.status, running.snapshot, running.accepted) == ("running", {"step": 1}, False)
    assert running.started_at >= running.created_at
    assert (running.is_settled, running.settled_at) == (False, None)

    work.may_end.set()
    over = await settled(agent, "f-1")
    assert (over.status, over.snapshot, over.error) == ("completed", {"step": 1}, None)
    assert over.settled_at >= over.started_at
    assert over.is_settled
    assert Fibers(tmp_path).open_names() == []


async def test_keys_in_what_a_fiber_says_are_neither_stored_nor_told(
    open_app: OpenApp, tmp_path: Path
) -> None:
    key = "sk-proj-abcdefgh12345678ABCDEFGH"

    def fails(ctx: FiberContext) -> None:
        raise ValueError(f"401: the key {key} was refused")

    def gives_up(agent: Any, fiber: Any) -> Any:
        return FiberFailed(f"no luck with {key}")

    app = await open_app(cls := worker(on_fiber_recovered=gives_up), grace=0.0)
    events, agent = record_events(app), await live(app.agent(cls))
    failed = await agent.start_fiber("import", fails, fiber_id="f-1", wait_for_completion=True)
    assert (failed.status, failed.error) == ("error", "401: the key sk-*** was refused")

    # Also when a person stops it with a word, and when recovery ends one that was cut off
    await agent.start_fiber("import", Work(), fiber_id="f-2")
    await agent.cancel_fiber("f-2", f"because of {key}")
    work = Work()
    await agent.start_fiber("import", work, fiber_id="f-3")
    await work.began.wait()
    await app.close()
    app = await open_app(cls, grace=0.0)
    events += record_events(app)
    agent = await live(app.agent(cls))
    while (given_up := await agent.inspect_fiber("f-3")).status != "error":  # noqa: ASYNC110 - a row
        await asyncio.sleep(0)
    assert given_up.error == "no luck with sk-***"
    assert (await agent.inspect_fiber("f-2")).error == "because of sk-***"
    await app.close()
    assert key not in str([(event.payload, event.body) for event in events])
    assert holding(tmp_path, key) == []


async def test_an_id_is_made_when_none_is_given(agent: Any) -> None:
    one, two = [await agent.start_fiber("work", lambda ctx: None) for _ in range(2)]
    assert one.fiber_id != two.fiber_id
    assert one.accepted
    assert two.accepted


@pytest.mark.agent_case(174)
@pytest.mark.parametrize(
    "names", [{"fiber_id": "f"}, {"idempotency_key": "k"}, {"fiber_id": "f", "idempotency_key": "k"}]
)
async def test_the_same_id_or_key_is_accepted_once(agent: Any, names: dict[str, str]) -> None:
    works = [Work() for _ in range(5)]
    found = await asyncio.gather(*(agent.start_fiber(f"w{n}", w, **names) for n, w in enumerate(works)))
    assert [one.accepted for one in found] == [True, False, False, False, False]
    assert {(one.fiber_id, one.name) for one in found} == {(found[0].fiber_id, "w0")}

    # Also when it is over
    works[0].may_end.set()
    await settled(agent, found[0].fiber_id)
    late = await agent.start_fiber("late", works[1], **names)
    assert (late.accepted, late.name, late.status) == (False, "w0", "completed")
    assert [len(work.calls) for work in works] == [1, 0, 0, 0, 0]


@pytest.mark.agent_case(174)
@pytest.mark.parametrize("blank", ["", "  ", "\t\n"])
@pytest.mark.parametrize("name", ["fiber_id", "idempotency_key"])
async def test_blank_names_are_refused(agent: Any, name: str, blank: str) -> None:
    with pytest.raises(InvalidFiber, match=f"^{name} must not be blank"):
        await agent.start_fiber("work", Work(), **{name: blank})
    assert await agent.list_fibers() == []


@pytest.mark.agent_case(174)
@pytest.mark.parametrize(("id", "key"), [("one", "two's key"), ("new", "two's key"), ("one", "new key")])
async def test_an_id_and_a_key_of_different_fibers_are_refused(agent: Any, id: str, key: str) -> None:
    for name in ("one", "two"):
        await agent.start_fiber(name, lambda ctx: None, fiber_id=name, idempotency_key=f"{name}'s key")
    with pytest.raises(FiberConflict, match="fiber_id and idempotency_key refer to different fibers"):
        await agent.start_fiber("work", Work(), fiber_id=id, idempotency_key=key)
    assert len(await agent.list_fibers()) == 2


async def test_keys_of_other_agents_do_not_matter(open_app: OpenApp) -> None:
    app = await open_app(cls := worker())
    for name in ("ann", "ben"):
        found = await app.agent(cls, name).start_fiber(
            "w", lambda ctx: None, fiber_id="f", idempotency_key="k"
        )
        assert found.accepted


@pytest.mark.parametrize("metadata", [["a", "list"], "text", {"file": object()}, {"at": {1}}])
async def test_metadata_that_cannot_be_stored_is_refused(agent: Any, metadata: Any) -> None:
    work = Work()
    with pytest.raises((InvalidFiber, NotJson), match=r"metadata is not|metadata\['(file|at)'\] is"):
        await agent.start_fiber("work", work, metadata=metadata)
    assert await agent.list_fibers() == []
    assert work.calls == []


async def test_a_caller_that_stops_waiting_does_not_stop_the_fiber(tmp_path: Path) -> None:
    async with gated_app(tmp_path, cls := worker()) as (app, store):
        agent, work = await live(app.agent(cls)), Work()
        store.hold()
        starting = asyncio.create_task(agent.start_fiber("work", work, fiber_id="f"))
        await store.until_waiting()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        store.release()
        await work.began.wait()
        work.may_end.set()
        assert (await settled(agent, "f")).status == "completed"


# --- how it went


@pytest.mark.agent_case(175, 176)
@pytest.mark.parametrize("fn", ["async", "sync"])
async def test_an_error_is_recorded_and_logged(agent: Any, caplog: pytest.LogCaptureFixture, fn: str) -> None:
    def fail(ctx: FiberContext) -> None:
        raise ValueError("no such file")

    async def fail_later(ctx: FiberContext) -> None:
        await ctx.stash("so far")
        fail(ctx)

    functions: dict[str, Any] = {"async": fail_later, "sync": fail}
    with caplog.at_level(logging.ERROR, "everthink.fibers"):
        over = await agent.start_fiber("import", functions[fn], fiber_id="f", wait_for_completion=True)
    assert over.status == "error"
    assert over.accepted
    assert "no such file" in over.error
    assert over.snapshot == ("so far" if fn == "async" else None)
    assert "fiber f (import)" in caplog.text


@pytest.mark.agent_case(175)
async def test_a_fiber_that_cannot_be_begun_is_recorded_as_an_error(tmp_path: Path) -> None:
    def full(commit: Commit) -> Exception | None:
        return StoreFull("No space left.") if "SET status = 'running'" in commit[0].sql else None

    async with gated_app(tmp_path, cls := worker()) as (app, store):
        agent, work = await live(app.agent(cls)), Work()
        store.refuse(full)
        over = await agent.start_fiber("work", work, wait_for_completion=True)
        assert (over.status, over.error) == ("error", "No space left.")
        assert work.calls == []


@pytest.mark.agent_case(176)
async def test_waiting_gives_the_final_record(agent: Any) -> None:
    over = await agent.start_fiber("work", lambda ctx: "result", wait_for_completion=True)
    assert (over.status, over.accepted) == ("completed", True)


@pytest.mark.agent_case(177)
async def test_those_who_come_later_wait_for_the_same_fiber(agent: Any) -> None:
    work, other = Work(), Work()
    await agent.start_fiber("work", work, idempotency_key="k")
    waiting = [
        asyncio.create_task(agent.start_fiber("w", other, idempotency_key="k", wait_for_completion=True))
        for _ in range(3)
    ]
    await work.began.wait()
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    work.may_end.set()
    assert {(one.status, one.accepted) for one in await asyncio.gather(*waiting)} == {("completed", False)}
    assert other.calls == []


async def test_a_fiber_that_waits_for_itself_goes_on(agent: Any) -> None:
    async def work(ctx: FiberContext) -> None:
        found = await agent.start_fiber("again", Work(), fiber_id=ctx.id, wait_for_completion=True)
        await ctx.stash(found.status)

    over = await agent.start_fiber("work", work, fiber_id="f", wait_for_completion=True)
    assert (over.status, over.snapshot) == ("completed", "running")


async def test_observers_are_told_of_managed_fibers(open_app: OpenApp) -> None:
    app = await open_app(cls := worker())
    agent, events = await live(app.agent(cls)), record_events(app)
    await agent.start_fiber("work", lambda ctx: None, fiber_id="f", wait_for_completion=True)
    await agent.start_fiber("fail", lambda ctx: 1 / 0, fiber_id="g", wait_for_completion=True)
    work, fail = [{"fiberId": i, "fiberName": n, "managed": True} for i, n in (("f", "work"), ("g", "fail"))]
    for event in events:
        event.payload.pop("elapsedMs", None)
    assert [(event.type, event.payload) for event in events] == [
        ("fiber:run:started", work),
        ("fiber:run:completed", work),
        ("fiber:run:started", fail),
        ("fiber:run:failed", {**fail, "error": "division by zero"}),
    ]


# --- cancelling


@pytest.mark.agent_case(177, 178)
async def test_cancelling_fires_the_signal_and_settles_the_record(agent: Any) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def polite(ctx: FiberContext) -> None:
        began.set()
        await ctx.signal.wait()
        stopped.set()
        ctx.signal.raise_if_aborted()

    await agent.start_fiber("work", polite, fiber_id="f", idempotency_key="k")
    waiting = asyncio.create_task(settled(agent, "f"))
    await began.wait()
    assert await agent.cancel_fiber_by_key("k", "not needed") is True
    over = await waiting
    assert (over.status, over.error) == ("aborted", "not needed")
    await stopped.wait()
    # What it raised afterwards changes nothing, and there is nothing to cancel any more
    await all_ended(agent)
    assert await agent.inspect_fiber("f") == over
    assert await agent.cancel_fiber("f") is False
    assert await agent.cancel_fiber_by_key("k") is False


@pytest.mark.agent_case(177)
async def test_those_who_wait_are_released_though_the_function_does_not_listen(agent: Any) -> None:
    work = Work()
    await agent.start_fiber("deaf", work, fiber_id="f")
    waiting = asyncio.create_task(settled(agent, "f"))
    await work.began.wait()
    assert await agent.cancel_fiber("f") is True
    assert ((await waiting).status, (await waiting).error) == ("aborted", None)
    assert work.returned == 0
    assert agent._home.holds.count == 1

    # Its result comes too late
    work.may_end.set()
    await all_ended(agent)
    assert work.returned == 1
    assert (await agent.inspect_fiber("f")).status == "aborted"
    assert agent._home.holds.count == 0


@pytest.mark.agent_case(178)
async def test_a_fiber_cancelled_before_it_begins_never_does(tmp_path: Path) -> None:
    work = Work()
    async with late_app(tmp_path, cls := worker()) as (app, store):
        agent = await live(app.agent(cls))
        await agent.start_fiber("work", work, fiber_id="f")
        assert await agent.cancel_fiber("f", "too late") is True
        store.release()
        await all_ended(agent)
        over = await agent.inspect_fiber("f")
        assert (over.status, over.error, over.started_at) == ("aborted", "too late", None)
        assert work.calls == []


@pytest.mark.parametrize("name", ["cancel_fiber", "cancel_fiber_by_key"])
async def test_there_is_nothing_to_cancel_of_an_unknown_fiber(agent: Any, name: str) -> None:
    assert await getattr(agent, name)("unknown") is False


async def test_an_id_that_is_used_again_is_safe_from_the_function_that_had_it_before(agent: Any) -> None:
    # Given a cancelled fiber whose function still runs, and whose record was deleted
    old, new = Work(), Work()
    await agent.start_fiber("old", old, fiber_id="f")
    await old.began.wait()
    await agent.cancel_fiber("f")
    assert await agent.delete_fibers() == 1

    # When the id is used again
    assert (await agent.start_fiber("new", new, fiber_id="f")).accepted
    await new.began.wait()
    with pytest.raises(NotInFiber):
        await old.calls[0].stash("of the old one")
    old.may_end.set()
    await all_ended(agent, but=new)

    # Then the new one is not touched by the end of the old one
    found = await agent.inspect_fiber("f")
    assert (found.name, found.status, found.snapshot) == ("new", "running", None)
    new.may_end.set()
    assert (await settled(agent, "f")).status == "completed"


# --- stopping


async def test_whoever_waits_is_told_when_the_process_stops(open_app: OpenApp) -> None:
    app = await open_app(cls := worker())
    agent, managed, plain = await live(app.agent(cls)), Work(), Work()
    waiting = asyncio.create_task(agent.start_fiber("m", managed, wait_for_completion=True))
    running = agent.run_fiber("p", plain)
    for work in (managed, plain):
        await work.began.wait()
    await app.close()
    for task, name in ((waiting, "m"), (running, "p")):
        with pytest.raises(FiberStopped, match=f"Fiber '{name}' was interrupted"):
            await task
    assert agent._home.holds.count == 0


@pytest.mark.parametrize("kind", ["run_fiber", "start_fiber"])
async def test_nothing_is_begun_while_the_agent_shuts_down(open_app: OpenApp, kind: str) -> None:
    app = await open_app(cls := worker())
    agent: Think = await live(app.agent(cls))
    await app.close()
    with pytest.raises(StoreClosed, match="shutting down"):
        await getattr(agent, kind)("work", lambda ctx: None)


@pytest.mark.parametrize("managed", [False, True])
async def test_a_fiber_whose_end_is_being_stored_is_not_cut(tmp_path: Path, managed: bool) -> None:
    async with gated_app(tmp_path, cls := worker()) as (app, store):
        agent, work = await live(app.agent(cls)), Work("in time")
        if managed:
            waiting = asyncio.create_task(agent.start_fiber("work", work, wait_for_completion=True))
        else:
            waiting = agent.run_fiber("work", work)
        await work.began.wait()
        store.hold()
        work.may_end.set()
        await store.until_waiting()
        leaving = asyncio.create_task(app.evict(cls, "default"))
        for _ in range(5):
            await asyncio.sleep(0)
        store.release()
        await leaving
        result = await waiting
        assert (result.status if managed else result) == ("completed" if managed else "in time")
        assert Fibers(tmp_path).open_names() == []


async def test_fibers_keep_their_order_when_the_clock_of_another_machine_is_behind(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given an agent that has run a fiber, on a machine whose clock is right
    cls = worker()
    app = await open_app(cls, clock=ManualClock(1_800_000_000_000))
    await (await live(app.agent(cls, "room"))).start_fiber("first", lambda _: None, wait_for_completion=True)
    await app.close()

    # When it goes on where the clock is an hour behind, with one of each kind
    app = await open_app(cls, clock=ManualClock(1_800_000_000_000 - 3_600_000))
    agent: Any = await live(app.agent(cls, "room"))
    await agent.start_fiber("second", lambda _: None, wait_for_completion=True)
    work = Work()
    agent.run_fiber("third", work)
    await work.began.wait()

    # Then what came later is later
    assert Fibers(tmp_path).names() == ["first", "second", "third"]
    assert [one.name for one in await agent.list_fibers()] == ["second", "first"]
