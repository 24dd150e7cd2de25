"""What chunks do to a tool call's part, and what they mean for earlier messages."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import chunks as ui
from everthink.journal.fold import (
    Accumulator,
    CrossMessage,
    fold,
)
from everthink.messages import Message


def call(state: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-t", "toolCallId": "c", "toolName": "t", "state": state, **more}


def after(state: str, *chunks: ui.Chunk, **more: Any) -> dict[str, Any]:
    """The part of a call in `state` after `chunks`."""
    accumulator = Accumulator.of(Message("m", "assistant", [call(state, **more)]))
    for chunk in chunks:
        accumulator.apply(chunk)
    (part,) = accumulator.message().parts
    return part


def only(*chunks: ui.Chunk) -> dict[str, Any]:
    (part,) = fold(chunks).message().parts
    return part


SETTLED = [
    call("output-available", input={}, output="out"),
    call("output-error", input={}, errorText="failed"),
    call("output-denied", input={}),
]
ANSWERED = [*SETTLED, call("approval-responded", input={}, approval={"id": "a", "approved": True})]


@pytest.mark.case(232)
def test_an_input_that_starts_is_streaming() -> None:
    assert only(ui.ToolInputStart("c", "t")) == call("input-streaming")


def test_what_is_known_of_a_call_at_its_start_is_kept() -> None:
    started = ui.ToolInputStart("c", "t", True, {"p": {"k": 1}}, {"m": 1}, True, "Title")
    assert only(started) == call(
        "input-streaming",
        providerExecuted=True,
        callProviderMetadata={"p": {"k": 1}},
        toolMetadata={"m": 1},
        title="Title",
    )


@pytest.mark.case(233)
def test_deltas_leave_no_half_written_input_and_late_ones_change_nothing() -> None:
    start, half, rest = (
        ui.ToolInputStart("c", "t"),
        ui.ToolInputDelta("c", '{"a'),
        ui.ToolInputDelta("c", '": 1}'),
    )
    assert only(start, half) == call("input-streaming")
    ready = ui.ToolInputAvailable("c", "t", {"a": 1})
    assert only(start, half, ready, rest) == call("input-available", input={"a": 1})
    assert fold([half]).message().parts == []


@pytest.mark.case(234)
def test_a_ready_input_completes_its_part_or_makes_one() -> None:
    ready = ui.ToolInputAvailable("c", "t", {"a": 1}, True, {"p": {"k": 1}}, title="Title")
    whole = call(
        "input-available",
        input={"a": 1},
        providerExecuted=True,
        callProviderMetadata={"p": {"k": 1}},
        title="Title",
    )
    assert only(ready) == only(ui.ToolInputStart("c", "t"), ready) == whole


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (' {"a": 1}', {"a": 1}),
        ("{broken", {}),
        ("text", {}),
        ("[1]", {}),
        ([1], {}),
        (7, {}),
        (None, {}),
    ],
)
def test_an_input_is_always_an_object(given: Any, kept: dict[str, Any]) -> None:
    assert only(ui.ToolInputAvailable("c", "t", given))["input"] == kept
    assert only(ui.ToolInputError("c", "t", given, "no"))["input"] == kept


@pytest.mark.case(235)
def test_a_broken_input_is_an_error_whether_the_call_was_known_or_not() -> None:
    broken = ui.ToolInputError("c", "t", {"a": 1}, "no such tool", dynamic=True)
    failed = call("output-error", input={"a": 1}, errorText="no such tool")
    assert only(broken) == failed
    assert only(ui.ToolInputStart("c", "t"), broken) == failed


@pytest.mark.case(235)
@pytest.mark.parametrize("part", SETTLED, ids=lambda part: part["state"])
def test_a_broken_input_never_overrides_an_outcome(part: dict[str, Any]) -> None:
    message = Message("m", "assistant", [part])
    assert fold([ui.ToolInputError("c", "t", {}, "late")], Accumulator.of(message)).message() == message


def test_a_broken_input_takes_a_preliminary_output_away() -> None:
    # Given a tool that showed something and is then said to have been called wrongly
    part = after(
        "output-available", ui.ToolInputError("c", "t", {}, "no"), input={}, output="so far", preliminary=True
    )

    # Then the part is a plain failure that nobody takes for unfinished
    assert part == call("output-error", input={}, errorText="no")


@pytest.mark.case(236)
@pytest.mark.parametrize(
    "state", ["input-streaming", "input-available", "approval-requested", "approval-responded"]
)
def test_output_and_error_settle_a_call_in_any_state(state: str) -> None:
    assert after(state, ui.ToolOutputAvailable("c", {"x": 1}), input={}) == call(
        "output-available", input={}, output={"x": 1}
    )
    assert after(state, ui.ToolOutputError("c", "failed"), input={}) == call(
        "output-error", input={}, errorText="failed"
    )


@pytest.mark.case(236)
def test_a_later_output_replaces_an_error_and_the_other_way_round() -> None:
    assert after("output-error", ui.ToolOutputAvailable("c", 1), input={}, errorText="e") == call(
        "output-available", input={}, output=1
    )
    assert after("output-available", ui.ToolOutputError("c", "e"), input={}, output=1) == call(
        "output-error", input={}, errorText="e"
    )


@pytest.mark.case(236)
@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested"])
def test_a_denial_settles_a_call_that_waits(state: str) -> None:
    assert after(state, ui.ToolOutputDenied("c"))["state"] == "output-denied"


def test_the_result_of_a_provider_keeps_its_data() -> None:
    part = after("input-available", ui.ToolOutputAvailable("c", 1, True, {"p": {"k": 1}}))
    assert part["resultProviderMetadata"] == {"p": {"k": 1}}


@pytest.mark.case(237, 253)
def test_a_preliminary_output_is_marked_until_the_final_one() -> None:
    first, second = (ui.ToolOutputAvailable("c", value, preliminary=True) for value in (1, 2))
    assert after("input-available", first, second) == call("output-available", output=2, preliminary=True)
    assert after("input-available", first, second, ui.ToolOutputAvailable("c", 3)) == call(
        "output-available", output=3
    )
    assert after("input-available", first, ui.ToolOutputError("c", "no")) == call(
        "output-error", errorText="no"
    )
    assert after("input-available", first, ui.ToolOutputDenied("c")) == call("output-denied")


@pytest.mark.case(238)
@pytest.mark.parametrize("state", ["input-streaming", "input-available", "output-available"])
def test_a_second_start_of_a_known_call_is_ignored(state: str) -> None:
    assert after(state, ui.ToolInputStart("c", "other")) == call(state)


@pytest.mark.case(239)
@pytest.mark.parametrize("part", [call("input-available", input={}), call("approval-requested"), *ANSWERED])
def test_late_input_never_takes_a_part_back(part: dict[str, Any]) -> None:
    message = Message("m", "assistant", [part])
    late: list[ui.Chunk] = [
        ui.ToolInputStart("c", "t"),
        ui.ToolInputDelta("c", "{"),
        ui.ToolInputAvailable("c", "t", {"late": True}),
    ]
    assert fold(late, Accumulator.of(message)).message() == message


@pytest.mark.case(240)
@pytest.mark.parametrize("part", ANSWERED, ids=lambda part: part["state"])
@pytest.mark.parametrize("chunk", [ui.ToolApprovalRequest("late", "c"), ui.ToolOutputDenied("c")])
def test_asking_and_denying_never_override_what_was_answered(part: dict[str, Any], chunk: ui.Chunk) -> None:
    message = Message("m", "assistant", [part])
    assert fold([chunk], Accumulator.of(message)).message() == message


@pytest.mark.parametrize("state", ["input-streaming", "input-available"])
def test_asking_for_approval_marks_the_part(state: str) -> None:
    asked = ui.ToolApprovalRequest("a", "c")
    assert after(state, asked) == call("approval-requested", approval={"id": "a"})
    described = ui.ToolApprovalRequest("a", "c", approval_descriptor={"title": "Sure?"})
    assert after(state, described)["approval"] == {"id": "a", "descriptor": {"title": "Sure?"}}


@pytest.mark.case(241)
def test_an_approval_request_counts_even_without_its_part() -> None:
    # It is one of the chunks the fold knows: no error and nothing unhandled, and no part is invented.
    accumulator = Accumulator("m")
    assert accumulator.apply(ui.ToolApprovalRequest("a", "unknown")) is None
    assert accumulator.message().parts == []


@pytest.mark.case(242)
@pytest.mark.parametrize(
    ("chunk", "meant"),
    [
        (ui.ToolOutputAvailable("?", 1), CrossMessage("?", 1)),
        (ui.ToolOutputAvailable("?", 1, preliminary=True), CrossMessage("?", 1, preliminary=True)),
        (ui.ToolOutputError("?", "no"), CrossMessage("?", error_text="no", is_error=True)),
        (ui.ToolOutputDenied("?"), CrossMessage("?", is_denied=True)),
    ],
)
def test_an_outcome_of_an_unknown_call_belongs_to_an_earlier_message(
    chunk: ui.Chunk, meant: CrossMessage
) -> None:
    accumulator = Accumulator("m")
    accumulator.apply(ui.ToolInputAvailable("c", "t", {}))
    before = accumulator.message()
    assert accumulator.apply(chunk) == meant
    assert accumulator.message() == before


def test_a_dynamic_tool_is_named_in_its_type_like_any_other() -> None:
    assert only(ui.ToolInputAvailable("c", "t", {}, dynamic=True))["type"] == "tool-t"
