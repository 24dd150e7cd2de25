"""Results, approvals and outcomes of earlier calls, as changes to the parts of a message."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.journal.fold import CrossMessage
from everthink.journal.interactions import (
    holder_of,
    is_pending,
    settled_across,
    with_approval,
    with_result,
)
from everthink.messages import Message, copy_json

WAITING = ["input-available", "approval-requested", "approval-responded"]
SETTLED = ["output-available", "output-error", "output-denied"]


def call(state: str, id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "tool-t", "toolCallId": id, "state": state, "input": {"a": 1}, **more}


# --- results


@pytest.mark.case(254, 259, 260)
@pytest.mark.parametrize("state", WAITING)
def test_a_result_settles_a_call_that_waits(state: str) -> None:
    assert with_result([call(state)], "c", output={"x": 1}) == [
        call("output-available", output={"x": 1}, preliminary=False)
    ]


@pytest.mark.case(255, 256)
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("no camera", "no camera"),
        (None, "Tool execution denied by user"),
        ("", "Tool execution denied by user"),
    ],
)
def test_a_failed_result_settles_it_with_its_text_or_a_default(given: str | None, stored: str) -> None:
    changed = with_result([call("input-available")], "c", is_error=True, error_text=given, output="ignored")
    assert changed == [call("output-error", errorText=stored)]


@pytest.mark.case(257, 258)
@pytest.mark.parametrize("state", [*SETTLED, "input-streaming"])
def test_a_result_changes_no_call_in_another_state(state: str) -> None:
    assert with_result([call(state, output=1)], "c", output=2) is None


@pytest.mark.case(266)
def test_only_the_first_fitting_part_changes_and_on_a_copy() -> None:
    parts = [
        {"type": "text", "text": "c"},
        call("output-available", output=0),
        call("input-available", "other"),
        call("input-available"),
        call("input-available"),
    ]
    before = copy_json(parts)
    changed = with_result(parts, "c", output=1)
    assert changed == [*before[:3], call("output-available", output=1, preliminary=False), before[4]]
    assert parts == before
    assert with_result(parts, "unknown", output=1) is None


def test_a_dynamic_tool_takes_its_result_too() -> None:
    part = {**call("input-available"), "type": "dynamic-tool", "toolName": "t"}
    changed = with_result([part], "c", output=1)
    assert changed is not None
    assert changed[0]["state"] == "output-available"


# --- approvals


@pytest.mark.case(261, 262)
@pytest.mark.parametrize("state", ["input-available", "approval-requested"])
def test_approving_marks_a_call_as_answered_and_denying_settles_it(state: str) -> None:
    assert with_approval([call(state)], "c", approved=True) == [
        call("approval-responded", approval={"id": "c", "approved": True})
    ]
    assert with_approval([call(state)], "c", approved=False, reason="too dear") == [
        call("output-denied", approval={"id": "c", "approved": False, "reason": "too dear"})
    ]


@pytest.mark.case(265)
def test_what_is_known_about_an_approval_is_kept() -> None:
    asked = call("approval-requested", approval={"id": "a", "descriptor": {"title": "Sure?"}})
    changed = with_approval([asked], "c", approved=True)
    assert changed is not None
    assert changed[0]["approval"] == {"id": "a", "descriptor": {"title": "Sure?"}, "approved": True}
    assert asked["approval"] == {"id": "a", "descriptor": {"title": "Sure?"}}


@pytest.mark.case(263, 264)
@pytest.mark.parametrize("state", [*SETTLED, "input-streaming", "approval-responded"])
def test_an_approval_changes_no_other_call(state: str) -> None:
    assert with_approval([call(state)], "c", approved=True) is None
    assert with_approval([call("approval-requested")], "unknown", approved=True) is None


# --- outcomes that a later turn streams


@pytest.mark.case(267)
@pytest.mark.parametrize("state", ["input-streaming", *WAITING])
def test_an_outcome_settles_a_call_of_an_earlier_message(state: str) -> None:
    parts = [call(state, approval={"id": "a", "approved": True})]
    before = copy_json(parts)
    assert settled_across(parts, CrossMessage("c", {"x": 1})) == [
        {**before[0], "state": "output-available", "output": {"x": 1}, "preliminary": False}
    ]
    assert settled_across(parts, CrossMessage("c", is_denied=True)) == [
        {**before[0], "state": "output-denied"}
    ]
    assert parts == before


@pytest.mark.case(268)
def test_it_keeps_a_preliminary_mark_and_has_a_default_error() -> None:
    (part,) = settled_across([call("approval-responded")], CrossMessage("c", 1, preliminary=True)) or []
    assert (part["state"], part["output"], part["preliminary"]) == ("output-available", 1, True)
    (part,) = settled_across([call("approval-responded")], CrossMessage("c", is_error=True)) or []
    assert (part["state"], part["errorText"]) == ("output-error", "Tool execution failed")
    (part,) = (
        settled_across(
            [part | {"state": "approval-responded"}], CrossMessage("c", error_text="no", is_error=True)
        )
        or []
    )
    assert part["errorText"] == "no"


@pytest.mark.case(253)
@pytest.mark.parametrize(
    ("outcome", "final"),
    [
        (CrossMessage("c", 2), call("output-available", output=2, preliminary=False)),
        (CrossMessage("c", error_text="no", is_error=True), call("output-error", errorText="no")),
        (CrossMessage("c", is_denied=True), call("output-denied")),
    ],
    ids=["output", "error", "denied"],
)
def test_a_final_outcome_replaces_a_preliminary_one(outcome: CrossMessage, final: dict[str, Any]) -> None:
    assert settled_across([call("output-available", output=1, preliminary=True)], outcome) == [final]


@pytest.mark.case(269)
@pytest.mark.parametrize("state", SETTLED)
def test_the_first_final_outcome_wins(state: str) -> None:
    for outcome in (
        CrossMessage("c", 2),
        CrossMessage("c", is_error=True),
        CrossMessage("c", is_denied=True),
    ):
        assert settled_across([call(state, output=1)], outcome) is None
    assert settled_across([call("input-available")], CrossMessage("unknown", 2)) is None


# --- finding calls


def test_the_message_that_holds_a_call_is_found_among_answers_only() -> None:
    asked = Message("a", "assistant", [call("input-available")])
    forged = Message("u", "user", [call("input-available")])
    assert holder_of([forged, asked], "c") is asked
    assert holder_of([forged], "c") is None
    assert holder_of([asked], "unknown") is None


@pytest.mark.case(498, 499, 500)
@pytest.mark.parametrize(
    ("part", "browser", "waits"),
    [
        (call("approval-requested"), [], True),
        (call("input-available"), ["t"], True),
        (call("input-available"), ["other"], False),
        (call("input-available"), [], False),
        (call("input-streaming"), ["t"], False),
        (call("approval-responded"), ["t"], False),
        (call("output-available"), ["t"], False),
        ({"type": "text", "text": "t"}, ["t"], False),
        ({**call("input-available"), "type": "dynamic-tool", "toolName": "t"}, ["t"], True),
        ({**call("input-available"), "type": "dynamic-tool", "toolName": "other"}, ["t"], False),
    ],
)
def test_a_call_waits_for_a_person_when_it_asks_or_runs_in_the_browser(
    part: dict[str, Any], browser: list[str], waits: bool
) -> None:
    assert is_pending(part, browser) is waits
