"""The queue of an agent: one after the other, removed in every case, taken up again by the next process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Agent, App, Retry
from everthink.errors import (
    InvalidCallback,
    InvalidSettings,
    LeaseLost,
    NotJson,
    StoreUnavailable,
    TurnInterrupted,
)
from everthink.store.port import Commit
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import ScriptedModel, says
from everthink.timers import Job
from tests.conftest import OpenApp
from tests.runtime.conftest import BOTH, Open
from tests.support.agents import assistant, live
from tests.support.timers import Diary, Failing, quiet, storage
from tests.support.turns import gated_app, home_of, record_events

pytestmark = pytest.mark.anyio

AT_ONCE = Retry(base_delay=0.001, max_delay=0.001)


@pytest.fixture
async def agent(start: Open, diary: Diary) -> Any:
    cls = diary.agent(retry_options=AT_ONCE)
    return await live((await start(cls)).agent(cls, "a"))


async def done(agent: Any) -> None:
    """Return once the queue is empty."""
    await agent._home.jobs.idle()


# --- running


@pytest.mark.agent_case(124)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_what_is_queued_runs_its_callback_and_is_gone(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    events = record_events(app, "queue:*")
    agent = await live(app.agent(cls, "a"))
    id = await agent.queue("note", {"to": "Ada"})
    assert len(id) == 9
    await done(agent)
    assert diary.lines == [{"to": "Ada"}]
    item: Job = diary.items[0]
    assert (item.id, item.callback, item.payload, item.starts) == (id, "note", {"to": "Ada"}, 1)
    assert item.created_at == item.started_at  # the clock stands still
    assert await agent.get_queues() == []
    assert [(e.type, e.payload) for e in events] == [("queue:create", {"callback": "note", "id": id})]


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_jobs_run_in_the_order_they_were_given_one_at_a_time(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    running = 0

    async def slowly(self: Any, payload: Any) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        running -= 1
        diary.write(payload)

    app = await start(cls := diary.agent(slowly=slowly))
    agent = await live(app.agent(cls, "a"))
    await asyncio.gather(*(agent.queue("slowly", number) for number in range(30)))
    await done(agent)
    assert diary.lines == list(range(30))


async def test_a_job_may_queue_another(start: Open, diary: Diary) -> None:
    async def chain(self: Any, payload: int) -> None:
        diary.write(payload)
        if payload:
            await self.queue("chain", payload - 1)

    app = await start(cls := diary.agent(chain=chain))
    agent = await live(app.agent(cls, "a"))
    await agent.queue("chain", 5)
    await diary.until(6)
    assert diary.lines == [5, 4, 3, 2, 1, 0]


async def test_a_job_queued_inside_a_turn_may_start_a_turn_of_its_own(start: Open, diary: Diary) -> None:
    async def on_chat_response(self: Any, response: Any) -> None: ...

    async def before_turn(self: Any, turn: Any) -> None:
        if not diary.lines:
            diary.write("first turn")
            await self.queue("ask", "And then?")

    async def ask(self: Any, payload: Any) -> None:
        diary.write((await self.save_messages(payload)).status)

    model = ScriptedModel(says("One."), says("Two."))
    cls = diary.agent(model=model, before_turn=before_turn, on_chat_response=on_chat_response, ask=ask)
    agent = (await start(cls)).agent(cls, "a")
    await agent.save_messages("Hello?")
    await diary.until(2)
    assert diary.lines == ["first turn", "completed"]


@pytest.mark.agent_case(125)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_job_that_fails_is_removed_and_does_not_stop_those_behind_it(
    agent: Any, diary: Diary
) -> None:
    diary.outcome = Failing(ValueError("no"))
    await agent.queue("note", "before")
    await agent.queue("fail", "bad", retry=Retry(max_attempts=1))
    await agent.queue("note", "after")
    await done(agent)
    assert diary.lines == ["before", "bad", "after"]
    assert [str(error) for error in diary.errors] == ["no"]
    assert await agent.get_queues() == []


@pytest.mark.agent_case(126, 127)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_job_is_tried_again_as_its_options_say_and_then_reported(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    diary.outcome = Failing(ValueError("no"))
    app = await start(cls := diary.agent())
    events = record_events(app, "queue:*")
    agent = await live(app.agent(cls, "a"))
    id = await agent.queue("fail", "x", retry=Retry(2, 0.001, 0.001))
    await done(agent)
    assert diary.lines == ["x", "x"]
    told = {"callback": "fail", "id": id}
    assert [(e.type, e.payload) for e in events] == [
        ("queue:create", told),
        ("queue:retry", told | {"attempt": 2, "maxAttempts": 2}),
        ("queue:error", told | {"error": "no", "attempts": 2}),
    ]


@pytest.mark.agent_case(126)
async def test_a_job_that_succeeds_in_the_end_is_no_failure(agent: Any, diary: Diary) -> None:
    diary.outcome = Failing(ValueError("no"), None)
    await agent.queue("fail", "x")
    await done(agent)
    assert (diary.lines, diary.errors) == (["x", "x"], [])


@pytest.mark.parametrize("error", [LeaseLost("taken over"), TurnInterrupted("r"), MemoryError()])
async def test_whatever_it_was_a_job_is_removed_while_the_agent_goes_on(
    agent: Any, diary: Diary, error: Exception
) -> None:
    diary.outcome = Failing(error)
    await agent.queue("fail", "x")
    await agent.queue("note", "next")
    await done(agent)
    assert diary.lines == ["x", "next"]
    assert diary.errors == [error]


async def test_a_method_that_is_gone_takes_its_jobs_along(
    start: Open, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_start(self: Any, props: Any = None) -> None:
        await self.queue("old")
        await self.queue("note", "still here")
        raise RuntimeError("never starts")

    async def old(self: Any) -> None: ...

    app = await start(before := diary.agent(old=old, on_start=on_start))
    with pytest.raises(RuntimeError, match="never starts"):
        await live(app.agent(before, "a"))
    app = await start(after := diary.agent())
    agent = await live(app.agent(after, "a"))
    await done(agent)
    assert "no method 'old'" in caplog.text
    assert (diary.lines, diary.errors, await agent.get_queues()) == (["still here"], [], [])


async def test_a_payload_that_cannot_be_read_is_reported_and_does_not_stop_the_rest(
    start: Open, diary: Diary
) -> None:
    app = await start(cls := diary.agent())
    events = record_events(app, "queue:error")
    agent = await live(app.agent(cls, "a"))
    await agent.queue("wait", "first")
    await diary.until(1)
    await agent.queue("note", "broken")
    await agent.queue("note", "whole")
    await storage(app, cls, "a", "UPDATE jobs SET payload = '{oops' WHERE payload = '\"broken\"'")
    diary.gate.set()
    await done(agent)
    assert diary.lines == ["first", "whole"]
    assert [event.payload["attempts"] for event in events] == [0]


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
        await agent.queue("note", payload)
    assert await agent.get_queues() == []


# --- looking, taking out


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_jobs_can_be_looked_up_and_the_one_that_runs_is_known(agent: Any, diary: Diary) -> None:
    first = await agent.queue("wait", {"user": "ada", "n": 1})
    await diary.until(1)
    second = await agent.queue("note", {"user": "bob", "n": 1}, retry=Retry(max_attempts=9))
    third = await agent.queue("note", {"user": "ada", "flag": True})
    fourth = await agent.queue("note", "text")

    running, waiting = await agent.get_queue(first), await agent.get_queue(second)
    assert (running.starts, running.started_at is not None) == (1, True)
    assert (waiting.starts, waiting.started_at, waiting.retry) == (0, None, Retry(max_attempts=9))
    assert await agent.get_queue("never") is None

    async def ids(*match: Any) -> list[str]:
        return [job.id for job in await agent.get_queues(*match)]

    assert await ids() == [first, second, third, fourth]
    assert await ids("user", "ada") == [first, third]
    assert await ids("n", 1) == [first, second]
    assert await ids("flag", 1) == []  # true is not 1
    assert await ids("nothing", None) == []
    diary.gate.set()
    await done(agent)
    assert await ids() == []


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_jobs_can_be_taken_back_one_by_one_by_callback_and_all(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    agent, other = await live(app.agent(cls, "a")), await live(app.agent(cls, "b"))
    await agent.queue("wait", "running")
    await diary.until(1)
    one = await agent.queue("note", "one")
    for number in range(3):
        await agent.queue("fail", number)
    await agent.queue("note", "kept")

    assert not await other.dequeue(one)
    assert await agent.dequeue(one)
    assert not await agent.dequeue(one)
    assert await agent.dequeue_all_by_callback("fail") == 3
    assert await agent.dequeue_all_by_callback("fail") == 0
    assert await other.dequeue_all() == 0
    assert [job.payload for job in await agent.get_queues()] == ["running", "kept"]
    assert await agent.dequeue_all() == 2

    # What ran goes on to its end; nothing else runs
    diary.gate.set()
    await done(agent)
    assert diary.lines == ["running"]
    await agent.queue("note", "later")
    await done(agent)
    assert diary.lines == ["running", "later"]


async def test_jobs_are_taken_back_by_the_method_itself_and_a_name_nobody_has_is_told(
    agent: Any, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    await agent.queue("wait", "running")
    await diary.until(1)
    await agent.queue("note", "one")
    assert await agent.dequeue_all_by_callback("noote") == 0
    assert "has no method 'noote': 'note' was meant?" in caplog.text
    assert await agent.dequeue_all_by_callback(agent.note) == 1
    diary.gate.set()
    await done(agent)


# --- from process to process


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_jobs_that_were_left_run_at_the_next_start_without_a_client(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    app = await start(cls := diary.agent())
    for name in ("a", "b"):
        agent = app.agent(cls, name)
        await agent.queue("wait", f"{name} begun")
        await agent.queue("note", f"{name} waiting")
    await diary.until(2)
    await app.close()
    assert sorted(diary.lines) == ["a begun", "b begun"]

    # The one that was cut off runs again, knows it, and comes first
    diary.lines.clear()
    diary.gate.set()
    app = await start(cls)
    await diary.until(4)
    for name in ("a", "b"):
        assert [line for line in diary.lines if line[0] == name] == [f"{name} begun", f"{name} waiting"]
        await (await home_of(app, cls, name)).jobs.idle()
        assert await app.agent(cls, name).get_queues() == []


async def test_a_job_that_runs_a_second_time_is_told_so(start: Open, diary: Diary) -> None:
    async def hold(self: Any, payload: Any, job: Job) -> None:
        diary.write(job.starts)
        await diary.gate.wait()

    app = await start(cls := diary.agent(hold=hold))
    await app.agent(cls, "a").queue("hold")
    for starts in (1, 2, 3):
        await diary.until(starts)
        await app.close()
        app = await start(cls)
    await diary.until(4)
    assert diary.lines == [1, 2, 3, 4]


async def test_jobs_of_on_start_run_after_it(start: Open, diary: Diary) -> None:
    async def on_start(self: Any, props: Any = None) -> None:
        await self.queue("note", "job")
        for _ in range(5):
            await asyncio.sleep(0)
        diary.write("started")

    app = await start(cls := diary.agent(on_start=on_start))
    await live(app.agent(cls, "a"))
    await diary.until(2)
    assert diary.lines == ["started", "job"]


async def test_a_job_interrupted_by_our_own_end_belongs_to_the_next_process(
    start: Open, diary: Diary, clock: ManualClock, url: str
) -> None:
    async def ask(self: Any, payload: Any) -> None:
        diary.write("asked")
        diary.write((await self.save_messages(payload)).status)

    model = ScriptedModel(says("I am ").then_hangs(), says("Done."), says("Done."))
    app = await start(cls := diary.agent(model=model, ask=ask))
    await app.agent(cls, "a").queue("ask", "Work!")
    await diary.until(1)
    await app.close()
    assert diary.lines == ["asked"]
    assert diary.errors == []

    app = await start(cls)
    await diary.until(3)
    assert diary.lines == ["asked", "asked", "completed"]


async def test_a_job_gets_the_grace_period(diary: Diary, url: str, clock: ManualClock, start: Open) -> None:
    app = App(cls := diary.agent(), store=url, clock=clock, grace=30.0)
    await app.open()
    await app.agent(cls, "a").queue("wait", "long")
    await app.agent(cls, "a").queue("note", "next")
    await diary.until(1)
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    diary.gate.set()
    await closing

    app = await start(cls)
    await quiet(app)
    await diary.until(2)
    assert diary.lines == ["long", "next"]


async def test_a_job_that_is_done_is_not_done_again_because_the_database_was_away(
    tmp_path: Path, diary: Diary, clock: ManualClock
) -> None:
    is_away = False

    def away(commit: Commit) -> Exception | None:
        return StoreUnavailable("away") if is_away and "jobs" in commit[0].sql else None

    cls = diary.agent()
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        agent = await live(app.agent(cls, "a"))
        store.refuse(away)
        await agent.queue("wait", "once")
        await agent.queue("note", "next")
        await diary.until(1)
        is_away = True
        diary.gate.set()
        await clock.until_waiting()
        await clock.advance(1)
        assert diary.lines == ["once"]
        is_away = False
        await clock.until_waiting()
        await clock.advance(2)
        await done(agent)
        assert diary.lines == ["once", "next"]
        assert await agent.get_queues() == []


async def test_one_commit_per_job_removes_the_last_and_takes_the_next(
    tmp_path: Path, diary: Diary, clock: ManualClock
) -> None:
    cls = diary.agent()
    async with gated_app(tmp_path, cls, clock=clock) as (app, store):
        agent = await live(app.agent(cls, "a"))
        await agent.queue("wait", 0)
        await diary.until(1)
        for number in range(1, 10):
            await agent.queue("note", number)
        before = len(store.commits)
        diary.gate.set()
        await done(agent)
        assert diary.lines == list(range(10))
        assert len(store.commits) - before == 10


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("on_start", "a hook, which everthink calls"),
        ("set_state", "everthink's"),
        ("save_messages", "everthink's"),
        ("_run_scheduled_task", "everthink's"),
    ],
)
async def test_a_callback_is_a_method_of_ones_own(open_app: OpenApp, name: str, what: str) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    handle = app.agent(cls)
    for refused in (handle.queue(name), handle.schedule(5, name), handle.schedule_every(5, name)):
        with pytest.raises(InvalidCallback, match=f"self.{name} is {what}, and no method of your own"):
            await refused
    assert (await handle.get_queues(), await handle.list_schedules()) == ([], [])


@pytest.mark.anyio
async def test_a_callback_may_be_named_by_the_handle_of_its_agent_only(open_app: OpenApp) -> None:
    class Bell(Agent):
        async def ring(self, payload: Any) -> None: ...

        async def ring_of(self, other: Any) -> None:
            await self.queue(other.ring)

    app = await open_app(Bell)
    ada, ben = app.agent(Bell, "ada"), app.agent(Bell, "ben")
    assert (await ada.schedule(500, ada.ring)).callback == "ring"
    with pytest.raises(InvalidCallback, match="ring is a method of Bell/ben, and this is Bell/ada"):
        await ada.schedule(500, ben.ring)
    async with ben as other:
        with pytest.raises(InvalidCallback, match="ring is a method of Bell/ben, and this is Bell/ada"):
            await ada.ring_of(other)
    with pytest.raises(InvalidSettings, match="has a key of payloads, and no value to look for"):
        await ada.get_queues("to")
