"""The prompt builder never shows a provider a call without its result, nor a result without its call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given

from everthink.messages import Message
from everthink.models import port as model
from everthink.prompt.convert import Converter, convert, has_approvals, paired, prune_tool_calls
from everthink.session.repair import repair
from everthink.testing.scripted_rules import check
from tests.support.conversations import histories, prompts, stored_messages, unhurried

QUESTION = model.UserMessage([model.TextPart("go on")])


def accept(messages: list[model.ModelMessage]) -> None:
    """Ask as the loop would: the conversation ends with a question."""
    check(model.Request("", [*messages, QUESTION]))


def mended(history: list[Message]) -> list[Message]:
    report = {message.id: message for message in repair(history).messages}
    return [report.get(message.id, message) for message in history]


def part(state: str, id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "tool-t", "toolCallId": id, "state": state, "input": {}, **more}


def holding(*parts: dict[str, Any]) -> Message:
    return Message("a", "assistant", list(parts))


@unhurried
@given(stored_messages)
@example(holding(part("output-available", output=1), part("output-error", errorText="no")))
@example(holding(part("approval-responded", providerExecuted=True), part("output-denied")))
@example(holding({"type": "text", "text": " "}, part("input-available")))
def test_any_stored_message_becomes_a_prompt_that_providers_accept(message: Message) -> None:
    accept(paired(convert(message, {})))


@unhurried
@given(histories())
def test_any_history_becomes_a_prompt_that_providers_accept(history: list[Message]) -> None:
    accept(paired(Converter().convert(history, {})))


@unhurried
@given(histories())
def test_so_does_any_history_after_its_repair(history: list[Message]) -> None:
    accept(paired(Converter().convert(mended(history), {})))


@unhurried
@given(histories())
def test_history_without_open_approvals_is_paired_by_conversion_alone(history: list[Message]) -> None:
    for version in (history, mended(history)):
        converted = Converter().convert(version, {})
        if not has_approvals(converted):
            accept(converted)


@unhurried
@given(histories())
def test_after_a_repair_no_call_is_left_out(history: list[Message]) -> None:
    # Given a mended history, in which each call has an outcome or an answer of a person
    history = mended(history)
    converted = Converter().convert(history, {})

    # Then every step shows each of its calls once
    asked = [p.id for m in converted if isinstance(m, model.AssistantMessage) for p in _calls(m)]
    for message in history:
        for id in {p["toolCallId"] for p in message.tool_parts if p["state"] in _KNOWN}:
            assert id in asked


_KNOWN = {"output-available", "output-error", "output-denied", "approval-responded"}


def _calls(message: model.AssistantMessage) -> list[model.ToolCallPart]:
    return [p for p in message.content if isinstance(p, model.ToolCallPart)]


@unhurried
@given(prompts)
def test_any_list_of_a_hook_is_paired(messages: list[model.ModelMessage]) -> None:
    accept(paired(messages))


@unhurried
@given(prompts)
def test_pairing_twice_is_pairing_once(messages: list[model.ModelMessage]) -> None:
    once = paired(messages)
    assert paired(once) == once


@unhurried
@given(prompts)
def test_pairing_leaves_the_given_messages_as_they_were(messages: list[model.ModelMessage]) -> None:
    before = [repr(message) for message in messages]
    paired(messages)
    assert [repr(message) for message in messages] == before


@unhurried
@given(histories())
def test_what_is_paired_already_stays_the_same_objects(history: list[Message]) -> None:
    once = paired(Converter().convert(history, {}))
    assert all(new is old for new, old in zip(paired(once), once, strict=True))


@unhurried
@given(prompts)
def test_pruning_leaves_nothing_that_providers_refuse(messages: list[model.ModelMessage]) -> None:
    for keep in (0, 1, 2, 5):
        accept(prune_tool_calls(messages, keep=keep))


# --- the ways a call can miss its result, one by one

CALL = model.ToolCallPart("c", "t", {})
RESULT = model.ToolResultPart("c", "t", 1)
SAID = model.TextPart("so")


def says(*content: Any) -> model.AssistantMessage:
    return model.AssistantMessage(list(content))


def gives(*content: Any) -> model.ToolMessage:
    return model.ToolMessage(list(content))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([says(SAID, CALL), gives(RESULT)], [says(SAID, CALL), gives(RESULT)]),
        ([says(SAID, CALL)], [says(SAID)]),
        ([says(CALL)], []),
        ([says(CALL), QUESTION, gives(RESULT)], [QUESTION]),
        ([gives(RESULT)], []),
        ([says(SAID), gives(RESULT)], [says(SAID)]),
        ([says(CALL), gives(RESULT), gives(RESULT)], [says(CALL), gives(RESULT)]),
        ([says(CALL), gives(RESULT, RESULT)], [says(CALL), gives(RESULT)]),
        ([says(CALL, CALL), gives(RESULT)], [says(CALL), gives(RESULT)]),
        ([says(CALL), gives(model.ApprovalResponse("a", "c", True))], []),
        ([says(SAID), gives()], [says(SAID)]),
        ([says(CALL, RESULT)], []),
        ([says(CALL), says(CALL), gives(RESULT)], [says(CALL), gives(RESULT)]),
    ],
)
def test_only_pairs_are_kept(given: list[Any], kept: list[Any]) -> None:
    assert paired(given) == kept


OWN = model.ToolCallPart("c", "t", {}, provider_executed=True)
INLINE = model.ToolResultPart("c", "t", 1, provider_executed=True)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([says(OWN, INLINE, SAID)], [says(OWN, INLINE, SAID)]),
        ([says(OWN, SAID)], [says(SAID)]),
        ([says(INLINE, SAID)], [says(SAID)]),
        ([says(INLINE, OWN)], []),
        ([says(OWN), gives(RESULT)], []),
        ([says(OWN, INLINE, INLINE)], [says(OWN, INLINE)]),
        ([says(OWN), says(SAID, INLINE)], [says(OWN), says(SAID, INLINE)]),
        ([says(OWN), QUESTION, says(SAID, INLINE)], [QUESTION, says(SAID)]),
    ],
)
def test_what_the_provider_ran_has_its_result_in_what_the_provider_said(
    given: list[Any], kept: list[Any]
) -> None:
    assert paired(given) == kept
