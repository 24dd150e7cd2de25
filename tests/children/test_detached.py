"""Runs that nobody waits for: they outlive the turn and the process, and their end is told at least once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from everthink import Agent, Think, ToolContext, tool
from everthink.abort import AbortController
from everthink.children import AgentToolProgress, AgentToolResult, AgentToolRun, Detached, detached
from everthink.errors import AgentError, InvalidCallback, InvalidSettings
from everthink.store.port import Statement
from everthink.testing import ManualClock, ScriptedModel, calls, fails, says, waits
from tests.runtime.conftest import BOTH, Open
from tests.support.hooks import until
from tests.support.runs import columns as row_of
from tests.support.runs import ends, until_shown
from tests.support.server import served
from tests.support.timers import Diary

pytestmark = pytest.mark.anyio

BOTH_ENGINES = pytest.mark.parametrize("url", BOTH, indirect=True)
NOTIFY = Detached(notify="nightly")


def helper(*plays: Any, **members: Any) -> type[Think]:
    """A child that follows a script."""
    return type("Helper", (Think,), {"model": ScriptedModel(*plays), "__module__": __name__, **members})


def boss(diary: Diary, child: type[Think], *plays: Any, **members: Any) -> type[Think]:
    """A parent that writes down what it is told of its runs."""

    class Boss(Think):
        model: Any = ScriptedModel(*plays)
        sub_agents = (child,)

        async def done(self, run: AgentToolRun, result: AgentToolResult) -> None:
            assert run.status == result.status
            diary.write((result.status, result.summary or result.error))
            diary.outcome()

        async def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> None:
            diary.items.append((run.run_id, result.status))

        def on_error(self, error: BaseException) -> None:
            diary.errors.append(error)

        @tool
        async def begin(self) -> str:
            """Begin a run."""
            result = await self.run_agent_tool(
                child, input="Go", run_id="r", detached=Detached(on_finish="done")
            )
            return result.status

    return type("Boss", (Boss,), {"__module__": __name__, **members})


async def until_over(agent: Any) -> AgentToolRun:
    """The run, once whoever is to be told of it was."""
    async with agent as live:
        while seen_through := [task for task in live._home._tasks if "_whole" in repr(task.get_coro())]:
            await asyncio.wait(seen_through)
        return (await live.list_agent_tool_runs())[0]


async def write(live: Any, statement: str) -> None:
    """Change what is stored."""
    await live._home.store.apply([Statement(statement)])


async def until_it_spoke(child: Any) -> None:
    """Return once the child has said something."""
    async with child as live:
        turns = live._home.chat.host.turns
        await until_shown(live, lambda: turns.answer is not None and turns.answer.parts)


async def columns(agent: Any, *names: str) -> tuple[Any, ...]:
    """What the row of the only run says."""
    (run,) = await agent.list_agent_tool_runs()
    return await row_of(agent, run.run_id, *names)


# --- beginning


@BOTH_ENGINES
@pytest.mark.agent_case(362)
async def test_a_detached_run_outlives_the_turn_that_asked_and_its_end_is_told_once(
    start: Open, diary: Diary
) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("found"))
    cls = boss(diary, child, calls("begin"), says("It runs."))
    agent = (await start(cls)).agent(cls)
    assert (await agent.save_messages("Go")).text == "It runs."
    assert [run.status for run in await agent.list_agent_tool_runs()] == ["running"]
    assert (await agent.list_agent_tool_runs())[0].is_detached
    gate.set()
    await diary.until(1)
    run = await until_over(agent)
    assert diary.lines == [("completed", "found")]
    assert diary.items == [("r", "completed")]
    assert run.status == "completed"
    assert None not in await columns(agent, "finish_claimed_at", "finish_delivered_at")
    assert await columns(agent, "give_up_claimed_at") == (None,)


async def test_stopping_the_parent_lets_a_detached_run_go_on(start: Open, diary: Diary) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("found"))
    cls = boss(diary, child, calls("begin").says("…").then_hangs())
    agent = (await start(cls)).agent(cls)
    asked = asyncio.ensure_future(agent.save_messages("Go"))
    async with agent as live:
        await until_shown(live, live.list_agent_tool_runs)
        await live.abort_all_requests("enough")
        assert (await asked).status == "aborted"
        assert (await live.list_agent_tool_runs())[0].status == "running"
        gate.set()
        await diary.until(1)
    assert diary.lines == [("completed", "found")]


@pytest.mark.agent_case(363)
async def test_asking_again_begins_nothing(start: Open, diary: Diary) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("one"))
    cls = boss(diary, child)
    agent: Any = (await start(cls)).agent(cls)
    asked: dict[str, Any] = {"input": "Go", "run_id": "r", "detached": Detached(on_finish="done")}
    assert (await agent.run_agent_tool(child, **asked)).status == "running"
    assert (await agent.run_agent_tool(child, **asked)).status == "running"
    # Also for somebody who would wait
    assert (await agent.run_agent_tool(child, input="Go", run_id="r")).status == "running"
    gate.set()
    await until_over(agent)
    result = await agent.run_agent_tool(child, **asked)
    assert (result.status, result.summary) == ("completed", "one")
    assert diary.lines == [("completed", "one")]


async def test_a_run_that_somebody_waits_for_cannot_be_detached(start: Open, diary: Diary) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("one"))
    cls = boss(diary, child)
    agent = (await start(cls)).agent(cls)
    async with agent as live:
        waited = asyncio.ensure_future(live.run_agent_tool(child, input="Go", run_id="r"))
        await until_shown(live, live.list_agent_tool_runs)
        with pytest.raises(AgentError, match="cannot be detached"):
            await live.run_agent_tool(child, input="Go", run_id="r", detached=True)
        gate.set()
        assert (await waited).status == "completed"
    assert await columns(agent, "detached") == (None,)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        pytest.param(Detached(on_finish="dome"), InvalidCallback, "Did you mean 'done'", id="unknown"),
        pytest.param(Detached(on_finish="begin"), InvalidCallback, "is a tool", id="tool"),
        pytest.param(Detached(on_finish="on_start"), InvalidCallback, "no method of your own", id="hook"),
        pytest.param(
            Detached(on_finish="wrong"), InvalidCallback, "wrong.self, run, result", id="parameters"
        ),
        pytest.param({"on_finished": "done"}, InvalidSettings, "Did you mean 'on_finish'", id="field"),
        pytest.param({"max_budget": 0}, InvalidSettings, "a number above 0", id="budget"),
        pytest.param({"milestone_mode": "tell"}, InvalidSettings, "'narrate', 'react'", id="mode"),
        pytest.param("later", InvalidSettings, "It takes a Detached", id="text"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_is_stored(
    start: Open, diary: Diary, given: Any, error: type[Exception], words: str
) -> None:
    def wrong(self: Any, run: Any, result: Any, more: Any) -> None:
        """Takes too much."""

    child = helper()
    cls = boss(diary, child, wrong=wrong)
    agent = (await start(cls)).agent(cls)
    with pytest.raises(error, match=words):
        await agent.run_agent_tool(child, input="Go", detached=given)
    assert await agent.list_agent_tool_runs() == []
    assert await agent.list_sub_agents() == []


async def test_an_agent_that_does_not_chat_has_no_conversation_to_tell(start: Open) -> None:
    child = helper(says("one"))

    class Plain(Agent):
        sub_agents = (child,)

    agent: Any = (await start(Plain)).agent(Plain)
    with pytest.raises(AgentError, match=r"Detached\(notify=…\) writes to a conversation"):
        await agent.run_agent_tool(child, input="Go", detached=NOTIFY)
    with pytest.raises(AgentError, match=r"Detached\(on_milestones=…\)"):
        await agent.run_agent_tool(child, input="Go", detached=Detached(on_milestones=["x"]))
    assert (await agent.run_agent_tool(child, input="Go", detached=True)).status == "running"
    assert (await until_over(agent)).status == "completed"


async def test_a_signal_stops_no_detached_run_which_is_said(
    start: Open, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    child = helper(says("one"))
    cls = boss(diary, child)
    agent = (await start(cls)).agent(cls)
    stop = AbortController()
    stop.abort("enough")
    with caplog.at_level(logging.WARNING, "everthink.children"):
        await agent.run_agent_tool(child, input="Go", detached=True, signal=stop.signal)
    assert "its signal stops nothing" in caplog.text
    assert (await until_over(agent)).status == "completed"


@pytest.mark.agent_case(327, 328)
async def test_detached_runs_count_among_those_that_may_run_at_once(start: Open, diary: Diary) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("one"), says("two"))
    cls = boss(diary, child, max_concurrent_agent_tools=1)
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(child, input="Go", detached=True)
    second = await agent.run_agent_tool(child, input="Go", detached=Detached(on_finish="done"))
    assert (second.status, second.error) == ("error", "max_concurrent_agent_tools (1) exceeded")
    gate.set()
    await until_over(agent)
    assert (await agent.run_agent_tool(child, input="Go")).status == "completed"
    assert diary.lines == []


async def test_very_many_detached_runs_are_told_once(
    start: Open, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detached, "MANY", 2)
    gate = asyncio.Event()
    child = helper(*(waits(gate).says("one") for _ in range(3)))
    cls = boss(diary, child)
    app = await start(cls)
    told: list[Any] = []
    app.events.subscribe(told.append, type="agent_tool:detached:live_count_warning")
    agent = app.agent(cls)
    for _ in range(3):
        await agent.run_agent_tool(child, input="Go", detached=True)
    gate.set()
    await until_over(agent)
    assert [event.payload for event in told] == [{"liveCount": 2, "threshold": 2}]


# --- after a restart


@pytest.mark.agent_case(335, 363)
@BOTH_ENGINES
async def test_a_detached_run_is_taken_up_by_the_next_process_without_anybody_asking(
    start: Open, diary: Diary
) -> None:
    child = helper(says("half ").then_hangs(), says("whole"))
    cls = boss(diary, child)
    app = await start(cls)
    agent = app.agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(on_finish="done"))
    await until_it_spoke(await agent.sub_agent(child, "r"))
    app = await start(cls)
    await diary.until(1)
    assert [status for status, _ in diary.lines] == ["completed"]
    assert "whole" in diary.lines[0][1]
    run = await until_over(app.agent(cls))
    assert run.status == "completed"
    assert None not in await columns(app.agent(cls), "finish_delivered_at")


@BOTH_ENGINES
async def test_an_end_that_was_not_told_to_the_end_is_told_again_by_the_next_process(
    start: Open, diary: Diary
) -> None:
    child = helper(says("found"))
    gate = asyncio.Event()

    async def slow(self: Any, run: AgentToolRun, result: AgentToolResult) -> None:
        diary.write(result.status)
        await gate.wait()

    cls = boss(diary, child, slow=slow)
    app = await start(cls)
    await app.agent(cls).run_agent_tool(child, input="Go", detached=Detached(on_finish="slow"))
    await diary.until(1)
    claimed, delivered = await columns(app.agent(cls), "finish_claimed_at", "finish_delivered_at")
    assert claimed is not None
    assert delivered is None
    app = await start(cls)
    await diary.until(2)
    gate.set()
    run = await until_over(app.agent(cls))
    assert diary.lines == ["completed", "completed"]
    assert run.status == "completed"
    assert None not in await columns(app.agent(cls), "finish_delivered_at")
    # And by no other
    app = await start(cls)
    await (await app.open()).waker.idle()
    await until_over(app.agent(cls))
    assert len(diary.lines) == 2


async def test_a_child_that_came_to_its_end_while_nobody_was_there_was_in_time(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("found"))
    cls = boss(diary, child)
    app = await start(cls)
    agent = app.agent(cls)
    await agent.run_agent_tool(
        child, input="Go", run_id="r", detached=Detached(on_finish="done", max_budget=60)
    )
    async with agent as live:  # as if the parent had died, and the child had not
        live._home.children.runs.detached.forget("r")
    below = await agent.sub_agent(child, "r")
    gate.set()
    assert await below.wait_until_stable()
    await clock.advance(3600)
    app = await start(cls)
    await diary.until(1)
    await until_over(app.agent(cls))
    assert diary.lines == [("completed", "found")]


async def test_a_value_that_was_asked_for_is_read_by_the_next_process(start: Open, diary: Diary) -> None:
    found: list[Any] = []
    child = helper(says("{").then_hangs(), says('"n": 3}'))

    def got(self: Any, run: AgentToolRun, result: AgentToolResult) -> None:
        found.append(result.output)
        diary.write(result.status)

    cls = boss(diary, child, got=got)
    agent = (await start(cls)).agent(cls)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    await agent.run_agent_tool(
        child, input="Go", run_id="r", output=schema, detached=Detached(on_finish="got")
    )
    await until_it_spoke(await agent.sub_agent(child, "r"))
    await start(cls)
    await diary.until(1)
    assert (diary.lines, found) == (["completed"], [{"n": 3}])


async def test_a_run_whose_child_is_gone_is_told_as_failed(start: Open, diary: Diary) -> None:
    child = helper(says("half").then_hangs())
    cls = boss(diary, child)
    app = await start(cls)
    agent = app.agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(on_finish="done"))
    await agent.delete_sub_agent(child, "r")
    await diary.until(1)
    await until_over(agent)
    assert diary.lines == [("error", "The sub-agent was deleted before it could finish.")]


async def test_a_method_that_is_no_longer_there_is_missed_in_the_log(
    start: Open, diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    child = helper(says("half").then_hangs(), says("found"))
    cls = boss(diary, child)
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(child, input="Go", detached=Detached(on_finish="done"))
    (run,) = await agent.list_agent_tool_runs()
    await until_it_spoke(await agent.sub_agent(child, run.run_id))

    class Boss(Think):
        model: Any = ScriptedModel()
        sub_agents = (child,)

    app = await start(Boss)
    assert (await until_over(app.agent(Boss))).status == "completed"
    assert "has no method 'done' any more" in caplog.text
    assert None not in await columns(app.agent(Boss), "finish_delivered_at")


# --- what raises


@pytest.mark.agent_case(368)
async def test_a_method_that_raises_is_called_again_after_a_minute(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    child = helper(says("found"))
    cls = boss(diary, child)
    outcomes: list[Exception | None] = [ValueError("no"), ValueError("still no"), None]

    def outcome() -> None:
        if (error := outcomes.pop(0)) is not None:
            raise error

    diary.outcome = outcome
    app = await start(cls)
    told: list[Any] = []
    app.events.subscribe(told.append, type="agent_tool:detached:delivery_failed")
    agent = app.agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(on_finish="done"))
    await diary.until(1)
    await clock.until_waiting()
    assert await columns(agent, "status", "finish_delivered_at") == ("completed", None)
    await clock.advance(59)
    assert len(diary.lines) == 1
    await clock.advance(1)
    await diary.until(2)
    await clock.until_waiting()
    await clock.advance(120)
    await diary.until(3)
    await until_over(agent)
    assert diary.lines == [("completed", "found")] * 3
    assert [str(error) for error in diary.errors] == ["no", "still no"]
    assert [event.payload for event in told] == [
        {"runId": "r", "kind": "finish", "status": "completed", "callback": "done", "error": "no"},
        {"runId": "r", "kind": "finish", "status": "completed", "callback": "done", "error": "still no"},
    ]


# --- giving up


@pytest.mark.agent_case(364, 365, 373)
async def test_a_run_that_takes_too_long_is_given_up_and_stopped_and_both_are_told(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    child = helper(says("half").then_hangs())
    cls = boss(diary, child)
    app = await start(cls)
    agent = app.agent(cls)
    async with served(app) as server:
        tab = await server.connect(cls, "default")
        await agent.run_agent_tool(
            child, input="Go", run_id="r", detached=Detached(on_finish="done", max_budget=60)
        )
        await clock.until_waiting()
        await clock.advance(59)
        assert diary.lines == []
        await clock.advance(1)
        await diary.until(2)
        run = await until_over(agent)
        why = "The child took longer than it may, and was stopped."
        assert diary.lines == [("interrupted", why), ("aborted", why)]
        assert diary.items == [("r", "interrupted"), ("r", "aborted")]
        assert run.status == "aborted"
        row = await columns(agent, "give_up_claimed_at", "give_up_delivered_at", "finish_delivered_at")
        assert None not in row
        await tab.until(lambda: len(ends(tab)) == 2)
        assert ends(tab) == [
            {
                "kind": "interrupted",
                "runId": "r",
                "error": why,
                "reason": "budget-exceeded",
                "childStillRunning": False,
            },
            {"kind": "aborted", "runId": "r", "reason": why},
        ]


@pytest.mark.agent_case(366, 367)
async def test_a_child_that_falls_silent_after_a_report_is_given_up(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    reported, report = asyncio.Event(), asyncio.Event()

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work, report, and hang."""
        await report.wait()
        await ctx.agent.report_progress(fraction=0.5)
        reported.set()
        await asyncio.Event().wait()
        return ""

    child = helper(calls("work"), work=work)
    cls = boss(diary, child)
    agent = (await start(cls)).agent(cls)
    limits = Detached(on_finish="done", no_progress_budget=30)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=limits)
    # One that has not reported yet is not silent
    for _ in range(5):
        await clock.until_waiting()
        await clock.advance(30)
    assert diary.lines == []
    report.set()
    await reported.wait()
    await clock.advance(29)
    assert diary.lines == []
    await clock.advance(1)
    await diary.until(2)
    await until_over(agent)
    assert [status for status, _ in diary.lines] == ["interrupted", "aborted"]
    assert "said nothing for too long" in diary.lines[0][1]


