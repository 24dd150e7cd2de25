"""Calls that were interrupted are mended before the model is asked again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given

from everthink import Think
from everthink.errors import TurnInterrupted
from everthink.journal.feed import HistoryChanged
from everthink.messages import Message, copy_json, is_settled, user_message
from everthink.models.port import ToolMessage
from everthink.session.repair import INTERRUPTED_TEXT, as_interrupted, repair
from everthink.testing.scripted import Play, ScriptedModel, calls, says
from everthink.tools.tool import tool
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.conversations import histories, unhurried

UNSETTLED = ["input-streaming", "input-available", "approval-requested"]
MISSING: Any = ...


def call(state: str, id: str = "c", name: str = "t", input: Any = MISSING, **more: Any) -> dict[str, Any]:
    part = {
        "type": f"tool-{name}",
        "toolCallId": id,
        "state": state,
        "input": {"a": 1} if input is MISSING else input,
    }
    return {**part, **more}


def answer(*parts: dict[str, Any], id: str = "a") -> Message:
    return Message(id, "assistant", list(parts), {"k": 1}, created_text="2026-01-01T00:00:00Z")


def mended(part: dict[str, Any]) -> dict[str, Any]:
    """The part after a repair."""
    report = repair([answer(part)])
    return report.messages[0].parts[0] if report.messages else part


@pytest.mark.case(365)
@pytest.mark.parametrize("state", UNSETTLED)
def test_a_call_without_an_end_becomes_a_failed_one(state: str) -> None:
    report = repair([answer(call(state))])
    assert report.messages == [answer(call("output-error", errorText=INTERRUPTED_TEXT))]
    assert (report.removed_tool_calls, report.normalized_inputs, report.tool_call_ids) == (1, 0, ["c"])


def test_a_preliminary_output_is_no_end() -> None:
    part = call("output-available", output="so far", preliminary=True)
    assert mended(part) == call("output-error", errorText=INTERRUPTED_TEXT)


@pytest.mark.case(366, 367, 368, 369)
@pytest.mark.parametrize(
    "part",
    [
        call("output-available", output=None),
        call("output-available", output=1, preliminary=False),
        call("output-denied", approval={"id": "a", "approved": False}),
        call("output-error", errorText="it broke"),
        call("approval-responded", approval={"id": "a", "approved": True}),
        {**call("approval-responded"), "input": "not looked at"},
        call("input-available", output="an old release had no states"),
        call("input-available", result="nor outputs"),
        {"type": "text", "text": "hi", "state": "streaming"},
        {"type": "step-start"},
        {"type": "data-tool", "data": {"state": "input-available"}},
    ],
)
def test_what_is_settled_answered_or_no_call_is_left_alone(part: dict[str, Any]) -> None:
    report = repair([answer(part), Message("u", "user", [call("input-available")])])
    assert report.messages == []
    assert (report.removed_tool_calls, report.normalized_inputs, report.tool_call_ids) == (0, 0, [])


@pytest.mark.case(370)
@pytest.mark.parametrize("given", ["", None, [], [1], 7, "text", "{broken", True])
@pytest.mark.parametrize("state", ["output-available", "output-error", "output-denied"])
def test_settled_input_that_is_no_object_becomes_an_empty_one(given: Any, state: str) -> None:
    assert mended(call(state, input=given, output=1)) == call(state, input={}, output=1)


@pytest.mark.case(371)
def test_input_written_as_json_text_is_read() -> None:
    assert mended(call("output-available", input='{"a": [1]}', output=1))["input"] == {"a": [1]}
    assert mended(call("input-streaming", input='{"a": 1}'))["input"] == {"a": 1}


@pytest.mark.case(372)
@pytest.mark.parametrize("state", ["output-available", "input-streaming"])
def test_missing_input_becomes_an_empty_object(state: str) -> None:
    part = call(state)
    del part["input"]
    assert mended(part)["input"] == {}


@pytest.mark.case(374)
def test_dynamic_tools_are_repaired() -> None:
    part = {**call("input-available"), "type": "dynamic-tool", "toolName": "plugin"}
    assert mended(part) == {**part, "state": "output-error", "errorText": INTERRUPTED_TEXT}


@pytest.mark.case(375)
def test_several_messages_are_repaired_and_all_ids_reported() -> None:
    history = [
        answer(call("input-available", "1"), call("output-available", "2", output=1), id="a1"),
        user_message("hi", id="u"),
        answer({"type": "text", "text": "fine"}, id="a2"),
        answer(call("input-streaming", "3", input=None), call("approval-requested", "4"), id="a3"),
    ]
    report = repair(history)
    assert [m.id for m in report.messages] == ["a1", "a3"]
    assert (report.removed_tool_calls, report.normalized_inputs) == (3, 1)
    assert report.tool_call_ids == ["1", "3", "4"]
    assert report.messages[0].parts[1] is history[0].parts[1]


@pytest.mark.case(376)
def test_a_repair_of_one_s_own_may_answer_with_text_and_may_leave_parts_out() -> None:
    def mend(part: dict[str, Any]) -> dict[str, Any]:
        if part["toolCallId"] == "2":
            return part
        return {"type": "text", "text": f"({part['toolCallId']} was cut off)"}

    history = [answer(call("input-available", "1"), call("input-available", "2"))]
    report = repair(history, mend)
    assert report.messages == [
        answer({"type": "text", "text": "(1 was cut off)"}, call("input-available", "2"))
    ]


@pytest.mark.case(376)
def test_what_a_repair_of_one_s_own_settles_is_settled() -> None:
    # Given somebody who takes what a tool showed so far for its result
    part = call("output-available", output="so far", preliminary=True)
    report = repair([answer(part)], lambda part: {**part, "state": "output-available"})

    # Then it is one, and stays it
    assert report.messages == [answer(call("output-available", output="so far"))]
    assert repair(report.messages).messages == []


@unhurried
@given(histories())
def test_a_repair_is_done_once_and_loses_nothing(history: list[Message]) -> None:
    before = copy_json([m.to_json() for m in history])
    report = repair(history)
    assert copy_json([m.to_json() for m in history]) == before
    changed = {m.id: m for m in report.messages}
    after = [changed.get(m.id, m) for m in history]
    assert [[p["type"] for p in m.parts] for m in after] == [[p["type"] for p in m.parts] for m in history]
    assert repair(after).messages == []
    for message in after:
        for part in message.tool_parts:
            is_over = is_settled(part) or "output" in part
            assert part["state"] == "approval-responded" or (is_over and isinstance(part["input"], dict))


def test_the_default_says_what_happened() -> None:
    part = call("input-available")
    assert as_interrupted(part) == call(
        "output-error", errorText="The tool call was interrupted before a result was recorded."
    )
    assert part == call("input-available")


# --- in real turns


async def opened(
    open_app: OpenApp, *plays: Play, base: type[Think] | None = None
) -> tuple[Any, Any, ScriptedModel]:
    model = ScriptedModel(*plays)
    cls = assistant(model) if base is None else type("Assistant", (base,), {"model": model})
    app = await open_app(cls)
    return app, app.agent(cls, "room"), model


@pytest.mark.anyio
@pytest.mark.case(365, 373)
async def test_an_interrupted_call_is_mended_stored_and_announced_before_the_next_turn(
    open_app: OpenApp,
) -> None:
    # Given a conversation with an interrupted call and one whose input is broken
    app, handle, model = await opened(open_app, says("Sorry."), says("Again."))
    broken = answer(call("output-available", "2", input="text", output=1), id="a2")
    await handle.add_messages(
        [user_message("hi", id="u"), answer(call("input-available", "1"), id="a1"), broken]
    )
    events: list[Any] = []
    app.events.subscribe(events.append)
    home = (await live(handle))._home
    shown: list[Any] = []
    home.feed.join(shown.append)

    # When somebody asks again
    await handle.save_messages("And?")

    # Then the rows are mended, readers and observers know, and the model reads an error
    await app.evict(type(home.agent), "room")
    _, first, second, *_ = await handle.get_messages()
    assert first.parts == [call("output-error", "1", errorText=INTERRUPTED_TEXT)]
    assert second.parts == [call("output-available", "2", input={}, output=1)]
    repaired = [event for event in events if event.type == "chat:transcript:repaired"]
    assert [(e.payload["removedToolCalls"], e.payload["normalizedInputs"]) for e in repaired] == [(1, 1)]
    assert list(repaired[0].payload["toolCallIds"]) == ["1"]
    assert any(isinstance(event, HistoryChanged) for event in shown)
    results = [p for m in model.last_request.messages if isinstance(m, ToolMessage) for p in m.content]
    assert [(r.id, r.is_error) for r in results] == [("1", True), ("2", False)]

    # And the turn after that has nothing to mend
    await handle.save_messages("And now?")
    assert len([event for event in events if event.type == "chat:transcript:repaired"]) == 1


@pytest.mark.anyio
@pytest.mark.case(366, 373)
async def test_a_conversation_that_is_whole_is_not_written(open_app: OpenApp) -> None:
    app, handle, _ = await opened(open_app, says("Fine."))
    events: list[Any] = []
    app.events.subscribe(events.append)
    whole = [user_message("hi", id="u"), answer(call("output-available", output=1))]
    await handle.add_messages(whole)
    await handle.save_messages("And?")
    assert (await handle.get_messages())[:2] == whole
    assert [event for event in events if event.type == "chat:transcript:repaired"] == []


class Asking(Think):
    """Remembers unanswered questions as text."""

    def repair_interrupted_tool_part(self, part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] == "tool-ask_user":
            return {"type": "text", "text": part["input"]["question"]}
        return super().repair_interrupted_tool_part(part)


@pytest.mark.anyio
@pytest.mark.case(377, 378, 379)
async def test_an_agent_may_turn_an_unanswered_question_into_text(open_app: OpenApp) -> None:
    # Given an unanswered question, an answered one, and another call that was cut
    _, handle, model = await opened(open_app, says("Thanks."), base=Asking)
    question = {"question": "Which city?"}
    answered = call("output-available", "2", "ask_user", input=question, output="Paris")
    await handle.add_messages(
        [
            user_message("Weather?", id="u"),
            answer(
                call("input-available", "1", "ask_user", input=question),
                answered,
                call("input-available", "3", "read"),
            ),
        ]
    )

    # When the person types instead of answering
    await handle.save_messages("Paris, of course")

    # Then the question is text, the answered one is untouched, and the other uses the default
    stored = (await handle.get_messages())[1]
    assert stored.parts == [
        {"type": "text", "text": "Which city?"},
        answered,
        call("output-error", "3", "read", errorText=INTERRUPTED_TEXT),
    ]
    assert model.last_request.messages[1].content[0].text == "Which city?"


@pytest.mark.anyio
@pytest.mark.case(365)
async def test_typing_instead_of_answering_a_browser_tool_fails_the_call(open_app: OpenApp) -> None:
    _, handle, model = await opened(open_app, calls("pick", id="c"), says("Then not."))
    await handle.chat("Pick", client_tools=[{"name": "pick"}])
    await handle.save_messages("Never mind")
    (part,) = (await handle.get_messages())[1].tool_parts
    assert (part["state"], part["errorText"]) == ("output-error", INTERRUPTED_TEXT)
    assert model.last_request.messages[2].content[0].is_error


@pytest.mark.anyio
@pytest.mark.case(365)
async def test_a_call_that_was_running_when_the_process_died_is_mended(open_app: OpenApp) -> None:
    # Given a tool that never comes back
    started = asyncio.Event()

    @tool
    async def stuck() -> str:
        """Never end."""
        started.set()
        await asyncio.get_running_loop().create_future()
        return ""

    model = ScriptedModel(calls("stuck", id="c"), says("Sorry."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [stuck]))
    handle = app.agent(cls, "room")
    turn = asyncio.create_task(handle.save_messages("Go"))
    await started.wait()

    # When the process is replaced by another and somebody asks
    await app.evict(cls, "room")
    with pytest.raises(TurnInterrupted):
        await turn
    await handle.save_messages("And?")

    # Then the call has an outcome, in storage and for the model
    (part,) = (await handle.get_messages())[1].tool_parts
    assert part["state"] == "output-error"
    assert model.last_request.messages[2].content[0].is_error
