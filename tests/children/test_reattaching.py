"""A parent that comes back after a restart: how long it waits for a child that an earlier process began."""

from __future__ import annotations

import asyncio
import math
from typing import Any, NamedTuple

import pytest

from everthink import App, Think, agent_tool, tool
from everthink.abort import AbortController
from everthink.children import AgentToolResult, AgentToolRun, watching
from everthink.errors import StoreClosed
from everthink.store.port import Statement
from everthink.testing import ManualClock, ScriptedModel, calls, says, waits
from everthink.testing.scripted import hangs
from tests.runtime.conftest import BOTH, Open
from tests.support.agents import live
from tests.support.hooks import breathe, results, until
from tests.support.runs import columns, ends, run_frames, text_of
from tests.support.server import served
from tests.support.timers import Diary

pytestmark = pytest.mark.anyio

BOTH_ENGINES = pytest.mark.parametrize("url", BOTH, indirect=True)
RUN = "agent-tool:c1"
SILENT = "The child said nothing for too long; it goes on by itself."
STOPPED = "The child took longer than it may, and was stopped."


class Office(NamedTuple):
    """A parent whose model has asked a child, and the class of the child."""

    boss: type[Think]
    child: type[Think]

    def agent(self, app: App) -> Any:
        """The parent."""
        return app.agent(self.boss, "room")

    @property
    def read(self) -> Any:
        """What the model of the parent last read of a call."""
        model: Any = self.boss.model
        return results(model.last_request)[-1].output


def office(diary: Diary, *plays: Any, child: dict[str, Any] | None = None, **settings: Any) -> Office:
    """A parent that writes down how its runs end, and a child that follows a script over all processes."""

    class Helper(Think):
        model: Any = ScriptedModel(*plays)
        model_timeout = None

    helper = type("Helper", (Helper,), {"__module__": __name__, **(child or {})})

    class Boss(Think):
        model: Any = ScriptedModel(calls("delegate", query="x", id="c1"), says("Never mind."))
        delegate = agent_tool(helper, description="Ask the helper.")

        def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> None:
            assert run.status == result.status
            diary.write((run.run_id, result.status, result.reason, result.child_still_running))

    return Office(type("Boss", (Boss,), {"__module__": __name__, **settings}), helper)


async def left_behind(start: Open, found: Office) -> None:
    """Let an earlier process ask the child, which says something and falls silent, and end."""
    agent = found.agent(await start(found.boss))
    await agent.submit_messages("Go", submission_id="s")
    model: Any = found.child.model
    await model.until_silent()


async def until_patient(agent: Any, clock: ManualClock, seconds: float) -> None:
    """Return once the parent follows its child, and waits for so long from now on."""

    async def is_patient() -> bool:
        return await followed(agent) and seconds in waiting(clock)

    await until(is_patient)
    await breathe()  # that may have been a timer which another one takes the place of just now
    await until(is_patient)


def waiting(clock: ManualClock) -> list[float]:
    """For how long somebody waits from now on."""
    now = clock.monotonic()
    return [due - now for due, _, alarm in clock._alarms if alarm.callback is not None]


async def followed(agent: Any) -> bool:
    """True while the parent waits for a child that is in memory."""
    watched = (await live(agent))._home.children.runs.watched
    return any(not watch.following.is_left for watch in watched)


async def answer_of(agent: Any) -> str:
    """The parent's answer, once it has one."""
    assert (await agent.wait_for_submission("s")).status == "completed"
    return (await agent.get_messages())[-1].text


async def row_of(agent: Any, run_id: str = RUN) -> tuple[Any, ...]:
    """Status, reason, and whether the child was left at work."""
    return await columns(agent, run_id, "status", "reason", "is_left")


async def turn_of(found: Office, agent: Any, run_id: str = RUN) -> str:
    """How the child's turn stands."""
    below = await agent.sub_agent(found.child, run_id)
    return (await below.inspect_submission(run_id)).status


# --- a child that says nothing