@pytest.mark.agent_case(364)
async def test_an_end_is_told_though_whoever_was_told_of_the_giving_up_raised(
    start: Open, diary: Diary, clock: ManualClock
) -> None:
    child = helper(says("half").then_hangs())
    cls = boss(diary, child)
    outcomes: list[Exception | None] = [ValueError("no"), None, None]

    def outcome() -> None:
        if (error := outcomes.pop(0)) is not None:
            raise error

    diary.outcome = outcome
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(child, input="Go", detached=Detached(on_finish="done", max_budget=10))
    await clock.until_waiting()
    await clock.advance(10)
    await diary.until(2)
    await until_over(agent)
    delivered = await columns(agent, "give_up_delivered_at", "finish_delivered_at")
    assert delivered[0] is None
    assert delivered[1] is not None
    await clock.advance(60)
    await diary.until(3)
    assert [status for status, _ in diary.lines] == ["interrupted", "aborted", "interrupted"]
    # What it ended with stays
    assert (await agent.list_agent_tool_runs())[0].status == "aborted"


@pytest.mark.agent_case(365)
@BOTH_ENGINES
async def test_a_giving_up_that_was_stored_is_told_by_the_next_process(start: Open, diary: Diary) -> None:
    child = helper(says("half").then_hangs(), says("whole").then_hangs())
    cls = boss(diary, child)
    app = await start(cls)
    agent = app.agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(on_finish="done"))
    async with agent as live:  # as a process leaves it that dies right after that commit
        live._home.children.runs.detached.forget("r")
        await write(
            live,
            "UPDATE child_runs SET status = 'interrupted', reason = 'no-progress', give_up_claimed_at = 1,"
            " ended_at = 1 WHERE agent = :agent",
        )
    app = await start(cls)
    await diary.until(2)
    run = await until_over(app.agent(cls))
    assert [status for status, _ in diary.lines] == ["interrupted", "aborted"]
    assert run.status == "aborted"
    assert None not in await columns(app.agent(cls), "give_up_delivered_at", "finish_delivered_at")


