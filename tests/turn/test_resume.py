"""The calls of a turn that was cut off: each is in one of a few worlds, and the ledger knows in which."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink import Allow, Think, TurnConfig, tool
from everthink import chunks as ui
from everthink.hooks import ToolCall
from everthink.journal.tool_errors import MAY_HAVE_RUN
from everthink.messages import Part
from everthink.models.port import ToolMessage
from everthink.recovery import REPORT, RERUN
from everthink.testing import calls, hangs, says
from tests.conftest import OpenApp
from tests.support.recovery import Room
from tests.support.turns import Database, all_over, follow, prompt

pytestmark = pytest.mark.anyio


class Digging:
    """A tool that never returns the first time."""

    def __init__(self, **options: Any) -> None:
        self.began: list[str] = []
        self.is_digging = asyncio.Event()

        @tool(**options)
        async def dig(where: str = "here") -> str:
            """Dig a hole."""
            self.began.append(where)
            if len(self.began) == 1:
                self.is_digging.set()
                await asyncio.Event().wait()
            return f"a hole {where}"

        self.tool = dig

    async def cut(self, room: Room, *, calls_: int = 1) -> Any:
        """Begin a turn, cut it off while the tool runs, and let the agent wake."""
        waiting = follow(room.agent.save_messages("Dig!"))
        await self.is_digging.wait()
        await room.cut()
        await asyncio.gather(waiting, return_exceptions=True)
        return await room.wake()


def results(room: Room) -> list[tuple[str, Any, bool]]:
    """What the model was last told of its calls: id, output, whether it failed."""
    messages = [m for m in room.model.last_request.messages if isinstance(m, ToolMessage)]
    return [(r.id, r.output, r.is_error) for m in messages for r in m.content if hasattr(r, "output")]


async def test_a_call_that_had_begun_is_reported_and_not_run_again(open_app: OpenApp, tmp_path: Path) -> None:
    digging = Digging()
    room = await Room.open(
        open_app, calls("dig", id="c1"), says("I see."), get_tools=lambda self: [digging.tool]
    )
    agent = await digging.cut(room)
    assert digging.began == ["here"]
    assert results(room) == [("c1", MAY_HAVE_RUN, True)]
    assert Database(tmp_path).calls()["c1"]["state"] == "unknown"
    [part] = agent.messages[1].tool_parts
    assert (part["state"], part["errorText"]) == ("output-error", MAY_HAVE_RUN)
    assert agent.messages[1].text == "I see."


async def test_a_call_that_may_run_twice_is_run_again(open_app: OpenApp, tmp_path: Path) -> None:
    digging = Digging(on_interrupt="rerun")
    room = await Room.open(
        open_app, calls("dig", id="c1"), says("Done."), get_tools=lambda self: [digging.tool]
    )
    agent = await digging.cut(room)
    assert digging.began == ["here", "here"]
    assert results(room) == [("c1", "a hole here", False)]
    assert Database(tmp_path).calls()["c1"]["state"] == "done"
    assert agent.messages[1].text == "Done."


@pytest.mark.parametrize(
    ("says_", "began", "outcome"),
    [
        ("found it there", 1, ("c1", "found it there", False)),
        (None, 1, ("c1", None, False)),
        (RERUN, 2, ("c1", "a hole there", False)),
        (REPORT, 1, ("c1", MAY_HAVE_RUN, True)),
        (RuntimeError("the map is lost"), 1, ("c1", MAY_HAVE_RUN, True)),
    ],
)
async def test_a_function_may_know_what_became_of_a_call(
    open_app: OpenApp, says_: Any, began: int, outcome: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    async def find(where: str) -> Any:
        asked.append(where)
        if isinstance(says_, Exception):
            raise says_
        return says_

    digging = Digging(on_interrupt=find)
    room = await Room.open(
        open_app, calls("dig", where="there", id="c1"), says("Done."), get_tools=lambda self: [digging.tool]
    )
    await digging.cut(room)
    assert asked == ["there"]
    assert len(digging.began) == began
    assert results(room) == [outcome]
    assert ("the map is lost" in caplog.text) is isinstance(says_, Exception)


async def test_that_function_is_asked_about_what_the_tool_was_given(open_app: OpenApp) -> None:
    # Given a hook that changes the input
    asked: list[str] = []
    digging = Digging(on_interrupt=lambda where: asked.append(where))

    async def before_tool_call(self: Think, call: ToolCall) -> Allow:
        return Allow({"where": "elsewhere"})

    room = await Room.open(
        open_app,
        calls("dig", where="there", id="c1"),
        says("Done."),
        get_tools=lambda self: [digging.tool],
        before_tool_call=before_tool_call,
    )
    await digging.cut(room)
    assert (digging.began, asked) == (["elsewhere"], ["elsewhere"])


async def test_the_agent_may_word_the_report(open_app: OpenApp) -> None:
    def repair(self: Think, part: Part) -> Part:
        return {**part, "state": "output-error", "errorText": f"{part['toolCallId']} was cut off"}

    digging = Digging()
    room = await Room.open(
        open_app,
        calls("dig", id="c1"),
        says("I see."),
        get_tools=lambda self: [digging.tool],
        repair_interrupted_tool_part=repair,
    )
    await digging.cut(room)
    assert results(room) == [("c1", "c1 was cut off", True)]


async def test_a_call_that_had_not_begun_runs(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a hook that still thinks about a call when the plug is pulled
    thinks, seen = asyncio.Event(), list[str]()

    async def before_tool_call(self: Think, call: ToolCall) -> None:
        seen.append(call.tool_call_id)
        if len(seen) == 1:
            thinks.set()
            await asyncio.Event().wait()

    digging = Digging()
    digging.began.append("never mind the first time")
    room = await Room.open(
        open_app,
        calls("dig", id="c1"),
        says("Done."),
        get_tools=lambda self: [digging.tool],
        before_tool_call=before_tool_call,
    )
    waiting = follow(room.agent.save_messages("Dig!"))
    await thinks.wait()
    await room.flushed()
    await room.cut()
    await asyncio.gather(waiting, return_exceptions=True)
    assert Database(tmp_path).calls()["c1"]["state"] == "asked"
    await room.wake()

    # Then the hook is asked again, and the tool runs for the first time
    assert seen == ["c1", "c1"]
    assert digging.began[1:] == ["here"]
    assert results(room) == [("c1", "a hole here", False)]


async def test_each_of_several_calls_is_taken_by_itself(open_app: OpenApp, tmp_path: Path) -> None:
    # Given one call that is done, one that runs, and one that a person is asked about
    ran: list[str] = []

    @tool
    async def quick() -> str:
        """Fast."""
        ran.append("quick")
        return "quickly"

    @tool(needs_approval=True)
    def wipe() -> str:
        """Wipe everything."""
        raise AssertionError

    digging = Digging()
    room = await Room.open(
        open_app,
        calls("quick", id="c1").calls("dig", id="c2").calls("wipe", id="c3"),
        get_tools=lambda self: [quick, wipe, digging.tool],
    )
    agent = await digging.cut(room)

    # Then the first stays, the second is reported, and the third still waits: so does the model
    states = {part["toolCallId"]: part["state"] for part in agent.messages[1].tool_parts}
    assert states == {"c1": "output-available", "c2": "output-error", "c3": "approval-requested"}
    assert (ran, digging.began, room.model.asked) == (["quick"], ["here"], 1)
    assert {row["state"] for row in Database(tmp_path).calls().values()} == {"done", "unknown", "asked"}


async def test_a_tool_that_shows_its_progress_is_not_taken_for_done(open_app: OpenApp) -> None:
    showing, runs = asyncio.Event(), list[int]()

    @tool
    async def climb() -> AsyncIterator[str]:
        """Climb."""
        runs.append(1)
        yield "half way up"
        showing.set()
        await asyncio.Event().wait()

    room = await Room.open(open_app, calls("climb", id="c1"), says("I see."), get_tools=lambda self: [climb])
    waiting = follow(room.agent.save_messages("Up!"))
    await showing.wait()
    await room.flushed()
    await room.cut()
    await asyncio.gather(waiting, return_exceptions=True)
    agent = await room.wake()
    [part] = agent.messages[1].tool_parts
    assert (part["state"], part["errorText"]) == ("output-error", MAY_HAVE_RUN)
    assert not part.get("preliminary")
    assert results(room) == [("c1", MAY_HAVE_RUN, True)]
    assert runs == [1]


async def test_a_tool_that_is_gone_after_the_restart_is_reported(open_app: OpenApp) -> None:
    digging = Digging(on_interrupt="rerun")
    room = await Room.open(
        open_app,
        calls("dig", id="c1"),
        says("I see."),
        get_tools=lambda self: [] if digging.began else [digging.tool],
    )
    await digging.cut(room)
    [(call, _, failed)] = results(room)
    assert (call, failed, digging.began) == ("c1", True, ["here"])


async def test_an_approved_call_that_was_cut_off_is_not_run_again(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a person who has said yes, and a tool that was cut off while it did it
    digging = Digging(needs_approval=True)
    room = await Room.open(
        open_app, calls("dig", id="c1"), says("I see."), get_tools=lambda self: [digging.tool]
    )
    await room.agent.save_messages("Dig!")
    await room.agent.apply_tool_approval("c1", True)
    waiting = follow(room.agent.continue_last_turn())
    await digging.is_digging.wait()
    await room.cut()
    await asyncio.gather(waiting, return_exceptions=True)

    # When the agent wakes
    agent = await room.wake()

    # Then the model reads that it may have happened
    assert digging.began == ["here"]
    assert results(room) == [("c1", MAY_HAVE_RUN, True)]
    assert agent.messages[1].tool_parts[0]["state"] == "output-error"
    assert agent.messages[2].text == "I see."
    assert {row["state"] for row in Database(tmp_path).calls().values()} <= {"unknown"}


# --- steps


async def test_steps_before_the_cut_count(open_app: OpenApp) -> None:
    # Given a turn that may take three steps, cut off in its second
    digging = Digging()
    digging.began.append("never mind the first time")
    room = await Room.open(
        open_app,
        calls("dig", id="c1"),
        hangs(),
        calls("dig", id="c2"),
        calls("dig", id="c3"),
        get_tools=lambda self: [digging.tool],
        max_steps=3,
    )
    await room.ask()
    await room.cut()
    agent = await room.wake()

    # Then it takes two more, and no fourth
    assert len(agent.messages[1].tool_parts) == 3
    assert room.model.asked == 4


async def test_a_structured_answer_is_read_from_both_halves(open_app: OpenApp) -> None:
    seen: list[Any] = []
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    room = await Room.open(
        open_app,
        says('{"city": ').then_hangs(),
        says('"Paris"}'),
        before_turn=lambda self, turn: TurnConfig(output=schema),
        on_chat_response=lambda self, response: seen.append(response.output),
    )
    await room.ask()
    await room.cut()
    await room.wake()
    assert seen == [{"city": "Paris"}]


async def test_hooks_after_a_turn_see_the_whole_answer_once(open_app: OpenApp, tmp_path: Path) -> None:
    seen: list[Any] = []
    steps: list[Any] = []
    room = await Room.open(
        open_app,
        says("Half ").then_hangs(),
        says("whole."),
        on_chat_response=lambda self, response: seen.append((response.status, response.message.text)),
        on_step_finish=lambda self, step: steps.append((step.step_number, step.text)),
    )
    await room.ask()
    await room.cut()
    await room.wake()
    assert seen == [("completed", "Half whole.")]
    assert steps == [(0, "Half whole.")]


async def test_block_ids_stay_unique_over_a_cut(open_app: OpenApp, tmp_path: Path) -> None:
    # Given a model that names its blocks the same in every answer
    digging = Digging()
    digging.began.append("never mind the first time")
    room = await Room.open(
        open_app,
        says("First. ").calls("dig", id="c1"),
        hangs(),
        says("Second."),
        get_tools=lambda self: [digging.tool],
    )
    await room.ask()
    await room.cut()
    await room.wake()
    ids = [chunk.id for chunk in Database(tmp_path).chunks() if isinstance(chunk, ui.TextStart)]
    assert len(ids) == len(set(ids)) == 2
    assert [text for role, text in prompt(room.model.last_request) if role == "assistant"] == ["First. "]
    await all_over(room.app, room.cls, "room")
