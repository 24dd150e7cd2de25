"""How far a child is: told to its parent's windows and hooks, kept with the run, and in no message."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from everthink import Agent, Think, ToolContext, agent_tool, tool
from everthink.children import AgentToolProgress, AgentToolRun
from everthink.children.showing import RunViews
from everthink.errors import InvalidSettings, NotJson, TurnInterrupted
from everthink.journal.feed import RunTold
from everthink.testing import ManualClock, ScriptedModel, calls, says, waits
from tests.runtime.conftest import BOTH, Open
from tests.support.server import served

pytestmark = pytest.mark.anyio

BOTH_ENGINES = pytest.mark.parametrize("url", BOTH, indirect=True)
PASSED = "SELECT seq, name FROM milestones WHERE agent = :agent ORDER BY seq"
Work = Callable[[Any], Awaitable[None]]


def family(work: Work, *plays: Any, **members: Any) -> tuple[type[Think], type[Think]]:
    """A parent whose tool is a child which does that work, and the class of the child."""

    class Helper(Think):
        model = ScriptedModel(*(plays or (calls("work").says("Then "), says("done."))))

        @tool
        async def work(self) -> str:
            """Work."""
            await work(self)
            return "worked"

    class Assistant(Think):
        model: Any = ScriptedModel(calls("delegate", query="x"), says("Done."))
        delegate = agent_tool(Helper, description="Ask the helper.")

    return type("Assistant", (Assistant,), {"__module__": __name__, **members}), Helper


def told(tab: Any) -> list[tuple[int, Any]]:
    """What a window was told of runs: number, and the kind, or the type and the data of a piece."""
    found: list[tuple[int, Any]] = []
    for frame in tab.frames:
        if frame["type"] == "agent-tool-event":
            event = frame["event"]
            piece = json.loads(event["body"]) if event["kind"] == "chunk" else None
            shown = event["kind"] if piece is None else piece["type"]
            is_data = piece is not None and shown.startswith("data-")
            found.append((frame["sequence"], (shown, piece["data"]) if is_data and piece else shown))
    return found


def data(tab: Any, kind: str) -> list[Any]:
    """What a window was told of that kind of data."""
    return [one[1] for _, one in told(tab) if isinstance(one, tuple) and one[0] == f"data-agent-{kind}"]


# --- what windows see


@BOTH_ENGINES
@pytest.mark.agent_case(381)
async def test_progress_passes_by_and_later_pieces_keep_their_numbers(start: Open) -> None:
    async def work(child: Any) -> None:
        await child.report_progress(fraction=0.25, message="reading", phase="one", data={"page": 3})

    cls, child = family(work)
    app = await start(cls)
    async with served(app) as server:
        tab = await server.connect(cls)
        await tab.until_done(await tab.say("Go"))
        assert data(tab, "progress") == [
            {"fraction": 0.25, "message": "reading", "phase": "one", "data": {"page": 3}}
        ]
        # It has no number of its own: it comes after the piece whose number it has
        numbers = [number for number, one in told(tab) if not isinstance(one, tuple)]
        assert numbers == list(range(len(numbers)))
        assert [frame["event"] for frame in tab.frames if frame["type"] == "agent-tool-event"][-1][
            "kind"
        ] == "finished"
        late = await server.connect(cls)
        await late.until(lambda: told(late)[-1:] and told(late)[-1][1] == "finished")
        assert told(late) == [one for one in told(tab) if not isinstance(one[1], tuple)]
        agent = app.agent(cls, "room")
        (run,) = await agent.list_agent_tool_runs()
        assert run.progress is not None
        assert (run.progress.fraction, run.progress.message, run.progress.phase) == (0.25, "reading", "one")
        assert run.progress.data is None  # only what was asked to be kept is
        for one in (agent, await agent.sub_agent(child, run.run_id)):
            parts = [part for message in await one.get_messages() for part in message.parts]
            assert not [part for part in parts if part["type"].startswith("data-")]


@pytest.mark.agent_case(381)
async def test_data_is_kept_when_that_is_asked_for(start: Open) -> None:
    async def work(child: Any) -> None:
        await child.report_progress(data={"page": 3}, persist=True)

    cls, _ = family(work)
    agent = (await start(cls)).agent(cls)
    await agent.save_messages("Go")
    (run,) = await agent.list_agent_tool_runs()
    assert run.progress is not None
    assert run.progress.data == {"page": 3}


@pytest.mark.agent_case(316)
async def test_a_window_that_comes_late_sees_how_far_a_child_is(start: Open) -> None:
    reported, gate = asyncio.Event(), asyncio.Event()

    async def work(child: Any) -> None:
        await child.report_progress(fraction=0.5, milestone="half")
        reported.set()
        await gate.wait()

    cls, _ = family(work)
    app = await start(cls)
    async with served(app) as server:
        tab = await server.connect(cls)
        said = await tab.say("Go")
        await reported.wait()
        late = await server.connect(cls)
        await late.until(lambda: bool(data(late, "progress")))
        assert data(late, "progress") == [{"fraction": 0.5}]
        assert [one["name"] for one in data(late, "milestone")] == ["half"]
        gate.set()
        await tab.until_done(said)
        await late.until(lambda: told(late)[-1][1] == "finished")
        # Nothing that follows is hidden by it
        numbered = [one for one in told(tab) if not (isinstance(one[1], tuple) and "progress" in one[1][0])]
        again = [one for one in told(late) if not (isinstance(one[1], tuple) and "progress" in one[1][0])]
        assert again == numbered
        assert [number for number, _ in numbered] == list(range(len(numbered)))


@pytest.mark.agent_case(382)
async def test_of_a_burst_the_first_and_the_last_are_told_and_a_finished_one_at_once(
    start: Open, clock: ManualClock
) -> None:
    step, went = asyncio.Event(), asyncio.Event()

    async def work(child: Any) -> None:
        for percent in range(5):
            await child.report_progress(fraction=percent / 100)
        went.set()
        await step.wait()
        await child.report_progress(fraction=0.5)
        await child.report_progress(fraction=1)

    cls, _ = family(work)
    seen: list[Any] = []
    cls.on_progress = lambda self, run, progress: seen.append(progress.fraction)  # type: ignore[method-assign]
    agent = (await start(cls)).agent(cls)
    asked = asyncio.ensure_future(agent.save_messages("Go"))
    await went.wait()
    await clock.advance(0.1)
    async with agent as live:
        await settled(live)
        assert seen == [0]
        await clock.advance(0.11)
        await until(live, lambda: len(seen) == 2)
        assert seen == [0, 0.04]
        step.set()
        await asked
        await settled(live)
    assert seen == [0, 0.04, 1]


async def settled(live: Any) -> None:
    """Let hooks that look on see what there is."""
    while tasks := list(live._home._tasks):
        await asyncio.wait(tasks)


async def until(live: Any, is_so: Callable[[], bool]) -> None:
    """Return once that is so, which may be after whatever the agent shows."""
    changed = asyncio.Event()
    leave = live._home.feed.join(lambda _: changed.set())
    try:
        while changed.clear() or not is_so():
            await changed.wait()
            await settled(live)
    finally:
        leave()


@BOTH_ENGINES
@pytest.mark.agent_case(382)
async def test_milestones_are_all_kept_in_order_and_told_again_in_the_same_numbers(start: Open) -> None:
    async def work(child: Any) -> None:
        for name in ("found", "read", "found"):
            await child.report_progress(milestone=name, data=[name])

    cls, child = family(work)
    app = await start(cls)
    async with served(app) as server:
        tab = await server.connect(cls)
        await tab.until_done(await tab.say("Go"))
        passed = data(tab, "milestone")
        assert [(one["name"], one["sequence"], one["data"]) for one in passed] == [
            ("found", 1, ["found"]),
            ("read", 2, ["read"]),
            ("found", 3, ["found"]),
        ]
        assert data(tab, "progress") == []
        late = await server.connect(cls)
        await late.until(lambda: told(late)[-1:] and told(late)[-1][1] == "finished")
        assert told(late) == told(tab)
        agent = app.agent(cls, "room")
        (run,) = await agent.list_agent_tool_runs()
        async with await agent.sub_agent(child, run.run_id) as live:
            rows = await live._home.store.fetch(
                "SELECT seq, name FROM milestones WHERE agent = :agent ORDER BY seq"
            )
            assert rows == [(1, "found"), (2, "read"), (3, "found")]
            messages = await live.get_messages()
        assert not [
            part for message in messages for part in message.parts if part["type"].startswith("data-")
        ]
        # They go with the child
        await agent.delete_sub_agent(child, run.run_id)
        async with agent as live:
            assert await live._home.store.database.fetch("SELECT 1 FROM milestones") == []


async def test_a_child_that_goes_on_after_a_restart_counts_its_milestones_on(start: Open) -> None:
    passed = asyncio.Event()

    async def work(child: Any) -> None:
        await child.report_progress(milestone="one")
        passed.set()

    cls, child = family(
        work, calls("work"), says("half").then_hangs(), calls("work", {}, id="second"), says("whole")
    )
    app = await start(cls)
    agent: Any = app.agent(cls)
    asked = asyncio.ensure_future(agent.save_messages("Go"))
    await passed.wait()
    (run,) = await agent.list_agent_tool_runs()
    async with await agent.sub_agent(child, run.run_id) as live:
        turns = live._home.chat.host.turns
        await until(live, lambda: turns.answer is not None and "'text'" in str(turns.answer.parts))
    app = await start(cls)
    with pytest.raises(TurnInterrupted):
        await asked
    agent = app.agent(cls)
    assert await agent.wait_until_stable()
    async with await agent.sub_agent(child, run.run_id) as live:
        rows = await live._home.store.fetch(PASSED)
    assert rows == [(1, "one"), (2, "one")]


# --- what the parent's code sees


async def test_the_parent_is_shown_how_far_its_children_are(
    start: Open, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[AgentToolRun, AgentToolProgress]] = []

    async def work(child: Any) -> None:
        await child.report_progress(fraction=0.5, message="half", milestone="middle")

    async def on_progress(self: Any, run: AgentToolRun, progress: AgentToolProgress) -> None:
        seen.append((run, progress))
        raise ValueError("on purpose")

    cls, _ = family(work, on_progress=on_progress)
    agent = (await start(cls)).agent(cls)
    assert (await agent.save_messages("Go")).status == "completed"
    async with agent as live:
        await settled(live)
    (first, milestone), (_, progress) = seen
    assert first.agent_type == "Helper"
    assert (milestone.milestone, milestone.sequence, milestone.fraction) == ("middle", 1, 0.5)
    assert (progress.milestone, progress.fraction, progress.message) == (None, 0.5, "half")
    assert "on purpose" in caplog.text


@pytest.mark.agent_case(380)
async def test_outside_a_run_nobody_is_told_which_is_logged(
    start: Open, caplog: pytest.LogCaptureFixture
) -> None:
    class Lonely(Think):
        model = ScriptedModel(calls("work"), says("done"))

        @tool
        async def work(self) -> str:
            """Work."""
            await self.report_progress(fraction=0.5, milestone="x")
            return "worked"

    class Plain(Agent):
        """Does not chat."""

    app = await start(Lonely, Plain)
    lonely = app.agent(Lonely)
    assert (await lonely.save_messages("Hi")).text == "done"
    below = await lonely.sub_agent(Lonely, "child")
    plain: Any = app.agent(Plain)
    for agent in (lonely, below, plain):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "everthink.children"):
            await agent.report_progress(fraction=0.5, milestone="x")
        assert "not part of a run" in caplog.text
    async with lonely as live:
        assert await live._home.store.database.fetch("SELECT 1 FROM milestones") == []


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param({"fraction": -1}, InvalidSettings, id="below"),
        pytest.param({"fraction": float("nan")}, InvalidSettings, id="nan"),
        pytest.param({"fraction": float("inf")}, InvalidSettings, id="infinite"),
        pytest.param({"message": 3}, InvalidSettings, id="message"),
        pytest.param({"milestone": ""}, InvalidSettings, id="milestone"),
        pytest.param({"data": object()}, NotJson, id="data"),
    ],
)
async def test_what_cannot_be_reported_is_refused_where_it_was_written(
    start: Open, given: dict[str, Any], error: type[Exception]
) -> None:
    class Any_(Think):
        model = ScriptedModel()

    agent = (await start(Any_)).agent(Any_)
    with pytest.raises(error, match="report_progress"):
        await agent.report_progress(**given)


# --- a parent that waits does not hang


@pytest.mark.case(416)
@pytest.mark.agent_case(357)
@pytest.mark.parametrize("by", ["model", "code"])
async def test_what_a_child_says_keeps_the_turn_of_its_parent_from_stalling(
    start: Open, clock: ManualClock, by: str
) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    a, b, c = gates

    class Helper(Think):
        model = ScriptedModel(waits(a).says("one ").waits(b).says("two ").waits(c).says("three"))

    class Assistant(Think):
        model: Any = ScriptedModel(calls("ask", query="x"), says("Done."), says("again"))
        chat_stream_stall_timeout = 10

    if by == "model":
        Assistant.ask = agent_tool(Helper, description="Ask.", name="ask")  # type: ignore[attr-defined]
    else:

        @tool
        async def ask(query: str, ctx: ToolContext) -> str:
            """Ask."""
            return (await ctx.agent.run_agent_tool(Helper, input=query)).summary or ""

        Assistant.ask = ask  # type: ignore[attr-defined]
    app = await start(Assistant)
    stalls: list[Any] = []
    app.events.subscribe(stalls.append, type="chat:stream:stalled")
    async with app.agent(Assistant) as live:
        heard: list[str] = []
        live._home.feed.join(lambda event: heard.append(str(event)))
        asked = asyncio.ensure_future(live.save_messages("Go"))
        for gate, before in zip(gates, ("'kind': 'started'", "one ", "two "), strict=True):
            await until(live, lambda before=before: before in "".join(heard))
            await clock.advance(9)
            gate.set()
        result = await asked
    assert (result.status, result.text, stalls) == ("completed", "Done.", [])


@pytest.mark.case(417)
@pytest.mark.agent_case(357)
async def test_a_silent_child_does_not(start: Open, clock: ManualClock) -> None:
    class Helper(Think):
        model = ScriptedModel(says("one ").then_hangs())

    class Assistant(Think):
        model: Any = ScriptedModel(calls("ask", query="x"))
        chat_stream_stall_timeout = 10
        chat_recovery = False
        ask = agent_tool(Helper, description="Ask.")

    async with (await start(Assistant)).agent(Assistant) as live:
        pieces: list[Any] = []
        live._home.feed.join(lambda event: pieces.append(event) if "one " in str(event) else None)
        asked = asyncio.ensure_future(live.save_messages("Go"))
        await until(live, lambda: bool(pieces))
        await clock.advance(10)
        assert (await asked).status == "error"


def test_what_a_window_was_told_while_it_was_greeted_is_not_told_twice() -> None:
    class Window:
        """A connected client."""

    def report(body: str) -> RunTold:
        return RunTold("r", None, 3, {"kind": "chunk", "body": body}, is_passing=True)

    frames: list[Any] = []
    views: RunViews[Window] = RunViews(lambda readers, sent: frames.extend(sent))
    window, bodies = Window(), ['{"id": "1", "data": 1}', '{"data": 1, "id": "2"}', '{"data": 2, "id": "3"}']
    for body in bodies:
        views.tell(report(body), [window])

    assert [frame.event["body"] for frame in frames] == [bodies[0], bodies[2]]