# --- stopping, clearing


@BOTH_ENGINES
@pytest.mark.agent_case(373)
async def test_stopping_a_detached_run_is_told(start: Open, diary: Diary) -> None:
    child = helper(says("half").then_hangs())
    cls = boss(diary, child)
    app = await start(cls)
    agent = app.agent(cls)
    async with served(app) as server:
        tab = await server.connect(cls, "default")
        await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(on_finish="done"))
        await agent.cancel_agent_tool("r")
        await diary.until(1)
        run = await until_over(agent)
        assert diary.lines == [("aborted", "cancelled by parent")]
        assert run.status == "aborted"
        await agent.cancel_agent_tool("r")
        await agent.cancel_agent_tool("unknown")
        assert len(diary.lines) == 1
        await tab.until(lambda: bool(ends(tab)))
        assert ends(tab) == [{"kind": "aborted", "runId": "r", "reason": "cancelled by parent"}]


@pytest.mark.agent_case(371)
async def test_stopping_a_run_that_is_waited_for_delivers_nothing(start: Open, diary: Diary) -> None:
    child = helper(says("half").then_hangs())
    cls = boss(diary, child)
    agent = (await start(cls)).agent(cls)
    async with agent as live:
        waited = asyncio.ensure_future(live.run_agent_tool(child, input="Go", run_id="r"))
        await until_shown(live, live.list_agent_tool_runs)
        await live.cancel_agent_tool("r", "enough")
        assert (await waited).status == "aborted"
    assert await columns(agent, "give_up_claimed_at", "give_up_delivered_at") == (None, None)


