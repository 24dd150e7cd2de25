"""Stored messages as the model reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from everthink import tool
from everthink.messages import Message
from everthink.models.port import (
    ApprovalResponse,
    AssistantMessage,
    FilePart,
    ReasoningPart,
    Request,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from everthink.prompt.convert import Converter, convert
from everthink.session.row_size import Shortening
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

SIGNED = {"anthropic": {"signature": "s"}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def call(state: str, id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "tool-t", "toolCallId": id, "state": state, "input": {"a": 1}, **more}


def answer(*parts: dict[str, Any]) -> Message:
    return Message("a", "assistant", list(parts))


def converted(*parts: dict[str, Any]) -> list[Any]:
    return convert(answer(*parts), {})


# --- people and instructions


@pytest.mark.case(198)
def test_a_system_message_is_its_texts_joined() -> None:
    message = Message("s", "system", [text("Be "), {"type": "data-x", "data": 1}, text("kind.")])
    assert convert(message, {}) == [SystemMessage("Be kind.")]
    assert convert(Message("s", "system", [text(" ")]), {}) == []


@pytest.mark.case(198)
def test_a_user_message_is_its_texts_and_files() -> None:
    file = {"type": "file", "url": "data:,x", "mediaType": "text/plain", "filename": "x.txt"}
    message = Message("u", "user", [text("Look"), file, {"type": "data-x", "data": 1}, text("")])
    assert convert(message, {}) == [
        UserMessage([TextPart("Look"), FilePart("data:,x", "text/plain", "x.txt")])
    ]


def test_a_user_message_with_nothing_for_the_model_is_left_out() -> None:
    assert convert(Message("u", "user", [{"type": "data-x", "data": 1}]), {}) == []


# --- answers


@pytest.mark.case(198)
def test_each_step_of_an_answer_is_a_message_with_its_results_behind_it() -> None:
    step = {"type": "step-start"}
    assert converted(
        step,
        {"type": "reasoning", "text": "hm", "providerMetadata": SIGNED},
        text("Looking."),
        call("output-available", "1", output="one"),
        call("output-available", "2", output={"two": 2}, callProviderMetadata={"p": {"k": 1}}),
        step,
        step,
        text("Done."),
    ) == [
        AssistantMessage(
            [
                ReasoningPart("hm", SIGNED),
                TextPart("Looking."),
                ToolCallPart("1", "t", {"a": 1}),
                ToolCallPart("2", "t", {"a": 1}, provider_metadata={"p": {"k": 1}}),
            ]
        ),
        ToolMessage([ToolResultPart("1", "t", "one"), ToolResultPart("2", "t", {"two": 2})]),
        AssistantMessage([TextPart("Done.")]),
    ]


def test_results_stand_in_the_order_of_their_calls_between_which_text_may_stand() -> None:
    said, results = converted(
        call("output-error", "2", errorText="no"), text("and"), call("output-available", "1", output=1)
    )
    assert [getattr(p, "id", "text") for p in said.content] == ["2", "text", "1"]
    assert [p.id for p in results.content] == ["2", "1"]


@pytest.mark.parametrize(
    ("part", "result"),
    [
        (call("output-available", output=None), ToolResultPart("c", "t", None)),
        (call("output-error", errorText="broke"), ToolResultPart("c", "t", "broke", is_error=True)),
        (call("output-error"), ToolResultPart("c", "t", "Tool execution failed", is_error=True)),
        (call("output-denied"), ToolResultPart("c", "t", "Tool call execution denied.", is_error=True)),
        (
            call("output-denied", approval={"id": "x", "reason": "too dear"}),
            ToolResultPart("c", "t", "too dear", is_error=True),
        ),
        (
            call("approval-responded", approval={"id": "x", "approved": True, "reason": "fine"}),
            ApprovalResponse("x", "c", True, "fine"),
        ),
        (call("approval-responded"), ApprovalResponse("c", "c", False)),
    ],
    ids=lambda value: value["state"] if isinstance(value, dict) else "",
)
def test_each_outcome_has_its_form_and_keeps_the_input(part: dict[str, Any], result: Any) -> None:
    assert converted(part) == [
        AssistantMessage([ToolCallPart("c", "t", {"a": 1})]),
        ToolMessage([result]),
    ]


@pytest.mark.parametrize(
    "part",
    [
        call("input-streaming"),
        call("input-available"),
        call("approval-requested"),
        call("output-available", output=1, preliminary=True),
        call("from-the-future"),
    ],
    ids=lambda part: part["state"],
)
def test_a_call_without_an_outcome_is_left_out(part: dict[str, Any]) -> None:
    assert converted(part) == []
    assert converted(text("so"), part) == [AssistantMessage([TextPart("so")])]


def test_what_the_provider_ran_keeps_its_result_beside_the_call() -> None:
    ran = call("output-available", output=[1], providerExecuted=True, resultProviderMetadata={"p": {"k": 1}})
    assert converted(ran, text("so")) == [
        AssistantMessage(
            [
                ToolCallPart("c", "t", {"a": 1}, provider_executed=True),
                ToolResultPart("c", "t", [1], provider_executed=True, provider_metadata={"p": {"k": 1}}),
                TextPart("so"),
            ]
        )
    ]


def test_a_dynamic_tool_is_named_by_its_field() -> None:
    part = {**call("output-available", output=1), "type": "dynamic-tool", "toolName": "plugin"}
    assert [p.name for m in converted(part) for p in m.content] == ["plugin", "plugin"]


@pytest.mark.parametrize("given", ['{"a": 1}', {"a": 1}])
def test_the_input_of_a_call_is_an_object(given: Any) -> None:
    (said, _) = converted({**call("output-available", output=1), "input": given})
    assert said.content[0].input == {"a": 1}
    (said, _) = converted({k: v for k, v in call("output-available", output=1).items() if k != "input"})
    assert said.content[0].input == {}


def test_what_says_nothing_to_a_model_is_left_out() -> None:
    empty = {"type": "reasoning", "text": ""}
    assert converted(text(""), text("\n"), empty, {"type": "data-x", "data": 1}, {"type": "step-start"}) == []
    # but redacted thinking must come back to its provider
    redacted = {"type": "reasoning", "text": "", "providerMetadata": {"anthropic": {"redactedData": "x"}}}
    assert converted(redacted) == [AssistantMessage([ReasoningPart("", redacted["providerMetadata"])])]


def test_a_tool_may_say_how_its_result_is_shown() -> None:
    @tool(to_model_output=lambda output: f"{len(output)} rows")
    def t() -> list[int]:
        """Give rows."""
        return []

    (_, results) = convert(answer(call("output-available", output=[1, 2])), {"t": t})
    assert results == ToolMessage([ToolResultPart("c", "t", "2 rows")])


def test_a_message_is_not_changed_by_being_converted() -> None:
    message = answer(text("so"), call("output-available", output={"x": [1]}, providerExecuted=True))
    before = message.copy()
    convert(message, {})
    assert message == before


# --- a growing history


def history(count: int) -> list[Message]:
    made: list[Message] = []
    for number in range(count):
        made.append(Message(f"u{number}", "user", [text(f"question {number}")]))
        big = call("output-available", str(number), output="x" * 600)
        made.append(Message(f"a{number}", "assistant", [big, {"type": "step-start"}, text("y" * 11_000)]))
    return made


def reference(messages: list[Message]) -> list[Any]:
    """What a converter that never saw anything makes of them."""
    return Converter().convert(messages, {})


def test_a_converter_that_remembers_gives_what_a_fresh_one_gives() -> None:
    # Given a conversation that grows, is edited, is cut back and branches
    messages = history(6)
    changed = [*messages[:1], answer(text("edited")), *messages[2:]]
    branch = [*messages[:3], Message("b", "assistant", [text("another answer")])]
    converter = Converter()
    for version in (messages[:2], messages[:5], messages, changed, messages, branch, [], messages):
        assert converter.convert(version, {}) == reference(version)


def test_a_converter_knows_which_messages_it_has_not_seen() -> None:
    messages, converter = history(4), Converter()
    assert list(converter.unchecked(messages)) == messages
    converter.convert(messages, {})
    assert list(converter.unchecked(messages)) == []
    newer = [*messages, Message("u9", "user", [text("new")])]
    assert list(converter.unchecked(newer)) == newer[-1:]
    # one that changed is looked at again
    edited = [*messages[:-1], Message("a3", "assistant", [call("input-available", "9")])]
    assert edited[-1] in list(converter.unchecked(edited))
    converter.forget()
    assert list(converter.unchecked(messages)) == messages


def test_a_converter_notices_that_a_tool_shows_its_results_differently() -> None:
    @tool(to_model_output=lambda output: "short")
    def t() -> str:
        """Say something long."""
        return ""

    messages, converter = history(1), Converter()
    converter.convert(messages, {})
    assert converter.convert(messages, {"t": t}) == Converter().convert(messages, {"t": t})


@pytest.mark.case(660)
def test_only_messages_before_the_last_four_are_shortened() -> None:
    messages = history(4)
    shown = reference(messages)
    outputs = [p.output for m in shown for p in m.content if isinstance(p, ToolResultPart)]
    texts = [
        p.text for m in shown if isinstance(m, AssistantMessage) for p in m.content if isinstance(p, TextPart)
    ]
    assert [len(output) for output in outputs] == [500, 500, 600, 600]
    assert [len(said) for said in texts] == [10_000, 10_000, 11_000, 11_000]
    assert outputs[0].endswith("... [truncated 600 chars]")
    assert texts[0].endswith("... [truncated 1000 chars]")
    assert messages == history(4)
    assert Shortening().keep_recent_messages == 4


@pytest.mark.memory_case(182)
def test_outputs_of_the_last_four_are_the_very_objects_that_are_stored() -> None:
    outputs = [{"rows": ["x" * 5000]} for _ in range(5)]
    messages = [
        Message(f"a{n}", "assistant", [call("output-available", output=output)])
        for n, output in enumerate(outputs)
    ]
    shown = [p.output for m in reference(messages) for p in m.content if isinstance(p, ToolResultPart)]
    assert [new is stored for new, stored in zip(shown, outputs, strict=True)] == [False, *[True] * 4]


# --- in real turns


def results(request: Request) -> list[Any]:
    return [p.output for m in request.messages if isinstance(m, ToolMessage) for p in m.content]


@pytest.mark.anyio
@pytest.mark.case(253)
async def test_the_result_of_a_streaming_tool_is_final_and_in_the_next_prompt(open_app: OpenApp) -> None:
    # Given a tool that shows two values before its result
    @tool
    async def count() -> AsyncIterator[int]:
        """Count."""
        yield 1
        yield 2

    model = ScriptedModel(calls("count"), says("Two."), says("Still two."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [count]))
    handle = app.agent(cls, "room")

    # When it has run, and somebody asks again in a new process
    await handle.save_messages("Count")
    await app.evict(cls, "room")
    part = (await handle.get_messages())[-1].tool_parts[0]
    await handle.save_messages("And now?")

    # Then the stored part is final, and the model was shown the last value
    assert (part["state"], part["output"], part.get("preliminary")) == ("output-available", 2, None)
    assert results(model.last_request) == [2]


@pytest.mark.anyio
@pytest.mark.case(253, 267)
async def test_so_is_that_of_an_approved_one_in_the_message_that_asked(open_app: OpenApp) -> None:
    # Given a streaming tool that asks first
    @tool(needs_approval=True)
    async def count() -> AsyncIterator[int]:
        """Count."""
        yield 1
        yield 2

    model = ScriptedModel(calls("count"), says("Two."), says("Still two."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [count]))
    handle = app.agent(cls, "room")
    await handle.save_messages("Count")
    asked = (await handle.get_messages())[-1]

    # When it is approved and runs in the turn that continues
    assert await handle.apply_tool_approval(asked.tool_parts[0]["toolCallId"], True)
    await handle.continue_last_turn()
    await app.evict(cls, "room")
    await handle.save_messages("And now?")

    # Then the earlier message holds the final value, and each later prompt contains it
    stored = next(m for m in await handle.get_messages() if m.id == asked.id)
    (part,) = stored.tool_parts
    assert (part["state"], part["output"]) == ("output-available", 2)
    assert not part.get("preliminary")
    assert [results(request) for request in model.requests] == [[], [2], [2]]
