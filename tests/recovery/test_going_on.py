"""A turn goes on where it was cut off: once, in its place, with everything that happened meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Message, Think, tool
from everthink import chunks as ui
from everthink.door.chat_request import ChatRequest
from everthink.errors import ToolInterrupted
from everthink.hooks import StepResult
from everthink.journal.feed import ChunksStored, RecoveryChanged
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.recovery import ChatRecoveryContext, RecoveryDecision
from everthink.testing import calls, hangs, says, thinks
from tests.conftest import OpenApp
from tests.support.recovery import Room
from tests.support.turns import Database, Witness, accept_request, all_over, home_of, prompt, record_events
from tests.support.window import Window

pytestmark = pytest.mark.anyio


# --- once


@pytest.mark.case(455)
async def test_an_eviction_is_followed_by_exactly_one_continuation_however_many_come_back(
    open_app: OpenApp, tmp_path: Path
) -> None:
    room = await Room.open(open_app, says("Half ").then_hangs(), says("whole."))
    await room.ask()
    await room.cut()
    events = record_events(room.app, "chat:recovery:scheduled", "chat:turn:start")
    homes = await asyncio.gather(*(home_of(room.app, room.cls, "room") for _ in range(20)))
    await room.wake()
    assert len({id(home) for home in homes}) == 1
    assert [event.type for event in events] == ["chat:turn:start", "chat:recovery:scheduled"]
    assert room.model.asked == 2
    assert await room.texts() == ["Hi", "Half whole."]
    # and the next start finds nothing to do
    await room.cut()
    await room.wake()
    assert (room.model.asked, Database(tmp_path).statuses()) == (2, ["completed"])


@pytest.mark.case(449, 451)
async def test_a_turn_that_is_cut_off_many_times_is_one_message_of_one_stream(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn that gets one word further each time
    words = ["one ", "two ", "three ", "four "]
    room = await Room.open(open_app, *[says(word).then_hangs() for word in words], says("five"))
    await room.ask()
    seen: list[ui.Chunk] = []
    for _ in words:
        await room.cut(after=1)
        witness = Witness(await room.home())
        if _ != words[-1]:
            await room.silence()
        else:
            await room.wake()
        # The numbers go on
        first = next(s for s in witness.shown if isinstance(s, ChunksStored))
        assert first.first_seq == len(Database(tmp_path).chunks()) - len(witness.chunks)
        seen += witness.chunks

    # Then there is one answer, under the id that its readers know
    _, answer = await room.agent.get_messages()
    (row,) = Database(tmp_path).turns()
    assert (answer.text, answer.id) == ("one two three four five", row["message_id"])
    # in one block of one step, begun and ended once
    chunks = Database(tmp_path).chunks()
    for kind in (ui.Start, ui.StartStep, ui.TextStart, ui.TextEnd, ui.FinishStep, ui.Finish):
        assert sum(isinstance(chunk, kind) for chunk in chunks) == 1
    assert [part["type"] for part in answer.parts] == ["step-start", "text"]
    assert chunks[-len(seen) :] == seen


@pytest.mark.case(447)
async def test_a_turn_that_had_said_everything_is_stored_without_asking_again(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn whose answer is complete, cut off before its end was written
    async def on_step_finish(self: Think, step: StepResult) -> None:
        began.set()
        await asyncio.Event().wait()

    began = asyncio.Event()
    room = await Room.open(open_app, says("All of it."), on_step_finish=on_step_finish)
    waiting = asyncio.create_task(room.agent.save_messages("Hi"))
    await began.wait()
    await room.flushed()
    await room.cut()
    await asyncio.gather(waiting, return_exceptions=True)
    assert Database(tmp_path).texts() == ["Hi"]

    # When the agent wakes, twice
    for _ in range(2):
        await room.wake()
        await room.cut()

    # Then the answer is there, once, and the model was not asked again
    assert Database(tmp_path).texts() == ["Hi", "All of it."]
    assert Database(tmp_path).statuses() == ["completed"]
    assert room.model.asked == 1


@pytest.mark.case(448)
async def test_an_answer_that_a_window_has_posted_meanwhile_is_not_doubled(open_app: OpenApp) -> None:
    room = await Room.open(open_app, says("Half ").then_hangs(), says("whole."), says("Yes."))
    window = Window(await room.home())
    await window.send("u1", "Question")
    await room.silence()
    await window.send("u2", "Still there?")
    await room.cut()
    await room.wake()
    assert await room.texts() == ["Question", "Half whole.", "Still there?", "Yes."]


@pytest.mark.case(446)
async def test_what_a_window_has_posted_is_forgotten_too_when_the_turn_starts_over(
    open_app: OpenApp,
) -> None:
    # Given half an answer that a window has posted with its next message
    room = await Room.open(
        open_app,
        says("Nonsense ").then_hangs(),
        says("Sense."),
        says("Yes."),
        on_chat_recovery=lambda self, ctx: RecoveryDecision(persist=False),
    )
    window = Window(await room.home())
    await window.send("u1", "Question")
    await room.silence()
    await window.send("u2", "Still there?")
    assert await room.texts() == ["Question", "Nonsense ", "Still there?"]

    # When the turn starts over
    await room.cut()
    await room.wake()

    # Then nothing is left of it
    assert await room.texts() == ["Question", "Still there?", "Sense.", "Yes."]
    assert prompt(room.model.requests[1]) == [("user", "Question")]


@pytest.mark.case(457)
async def test_a_regeneration_that_is_cut_off_ends_up_beside_the_answer_it_replaces(
    open_app: OpenApp,
) -> None:
    room = await Room.open(open_app, says("old"), says("half ").then_hangs(), says("new"))
    window = Window(await room.home())
    await (await window.send("u1", "Question")).result()
    await window.regenerate("again")
    await room.silence()
    await room.cut()
    agent = await room.wake()
    assert [m.text for m in agent.messages] == ["Question", "half new"]
    assert [m.text for m in await agent.session.get_branches("u1")] == ["old", "half new"]
    assert [text for _, text in prompt(room.model.last_request)] == ["Question", "half ", CONTINUE_NUDGE]


# --- the model


@pytest.mark.parametrize(
    ("continues", "rest"),
    [("prefill", "is Paris."), ("prompt", "The capital is Paris."), ("prompt", "is Paris.")],
)
async def test_the_text_goes_on_whatever_kind_of_model_it_is(
    open_app: OpenApp, continues: str, rest: str
) -> None:
    room = await Room.open(open_app, says("The capital ").then_hangs(), says(rest), continues=continues)
    await room.ask("Capital of France?")
    await room.cut()
    witness = Witness(await room.home())
    await room.wake()
    asked = prompt(room.model.last_request)
    if continues == "prefill":
        # Providers refuse white space at the end
        assert asked == [("user", "Capital of France?"), ("assistant", "The capital")]
    else:
        assert asked[1:] == [("assistant", "The capital "), ("user", CONTINUE_NUDGE)]
    assert witness.text == "is Paris."
    assert await room.texts() == ["Capital of France?", "The capital is Paris."]


async def test_thinking_that_was_cut_off_is_thought_again(open_app: OpenApp) -> None:
    room = await Room.open(open_app, thinks("Hm, ").then_hangs(), thinks("Hm, yes.").says("Hello."))
    await room.ask()
    await room.cut()
    agent = await room.wake()
    assert prompt(room.model.last_request) == [("user", "Hi")]
    parts = [(part["type"], part.get("text")) for part in agent.messages[1].parts]
    assert parts == [
        ("step-start", None),
        ("reasoning", "Hm, "),
        ("reasoning", "Hm, yes."),
        ("text", "Hello."),
    ]


# --- tools


@pytest.mark.case(453)
async def test_a_long_loop_of_tools_is_cut_off_at_each_step_and_does_nothing_twice(
    open_app: OpenApp, tmp_path: Path
) -> None:
    # Given a turn of eight steps, each with a tool
    done: list[int] = []

    @tool
    async def dig(n: int) -> str:
        """Dig a hole."""
        done.append(n)
        return f"hole {n}"

    steps = range(8)
    room = await Room.open(
        open_app,
        calls("dig", n=0, id="c0"),
        *[play for n in steps for play in (hangs(), calls("dig", n=n + 1, id=f"c{n + 1}"))][:-1],
        says("All dug."),
        get_tools=lambda self: [dig],
    )
    await room.ask()

    # When the plug is pulled after each of them
    for _ in steps[:-1]:
        await room.cut(after=10)
        await room.wake_into_silence()
    await room.cut(after=10)
    agent = await room.wake()

    # Then every tool ran once, and each step was asked for with all that came before it
    assert done == list(steps)
    assert [part["output"] for part in agent.messages[1].tool_parts] == [f"hole {n}" for n in steps]
    assert agent.messages[1].text == "All dug."
    assert {row["state"] for row in Database(tmp_path).calls().values()} == {"done"}
    for number, request in enumerate(room.model.requests[1:], 1):
        results = [message for message in request.messages if type(message).__name__ == "ToolMessage"]
        assert len(results) == (number + 1) // 2
    assert Database(tmp_path).statuses() == ["completed"]


# --- people, meanwhile


async def test_somebody_who_presses_stop_while_the_hook_decides_keeps_what_was_said(
    open_app: OpenApp, tmp_path: Path
) -> None:
    asked, goes = asyncio.Event(), asyncio.Event()

    async def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> None:
        asked.set()
        await goes.wait()

    room = await Room.open(open_app, says("Half ").then_hangs(), on_chat_recovery=on_chat_recovery)
    await room.ask()
    await room.cut()
    await room.home()
    await asked.wait()
    await room.agent.abort_all_requests("enough")
    goes.set()
    await room.wake()
    assert await room.texts() == ["Hi", "Half "]
    assert Database(tmp_path).statuses() == ["aborted"]
    assert room.model.asked == 1


@pytest.mark.parametrize("moment", ["hook", "put off"])
async def test_an_answer_from_the_browser_to_a_turn_that_is_cut_off_counts(
    open_app: OpenApp, moment: str
) -> None:
    # Given a turn that has asked the browser, was cut off, and does not go on yet
    asked, goes, fails = asyncio.Event(), asyncio.Event(), [moment == "put off"]

    async def on_chat_recovery(self: Think, ctx: ChatRecoveryContext) -> None:
        asked.set()
        await goes.wait()
        if fails and fails.pop():
            raise RuntimeError("not now")

    room = await Room.open(open_app, calls("locate", id="c1").then_hangs(), on_chat_recovery=on_chat_recovery)
    question = Message("q", "user", [{"type": "text", "text": "Where?"}])
    request = ChatRequest("r", [question], client_tools=[{"name": "locate"}])
    await accept_request(await room.home(), request)
    await room.silence()
    await room.cut()
    await room.home()
    await asked.wait()
    if moment == "put off":
        goes.set()
        await room.put_off()

    # When the browser, which has seen the call, answers it
    assert await room.agent.apply_tool_result("c1", "Paris") is True
    assert await room.agent.apply_tool_result("c1", "Rome") is False
    goes.set()
    await room.clock.advance(30)
    agent = await room.wake()

    # Then the answer is in the conversation
    [part] = agent.messages[1].tool_parts
    assert (part["state"], part["output"]) == ("output-available", "Paris")
    assert room.model.asked == 1


async def test_readers_are_told_once_that_a_turn_is_being_recovered(open_app: OpenApp) -> None:
    room = await Room.open(open_app, says("Half ").then_hangs(), says("whole."), says("Two."))
    await room.ask()
    await room.cut()
    home = await room.home()
    witness = Witness(home)
    assert home.chat.recovery.recovering is not None
    await room.wake()
    assert [s.recovering for s in witness.shown if isinstance(s, RecoveryChanged)] == [False]
    assert home.chat.recovery.recovering is None
    await room.agent.save_messages("Again")
    assert [s.recovering for s in witness.shown if isinstance(s, RecoveryChanged)] == [False]


async def test_a_submission_goes_on_with_the_body_it_began_with(open_app: OpenApp) -> None:
    # Given a submission that runs after a browser has declared something: its tools are not for others
    seen: list[Any] = []
    room = await Room.open(
        open_app,
        says("zero"),
        says("Half ").then_hangs(),
        says("whole."),
        before_turn=lambda self, turn: seen.append((turn.body, sorted(turn.tools))),
    )
    window = Window(await room.home())
    await (await window.send("u1", "Hi", body={"tone": "dry"}, client_tools=[{"name": "locate"}])).result()
    await room.agent.submit_messages("Work", submission_id="job")
    await room.silence()
    await room.cut()
    await room.wake()
    assert seen == [({"tone": "dry"}, ["locate"]), ({"tone": "dry"}, []), ({"tone": "dry"}, [])]
    assert (await room.agent.inspect_submission("job")).status == "completed"
    await all_over(room.app, room.cls, "room")


# --- tools that were cut off


@pytest.mark.parametrize("found", ["report", "an answer"])
async def test_a_call_that_was_cut_off_reaches_after_tool_call(open_app: OpenApp, found: str) -> None:
    began, told = asyncio.Event(), list[Any]()

    async def look_it_up(input: dict[str, Any]) -> str:
        return found

    @tool(on_interrupt="report" if found == "report" else look_it_up)
    async def pay(amount: int) -> str:
        """Pay."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    room = await Room.open(
        open_app,
        calls("pay", amount=5),
        says("Done."),
        get_tools=lambda self: [pay],
        after_tool_call=lambda self, outcome: told.append(outcome),
    )
    asking = asyncio.create_task(room._ask("Pay", {}))
    await began.wait()
    await room.flushed()
    await room.cut()
    await asking
    await room.wake()
    [outcome] = told
    assert (outcome.tool_name, outcome.input, outcome.success) == ("pay", {"amount": 5}, found != "report")
    if found == "report":
        assert isinstance(outcome.error, ToolInterrupted)
        assert "may or may not have taken effect" in str(outcome.error)
    else:
        assert outcome.output == "an answer"
    assert (await room.texts())[-1] == "Done."