async def test_a_run_that_is_cleared_is_told_to_nobody(start: Open, diary: Diary) -> None:
    child = helper(says("half").then_hangs())
    cls = boss(diary, child)
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(on_finish="done"))
    assert await agent.clear_agent_tool_runs() == 1
    assert await agent.list_sub_agents() == []
    assert await agent.list_agent_tool_runs() == []
    assert diary.lines == []


# --- what the conversation is told


@BOTH_ENGINES
@pytest.mark.agent_case(372)
async def test_the_model_answers_to_a_run_that_is_over(start: Open, diary: Diary) -> None:
    child = helper(says("It rains."))
    cls = boss(diary, child, says("So it rains."))
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=NOTIFY, display={"name": "Weatherman"})
    await until_over(agent)
    assert await agent.wait_until_stable()
    question, answer = await agent.get_messages()
    assert question.text == "The background run of Weatherman (r) is complete:\n\nIt rains."
    assert answer.text == "So it rains."
    marks = {"source": "nightly", "runId": "r", "agentType": "Helper", "status": "completed"}
    assert question.metadata == marks
    (submission,) = await agent.list_submissions()
    assert submission.idempotency_key == "detached-finish:r:completed"
    assert submission.metadata == marks


@BOTH_ENGINES
@pytest.mark.case(574)
async def test_ends_of_runs_wait_for_the_turn_that_is_under_way(start: Open, diary: Diary) -> None:
    # Given a parent in mid-answer, whose two runs come to their ends meanwhile
    gate, ends = asyncio.Event(), asyncio.Event()
    child = helper(waits(ends).says("one"), waits(ends).says("two"))
    cls = boss(diary, child, waits(gate).says("Long."), says("First."), says("Second."))
    agent = (await start(cls)).agent(cls)
    for name in ("r1", "r2"):
        await agent.run_agent_tool(child, input="Go", run_id=name, detached=NOTIFY)
    asked = asyncio.ensure_future(agent.save_messages("Go"))
    await cls.model.until_silent()  # pyright: ignore[reportAttributeAccessIssue]
    ends.set()
    await until_over(agent)
    # When it has come to its end
    assert [message.text for message in await agent.get_messages()] == ["Go"]
    gate.set()
    await asked
    assert await agent.wait_until_stable()
    # Then they are answered, one after the other
    said = [message.text for message in await agent.get_messages()]
    assert said[:2] == ["Go", "Long."]
    assert [text.rpartition("\n")[2] for text in said[2:]] in (
        ["one", "First.", "two", "Second."],
        ["two", "First.", "one", "Second."],
    )