@BOTH_ENGINES
@pytest.mark.agent_case(322, 336, 354)
async def test_a_silent_child_is_waited_for_no_longer_than_two_minutes_and_goes_on_by_itself(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    # Given a child that says nothing after a restart
    gate = asyncio.Event()
    found = office(diary, says("Half ").then_hangs(), waits(gate).says("whole."))
    await left_behind(start, found)
    app = await start(found.boss)
    events: list[Any] = []
    app.events.subscribe(
        lambda event: events.append((event.type, event.payload)), channel="agents:agent_tool"
    )
    agent = found.agent(app)
    async with served(app) as server:
        tab = await server.connect(found.boss)
        await until_patient(agent, clock, 120)
        await clock.advance(119)
        assert (ends(tab), diary.lines) == ([], [])

        # When that has lasted for two minutes
        await clock.advance(1)

        # Then the model reads that it may ask again, and the parent answers
        assert await answer_of(agent) == "Never mind."
        assert found.read == {
            "ok": False,
            "status": "interrupted",
            "error": SILENT,
            "retryable": True,
            "reason": "no-progress",
            "childStillRunning": True,
        }
        # … windows are told, also those that come later, the hook is called, the row keeps it
        told = {"kind": "interrupted", "runId": RUN, "error": SILENT, "reason": "no-progress"}
        await tab.until(lambda: ends(tab) == [{**told, "childStillRunning": True}])
        late = await server.connect(found.boss)
        await late.until(lambda: ends(late) == ends(tab))
        assert run_frames(late)[-1] == {**run_frames(tab)[-1], "replay": True}
        await diary.until(1)
        assert diary.lines == [(RUN, "interrupted", "no-progress", True)]
        assert await row_of(agent) == ("interrupted", "no-progress", 1)
        whose = {"runId": RUN, "agentType": "Helper"}
        row = {**whose, "status": "interrupted", "reason": "no-progress", "elapsedMs": 120_000}
        assert ("agent_tool:recovery:row", row) in events
        # … and the child is still at work
        assert await turn_of(found, agent) == "running"
        gate.set()
        below = await agent.sub_agent(found.child, RUN)
        assert (await below.wait_for_submission(RUN)).status == "completed"
        assert [message.text for message in await below.get_messages()][-1] == "Half whole."
        assert diary.lines == [(RUN, "interrupted", "no-progress", True)]


@pytest.mark.agent_case(339)
async def test_a_full_silent_window_counts_though_the_child_spoke_before_it(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gate = asyncio.Event()
    found = office(diary, says("Half ").then_hangs(), waits(gate).says("more ").then_hangs())
    await left_behind(start, found)
    app = await start(found.boss)
    agent = found.agent(app)
    async with served(app) as server:
        tab = await server.connect(found.boss)
        await until_patient(agent, clock, 120)
        await clock.advance(100)
        gate.set()
        await tab.until(lambda: "more" in text_of(tab))
        await until_patient(agent, clock, 120)
        await clock.advance(119)
        assert await row_of(agent) == ("running", None, 0)
        await clock.advance(1)
        assert await answer_of(agent) == "Never mind."
        assert found.read["reason"] == "no-progress"


@BOTH_ENGINES
@pytest.mark.case(664)
@pytest.mark.agent_case(338)
async def test_a_child_that_goes_on_slowly_is_followed_to_its_end(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gates = [asyncio.Event() for _ in range(4)]
    slowly = waits(gates[0]).says("0 ")
    for number, gate in enumerate(gates[1:], 1):
        slowly = slowly.waits(gate).says(f"{number} ")
    found = office(diary, says("Half ").then_hangs(), slowly)
    await left_behind(start, found)
    app = await start(found.boss)
    agent = found.agent(app)
    async with served(app) as server:
        tab = await server.connect(found.boss)
        for number, gate in enumerate(gates):
            await until_patient(agent, clock, 120)
            await clock.advance(119)
            gate.set()
            await tab.until(lambda number=number: f"{number} " in text_of(tab))
        assert await answer_of(agent) == "Never mind."
        assert found.read == "Half 0 1 2 3 "
        await diary.until(1)
        assert diary.lines == [(RUN, "completed", None, False)]
        assert await row_of(agent) == ("completed", None, 0)


@pytest.mark.agent_case(338)
async def test_a_child_that_leaves_memory_meanwhile_is_followed_again_within_the_same_windows(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gate = asyncio.Event()
    plays = [says("Half ").then_hangs() for _ in range(3)]
    found = office(diary, *plays, waits(gate).says("whole."), agent_tool_reattach_max_window=300)
    await left_behind(start, found)
    agent = found.agent(await start(found.boss))
    for _ in range(2):
        await until_patient(agent, clock, 120)
        await clock.advance(100)
        await agent.abort_sub_agent(found.child, RUN)
    # The window for all of it is not opened anew: 100 seconds are left
    await until_patient(agent, clock, 100)
    await clock.advance(100)
    assert await answer_of(agent) == "Never mind."
    assert found.read["reason"] == "window-exceeded"


async def test_a_child_that_leaves_memory_just_when_it_is_joined_is_joined_again(
    start: Open, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = office(diary, says("Half ").then_hangs(), *(says("Half ").then_hangs() for _ in range(2)))
    await left_behind(start, found)
    real, reached = watching.child_of, 0

    async def child_of(parts: Any, row: Any) -> Any:
        nonlocal reached
        child = await real(parts, row)
        reached += 1
        if reached == 1:
            found.child.model = ScriptedModel(says("whole."))
            await parts.kin.evict(child.address)
        return child

    monkeypatch.setattr(watching, "child_of", child_of)
    agent = found.agent(await start(found.boss))
    assert await answer_of(agent) == "Never mind."
    assert found.read == "Half whole."
    assert reached == 2


async def test_in_the_process_that_began_it_a_silent_child_is_waited_for(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gate = asyncio.Event()
    found = office(diary, waits(gate).says("Late."))
    agent = found.agent(await start(found.boss))
    asked = asyncio.ensure_future(agent.run_agent_tool(found.child, input="Go", run_id="r"))
    await until(lambda: followed(agent))
    alone = readers(await live(agent))
    again = asyncio.ensure_future(agent.run_agent_tool(found.child, input="Go", run_id="r"))
    async with agent as home:
        await until(lambda: readers(home) == alone + 1)
    await clock.advance(100_000)
    assert await row_of(agent, "r") == ("running", None, 0)
    gate.set()
    assert (await asked).summary == (await again).summary == "Late."
    await diary.until(1)
    await settled(agent)
    assert diary.lines == [("r", "completed", None, False)]  # though two waited for it


def readers(home: Any) -> int:
    """How many listen to the child of the only run."""
    return len(next(iter(home._home.children.runs.watched)).following.child.feed)


async def test_a_run_that_a_call_and_code_wait_for_ends_once(start: Open, diary: Diary) -> None:
    gate = asyncio.Event()
    found = office(diary, waits(gate).says("Late."))
    agent = found.agent(await start(found.boss))
    await agent.submit_messages("Go", submission_id="s")
    await until(lambda: followed(agent))
    alone = readers(await live(agent))
    again = asyncio.ensure_future(agent.run_agent_tool(found.child, input="x", run_id=RUN))
    home = await live(agent)
    await until(lambda: readers(home) == alone + 1)
    gate.set()
    assert (await again).summary == "Late."
    assert await answer_of(agent) == "Never mind."
    await diary.until(1)
    await settled(agent)
    assert diary.lines == [(RUN, "completed", None, False)]


async def test_whoever_stops_a_run_that_waits_for_a_person_stops_it_for_all_who_wait(
    start: Open, diary: Diary
) -> None:
    stop = AbortController()
    found = office(diary, calls("sure", query="x"), child=asking())
    agent = found.agent(await start(found.boss))
    first = asyncio.ensure_future(agent.run_agent_tool(found.child, input="x", run_id="r"))
    await question_of(agent, found, "r")
    home = await live(agent)
    alone = readers(home)
    asked = agent.run_agent_tool(found.child, input="x", run_id="r", signal=stop.signal)
    second = asyncio.ensure_future(asked)
    await until(lambda: readers(home) == alone + 1)
    stop.abort("enough")
    results = await asyncio.gather(first, second)
    assert [(result.status, result.error) for result in results] == [("aborted", "enough")] * 2
    await diary.until(1)
    await settled(agent)
    assert diary.lines == [("r", "aborted", None, False)]


async def settled(agent: Any) -> None:
    """Let hooks that look on see what there is."""
    async with agent as home:
        while tasks := list(home._home._tasks):
            await asyncio.wait(tasks)


# --- a child that waits for a person


def asking() -> dict[str, Any]:
    """A child's tool that asks a person first."""

    @tool(needs_approval=True)
    async def sure(query: str) -> str:
        """Is it?"""
        return query

    return {"sure": sure}


async def question_of(agent: Any, found: Office, run_id: str = RUN) -> tuple[Any, str]:
    """The child that asks a person, and its call, once it does."""
    below: Any = await agent.sub_agent(found.child, run_id)
    calls: list[str] = []

    async def asks() -> list[str]:
        parts = [part for message in await below.get_messages() for part in message.tool_parts]
        calls[:] = [part["toolCallId"] for part in parts if part["state"] == "approval-requested"]
        return calls

    await until(asks)
    return below, calls[0]


@pytest.mark.parametrize("asks", ["before the restart", "after it"])
async def test_a_child_that_asks_a_person_is_waited_for_as_long_as_it_takes(
    start: Open, clock: ManualClock, diary: Diary, asks: str
) -> None:
    gate, late = asyncio.Event(), asyncio.Event()
    plays = [calls("sure", query="x"), waits(late).says("Sure.")]
    if asks == "after it":
        plays[:1] = [says("Half ").then_hangs(), waits(gate).calls("sure", query="x")]
    found = office(diary, *plays, child=asking(), agent_tool_reattach_max_window=3600)
    agent = found.agent(await start(found.boss))
    await agent.submit_messages("Go", submission_id="s")
    if asks == "after it":
        await found.child.model.until_silent()  # type: ignore[union-attr]
        agent = found.agent(await start(found.boss))
        await until_patient(agent, clock, 120)
        gate.set()
        below, call = await question_of(agent, found)
    else:
        await question_of(agent, found)
        agent = found.agent(await start(found.boss))
        below, call = await question_of(agent, found)
        await until(lambda: followed(agent))
    for _ in range(100):  # whatever timer was begun before the question was stored
        await clock.advance(100)
    assert await row_of(agent) == ("running", None, 0)
    # Nor was anything cut off of what follows the answer
    assert await below.apply_tool_approval(call, True)
    going_on = asyncio.ensure_future(below.continue_last_turn())
    await found.child.model.until_silent()  # type: ignore[union-attr]
    for _ in range(100):
        await clock.advance(100)
    assert await row_of(agent) == ("running", None, 0)
    late.set()
    await going_on
    assert await answer_of(agent) == "Never mind."
    assert "Sure." in found.read
    assert await row_of(agent) == ("completed", None, 0)


# --- the whole window


@BOTH_ENGINES
@pytest.mark.agent_case(337, 340, 354)
async def test_a_child_that_exceeds_the_whole_window_is_stopped_whatever_it_says(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    slowly = waits(gates[0]).says("one ").waits(gates[1]).says("two ").waits(gates[2]).says("three")
    found = office(
        diary,
        says("Half ").then_hangs(),
        slowly,
        agent_tool_reattach_no_progress_timeout=math.inf,
        agent_tool_reattach_max_window=300,
    )
    await left_behind(start, found)
    app = await start(found.boss)
    agent = found.agent(app)
    async with served(app) as server:
        tab = await server.connect(found.boss)
        left = 300
        for gate, word in zip(gates, ("one ", "two "), strict=False):
            await until_patient(agent, clock, left)
            await clock.advance(140)
            left -= 140
            gate.set()
            await tab.until(lambda word=word: word in text_of(tab))
        await until_patient(agent, clock, left)
        await clock.advance(left - 1)
        assert await row_of(agent) == ("running", None, 0)
        await clock.advance(1)
        assert await answer_of(agent) == "Never mind."
        assert found.read == {
            "ok": False,
            "status": "interrupted",
            "error": STOPPED,
            "retryable": True,
            "reason": "window-exceeded",
            "childStillRunning": False,
        }
        told = {"kind": "interrupted", "runId": RUN, "error": STOPPED, "reason": "window-exceeded"}
        await tab.until(lambda: ends(tab) == [{**told, "childStillRunning": False}])
        late = await server.connect(found.boss)
        await late.until(lambda: ends(late) == ends(tab))
        await diary.until(1)
        assert diary.lines == [(RUN, "interrupted", "window-exceeded", False)]
        assert await row_of(agent) == ("interrupted", "window-exceeded", 0)
        # The child is at rest, with what it had said
        assert await turn_of(found, agent) == "aborted"
        below = await agent.sub_agent(found.child, RUN)
        assert (await below.get_messages())[-1].text == "Half one two "
        # Asking again says how it ended
        again = await agent.run_agent_tool(found.child, input="x", run_id=RUN)
        assert (again.status, again.error) == ("aborted", STOPPED)
        assert await row_of(agent) == ("aborted", None, 0)


@pytest.mark.agent_case(340)
async def test_without_a_bound_a_silent_child_is_waited_for_for_ever(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gate = asyncio.Event()
    found = office(
        diary,
        says("Half ").then_hangs(),
        waits(gate).says("whole."),
        agent_tool_reattach_no_progress_timeout=math.inf,
    )
    await left_behind(start, found)
    agent = found.agent(await start(found.boss))
    await until(lambda: followed(agent))
    await clock.advance(1_000_000)
    assert await row_of(agent) == ("running", None, 0)
    gate.set()
    assert await answer_of(agent) == "Never mind."
    assert found.read == "Half whole."


@pytest.mark.agent_case(342)
def test_the_windows_are_settings_of_the_parent() -> None:
    assert Think.agent_tool_reattach_no_progress_timeout == 120
    assert Think.agent_tool_reattach_max_window == math.inf


@pytest.mark.agent_case(342)
@pytest.mark.parametrize("seconds", [7, 0.5])
async def test_the_windows_are_those_that_the_parent_says_when_it_joins(
    start: Open, clock: ManualClock, diary: Diary, seconds: float
) -> None:
    found = office(diary, says("Half ").then_hangs(), hangs())
    await left_behind(start, found)
    found.boss.agent_tool_reattach_no_progress_timeout = seconds
    agent = found.agent(await start(found.boss))
    await until_patient(agent, clock, seconds)
    await clock.advance(seconds)
    assert await answer_of(agent) == "Never mind."
    assert found.read["reason"] == "no-progress"


# --- no patience at all


async def test_without_patience_a_child_is_looked_at_once(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    found = office(diary, says("Half ").then_hangs(), hangs(), agent_tool_reattach_no_progress_timeout=0)
    await left_behind(start, found)
    agent = found.agent(await start(found.boss))
    assert await answer_of(agent) == "Never mind."
    assert found.read["reason"] == "no-progress"


@pytest.mark.agent_case(334)
@pytest.mark.parametrize("patience", [0, 120])
async def test_a_child_that_was_done_while_its_parent_was_away_is_collected(
    start: Open, clock: ManualClock, diary: Diary, patience: float
) -> None:
    gate = asyncio.Event()
    settings = {"agent_tool_reattach_no_progress_timeout": patience}
    found = office(diary, waits(gate).says("Done."), **settings)
    app = await start(found.boss)
    agent = found.agent(app)
    await agent.submit_messages("Go", submission_id="s")
    await until(agent.list_agent_tool_runs)
    below = await agent.sub_agent(found.child, RUN)
    async with below as child:  # it stays, and its parent leaves
        await app.evict(found.boss, "room")
        gate.set()
        assert (await child.wait_for_submission(RUN)).status == "completed"
    assert await answer_of(agent) == "Never mind."
    assert found.read == "Done."
    await diary.until(1)
    assert diary.lines == [(RUN, "completed", None, False)]


# --- several at once


@pytest.mark.agent_case(343)
async def test_a_silent_child_holds_up_no_other(start: Open, clock: ManualClock, diary: Diary) -> None:
    found = office(diary, *(says("Half ").then_hangs() for _ in range(2)), says("whole."), hangs())

    def plays(request: Any) -> Any:
        is_silent = "silent" in str(request.messages)
        return hangs() if is_silent or len(model.requests) <= 2 else says("whole.")

    model = ScriptedModel(plays, repeat=True)
    found.child.model = model
    found.boss.model = ScriptedModel(
        calls("delegate", query="silent", id="c1").calls("delegate", query="busy", id="c2"), says("Both.")
    )
    agent = found.agent(await start(found.boss))
    await agent.submit_messages("Go", submission_id="s")
    await until(lambda: len(model.requests) == 2)
    agent = found.agent(await start(found.boss))
    await diary.until(1)  # without that any time has passed
    assert diary.lines == [("agent-tool:c2", "completed", None, False)]
    assert await row_of(agent, "agent-tool:c1") == ("running", None, 0)
    await until_patient(agent, clock, 120)
    await clock.advance(120)
    assert await answer_of(agent) == "Both."
    assert sorted(line[:2] for line in diary.lines) == [
        ("agent-tool:c1", "interrupted"),
        ("agent-tool:c2", "completed"),
    ]


@pytest.mark.agent_case(343, 345)
async def test_a_child_whose_start_does_not_come_to_an_end_is_a_silent_one_and_holds_up_no_other(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gate = asyncio.Event()

    async def on_start(self: Any) -> None:
        if restarted.is_set() and self.name == "agent-tool:c1":
            await gate.wait()

    restarted = asyncio.Event()
    found = office(diary, child={"on_start": on_start})
    model = ScriptedModel(lambda _: says("whole.") if restarted.is_set() else hangs(), repeat=True)
    found.child.model = model
    found.boss.model = ScriptedModel(
        calls("delegate", query="a", id="c1").calls("delegate", query="b", id="c2"), says("Both.")
    )
    agent = found.agent(await start(found.boss))
    await agent.submit_messages("Go", submission_id="s")
    await until(lambda: len(model.requests) == 2)
    restarted.set()
    agent = found.agent(await start(found.boss))
    await diary.until(1)
    assert diary.lines == [("agent-tool:c2", "completed", None, False)]
    await until(lambda: 120 in waiting(clock))
    await clock.advance(120)
    assert await answer_of(agent) == "Both."
    assert diary.lines[1:] == [("agent-tool:c1", "interrupted", "no-progress", True)]
    # It is no different for who asks once it has started
    gate.set()
    result = await agent.run_agent_tool(found.child, input="a", run_id="agent-tool:c1")
    assert (result.status, result.summary) == ("completed", "whole.")


# --- asking again


@BOTH_ENGINES
@pytest.mark.agent_case(330, 344, 356)
async def test_asking_again_joins_a_run_that_was_left_and_puts_it_right(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    gate = asyncio.Event()
    found = office(
        diary,
        says("Half ").then_hangs(),
        waits(gate).says("whole."),
        says("Another."),
        max_concurrent_agent_tools=1,
    )
    await left_behind(start, found)
    app = await start(found.boss)
    agent = found.agent(app)
    await until_patient(agent, clock, 120)
    refused = await agent.run_agent_tool(found.child, input="Go", run_id="refused")
    assert refused.error == "max_concurrent_agent_tools (1) exceeded"
    await clock.advance(120)
    assert await answer_of(agent) == "Never mind."
    async with served(app) as server:
        tab = await server.connect(found.boss)
        await tab.until(lambda: bool(ends(tab, RUN)))
        # When somebody asks again, and the child comes to its end
        events: list[Any] = []
        app.events.subscribe(events.append, channel="agents:agent_tool")
        again = asyncio.ensure_future(agent.run_agent_tool(found.child, input="x", run_id=RUN))
        await until(lambda: followed(agent))
        gate.set()
        result = await again
        whose = {"runId": RUN, "agentType": "Helper"}
        assert [(event.type, event.payload) for event in events] == [
            ("agent_tool:recovery:reattach", {**whose, "budgetMs": 120_000}),
            ("agent_tool:recovery:row", {**whose, "status": "completed", "elapsedMs": 0}),
        ]
        assert (result.status, result.summary, result.reason) == ("completed", "Half whole.", None)
        # Then that is how it ended, everywhere, and nothing is left of the cause
        assert await columns(agent, RUN, "status", "reason", "is_left", "error") == (
            "completed",
            None,
            0,
            None,
        )
        await tab.until(lambda: len(ends(tab, RUN)) == 2)
        assert ends(tab, RUN)[-1] == {"kind": "finished", "runId": RUN, "summary": "Half whole."}
        assert text_of(tab, RUN) == "Half whole."
        late = await server.connect(found.boss)
        await late.until(lambda: bool(ends(late, RUN)))
        assert ends(late, RUN) == ends(tab, RUN)[-1:]
        await diary.until(2)
        assert diary.lines == [(RUN, "interrupted", "no-progress", True), (RUN, "completed", None, False)]
        child = await agent.sub_agent(found.child, RUN)
        assert [message.role for message in await child.get_messages()] == ["user", "assistant"]


@pytest.mark.agent_case(355)
async def test_a_run_that_was_left_for_no_stored_reason_is_told_as_that(start: Open, diary: Diary) -> None:
    found = office(diary, says("Done."))
    app = await start(found.boss)
    agent = found.agent(app)
    await agent.run_agent_tool(found.child, input="x", run_id="r")
    await (await live(agent))._home.store.apply(
        [Statement("UPDATE child_runs SET status = 'interrupted', summary = NULL WHERE agent = :agent")]
    )
    async with served(app) as server:
        tab = await server.connect(found.boss)
        await tab.until(lambda: bool(ends(tab)))
        (end,) = ends(tab)
        assert (end["kind"], end["childStillRunning"], "reason" in end) == ("interrupted", False, False)
        assert "can be retried" in end["error"]


# --- which runs


@pytest.mark.agent_case(346, 347)
async def test_a_start_sees_to_the_runs_that_were_left_and_to_none_of_its_own(
    start: Open, clock: ManualClock, diary: Diary
) -> None:
    begun: list[asyncio.Task[Any]] = []
    entered, hook = asyncio.Event(), asyncio.Event()

    async def on_start(self: Any) -> None:
        name = f"own-{len(begun)}"
        begun.append(asyncio.create_task(self.run_agent_tool(self.sub_agents[0], input="x", run_id=name)))
        entered.clear()
        await entered.wait()

    async def on_agent_tool_start(self: Any, run: AgentToolRun) -> None:
        entered.set()
        if run.run_id == "own-1":
            await hook.wait()  # so long the run is under way and nobody waits for its end yet

    found = office(
        diary,
        *(says("Half ").then_hangs() for _ in range(2)),
        on_start=on_start,
        on_agent_tool_start=on_agent_tool_start,
    )
    found.boss.sub_agents = (found.child,)
    app = await start(found.boss)
    await live(found.agent(app))
    await found.child.model.until_silent()  # type: ignore[union-attr]
    found.child.model = ScriptedModel.forever(says("whole."))

    # When the next process starts, which begins one of its own at once
    app = await start(found.boss)
    agent = found.agent(app)
    await live(agent)
    await until(lambda: len(begun) == 2)
    await diary.until(1)
    await settled_but(agent, begun[1])
    assert diary.lines == [("own-0", "completed", None, False)]  # that of the earlier process, once
    hook.set()
    assert (await begun[1]).status == "completed"
    await diary.until(2)
    await settled(agent)
    assert diary.lines[1:] == [("own-1", "completed", None, False)]
    with pytest.raises(StoreClosed):  # whoever waited in the process that has ended
        await begun[0]


async def settled_but(agent: Any, task: asyncio.Task[Any]) -> None:
    """Let all that runs beside this come to its end."""
    async with agent as home:
        while tasks := [one for one in home._home._tasks if one is not task]:
            await asyncio.wait(tasks)