async def test_a_failure_is_told_in_its_own_words(start: Open, diary: Diary) -> None:
    child = helper(fails("broken"))
    cls = boss(diary, child, says("Pity."))
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(notify=True))
    await until_over(agent)
    assert await agent.wait_until_stable()
    question, _ = await agent.get_messages()
    assert question.text.startswith("The background run of Helper (r) has failed: ")
    assert question.metadata["source"] == "detached-agent-tool"


async def test_an_agent_may_say_it_otherwise_or_not_at_all(start: Open, diary: Diary) -> None:
    child = helper(says("one"), says("two"))

    def words(self: Any, run: AgentToolRun, result: AgentToolResult) -> str:
        return "" if result.summary == "one" else f"Look: {result.summary}"

    cls = boss(diary, child, says("Nice."), format_detached_completion=words)
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(child, input="Go", detached=NOTIFY)
    await until_over(agent)
    assert await agent.get_messages() == []
    await agent.run_agent_tool(child, input="Go", detached=Detached(notify=True, on_finish="done"))
    await until_over(agent)
    assert await agent.wait_until_stable()
    assert [message.text for message in await agent.get_messages()] == ["Look: two", "Nice."]
    assert diary.lines == [("completed", "two")]


def passing(*names: str) -> Any:
    """A tool that passes milestones."""

    @tool
    async def work(ctx: ToolContext) -> str:
        """Work."""
        for name in names:
            await ctx.agent.report_progress(milestone=name, message=f"{name}!")
        return "worked"

    return work


@BOTH_ENGINES
@pytest.mark.case(576)
async def test_milestones_are_narrated_each_name_once(start: Open, diary: Diary) -> None:
    child = helper(calls("work"), says("done"), work=passing("found", "other", "found", "read"))
    cls = boss(diary, child)
    agent = (await start(cls)).agent(cls)
    await agent.run_agent_tool(
        child, input="Go", run_id="r", detached=Detached(on_milestones=["found", "", "read"])
    )
    await until_over(agent)
    messages = await agent.get_messages()
    assert [(message.role, message.id, message.text) for message in messages] == [
        ("assistant", "detached-ms:r:found", "The background run of Helper has reached 'found': found!"),
        ("assistant", "detached-ms:r:read", "The background run of Helper has reached 'read': read!"),
    ]
    assert messages[0].metadata == {
        "source": "detached-agent-tool",
        "runId": "r",
        "agentType": "Helper",
        "milestone": "found",
    }


async def test_a_model_may_react_to_milestones(start: Open, diary: Diary) -> None:
    def words(self: Any, run: AgentToolRun, milestone: AgentToolProgress) -> str:
        return f"{milestone.milestone} {milestone.sequence}"

    child = helper(calls("work"), says("done"), work=passing("found"))
    cls = boss(diary, child, says("Good."), format_detached_milestone=words)
    agent = (await start(cls)).agent(cls)
    asked = Detached(notify="x", on_milestones=("found",), milestone_mode="react", on_finish="done")
    cls.format_detached_completion = lambda self, run, result: ""  # type: ignore[method-assign]
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=asked)
    await until_over(agent)
    assert await agent.wait_until_stable()
    assert [message.text for message in await agent.get_messages()] == ["found 1", "Good."]
    (submission,) = await agent.list_submissions()
    assert submission.idempotency_key == "detached-ms:r:found"


@BOTH_ENGINES
@pytest.mark.case(575)
async def test_a_milestone_asks_the_model_once_however_often_it_is_told(start: Open, diary: Diary) -> None:
    # Given a model that has answered to a milestone, and a process that died before that was noted
    child = helper(calls("work").says("half").then_hangs(), says("half").then_hangs(), work=passing("found"))
    cls = boss(diary, child, says("Good."), says("Good again."))
    agent = (await start(cls)).agent(cls)
    asked = Detached(on_milestones=("found",), milestone_mode="react")
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=asked)
    async with await agent.sub_agent(child, "r") as live:
        told = "SELECT 1 FROM milestones WHERE agent = :agent AND told_at IS NOT NULL"
        await until(lambda: live._home.store.fetch(told))
        assert await agent.wait_until_stable()
        await write(live, "UPDATE milestones SET told_at = NULL WHERE agent = :agent")
    # When the next process tells it again
    agent = (await start(cls)).agent(cls)
    await agent.cancel_agent_tool("r")
    await until_over(agent)
    assert await agent.wait_until_stable()
    # Then the model has been asked once
    texts = [message.text for message in await agent.get_messages()]
    assert texts == ["The background run of Helper has reached 'found': found!", "Good."]
    async with await agent.sub_agent(child, "r") as live:
        assert await live._home.store.fetch(told)


async def test_milestones_that_nobody_was_there_for_are_told_by_the_next_process_once(
    start: Open, diary: Diary
) -> None:
    child = helper(calls("work").says("half").then_hangs(), says("half").then_hangs(), work=passing("found"))
    cls = boss(diary, child)
    app = await start(cls)
    agent = app.agent(cls)
    await agent.run_agent_tool(child, input="Go", run_id="r", detached=Detached(on_milestones=["found"]))
    async with agent as live:
        live._home.children.runs.detached.forget("r")
    async with await agent.sub_agent(child, "r") as live:
        passed = "SELECT 1 FROM milestones WHERE agent = :agent"
        await until_shown(live, lambda: live._home.store.fetch(passed))
    await agent.clear_messages()
    app = await start(cls)
    agent = app.agent(cls)
    async with agent as live:
        await until_shown(live, live.get_messages)
    # Forgotten by people, but told
    await agent.clear_messages()
    agent = (await start(cls)).agent(cls)
    await agent.cancel_agent_tool("r")
    await until_over(agent)
    assert await agent.get_messages() == []


async def test_a_run_comes_to_its_end_though_the_words_of_a_milestone_fail(start: Open, diary: Diary) -> None:
    outcomes = [ValueError("no words"), None]

    def words(self: Any, run: AgentToolRun, milestone: AgentToolProgress) -> str:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return "reached"

    child = helper(calls("work"), says("done"), work=passing("found"))
    cls = boss(diary, child, format_detached_milestone=words)
    agent = (await start(cls)).agent(cls)
    asked = Detached(on_milestones=["found"], on_finish="done")
    await agent.run_agent_tool(child, input="Go", detached=asked)
    assert (await until_over(agent)).status == "completed"
    assert [str(error) for error in diary.errors] == ["no words"]
    assert diary.lines == [("completed", "done")]
    # It was tried again before the end was told
    assert [message.text for message in await agent.get_messages()] == ["reached"]


async def test_a_method_that_is_told_may_ask_its_own_agent(start: Open, diary: Diary) -> None:
    async def ask(self: Any, run: AgentToolRun, result: AgentToolResult) -> None:
        diary.write((await self.save_messages(f"It says {result.summary}.")).text)

    child = helper(says("yes"))
    cls = boss(diary, child, calls("start"), says("It runs."), says("Good."))

    class Asking(cls):  # type: ignore[misc,valid-type]
        @tool
        async def start(self) -> str:
            """Begin a run from inside a turn."""
            return (await self.run_agent_tool(child, input="x", detached=Detached(on_finish="ask"))).status

    Asking.ask = ask
    agent = (await start(Asking)).agent(Asking)
    await agent.save_messages("Go")
    await diary.until(1)
    assert diary.lines == ["Good."]
