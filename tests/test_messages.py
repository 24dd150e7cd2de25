"""Messages as values: taken in with care, copied whole, stored and read back as they were."""

from __future__ import annotations

import itertools
import json
import types
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.errors import InvalidMessage
from everthink.messages import (
    MAX_PARTS,
    Message,
    as_messages,
    copy_json,
    encode_json,
    is_settled,
    is_tool_part,
    normalize_input,
    parse_message,
    parse_stored,
    steps,
    stored_content,
    text_of,
    tool_name,
    user_message,
)
from tests.support.conversations import histories, json_values, unhurried, words

TEXT = {"type": "text", "text": "hi"}


def parsed(value: Any) -> Message:
    return parse_message(value, new_id=lambda: "new")


# --- reading a message


def test_a_message_knows_its_text_and_its_calls() -> None:
    call = {"type": "tool-t", "toolCallId": "c", "state": "input-available"}
    dynamic = {"type": "dynamic-tool", "toolName": "d", "toolCallId": "e", "state": "output-error"}
    message = Message("m", "assistant", [TEXT, call, {"type": "reasoning", "text": "hm"}, TEXT, dynamic])
    assert message.text == text_of(message.parts) == "hihi"
    assert message.tool_parts == [call, dynamic]
    assert [tool_name(part) for part in message.tool_parts] == ["t", "d"]


@pytest.mark.parametrize(
    ("part", "is_tool"),
    [
        ({"type": "tool-weather"}, True),
        ({"type": "dynamic-tool"}, True),
        ({"type": "text"}, False),
        ({"type": "data-tool-x"}, False),
        ({"type": None}, False),
        ({}, False),
    ],
)
def test_a_call_is_told_from_other_parts(part: dict[str, Any], is_tool: bool) -> None:
    assert is_tool_part(part) is is_tool


@pytest.mark.parametrize(
    ("part", "settled"),
    [
        ({"state": "output-available"}, True),
        ({"state": "output-available", "preliminary": False}, True),
        ({"state": "output-available", "preliminary": True}, False),
        ({"state": "output-error"}, True),
        ({"state": "output-denied"}, True),
        ({"state": "approval-responded"}, False),
        ({"state": "input-available"}, False),
        ({}, False),
    ],
)
def test_a_call_is_settled_when_its_outcome_is_final(part: dict[str, Any], settled: bool) -> None:
    assert is_settled(part) is settled


@unhurried
@given(json_values)
def test_an_input_is_an_object_whatever_it_was(value: Any) -> None:
    kept = normalize_input(value)
    assert isinstance(kept, dict)
    if isinstance(value, dict):
        assert kept is value
        assert normalize_input(json.dumps(value)) == value
        assert normalize_input(f" \n{json.dumps(value)}") == value
    elif not isinstance(value, str):
        assert kept == {}
        assert normalize_input(json.dumps(value)) == {}


# --- copies


@unhurried
@given(histories())
def test_a_copy_shares_nothing(history: list[Message]) -> None:
    for message in history:
        copy = message.copy()
        assert copy == message
        before = encode_json(message)
        for part in copy.parts:
            _deface(part)
        assert encode_json(message) == before


def _deface(value: Any) -> None:
    for inner in list(
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    ):
        _deface(inner)
    if isinstance(value, dict | list):
        value.clear()


def test_a_copy_keeps_every_field() -> None:
    message = Message("m", "user", [TEXT], {"a": [1]}, created_text="2026-01-01T00:00:00Z")
    assert message.copy() == message
    assert message.copy().metadata is not message.metadata


@unhurried
@given(json_values)
def test_plain_data_is_copied_deeply(value: Any) -> None:
    copy = copy_json(value)
    assert copy == value
    _deface(copy)
    assert copy_json(value) == value


# --- to JSON and back


@pytest.mark.slow
@unhurried
@given(histories())
def test_a_stored_message_is_read_back_as_it_was(history: list[Message]) -> None:
    for message in history:
        assert parse_stored(message.id, message.role, stored_content(message)) == message
        assert json.loads(encode_json(message)) == message.to_json()


def test_fields_that_are_unset_are_absent() -> None:
    assert user_message("hi", id="m").to_json() == {"id": "m", "role": "user", "parts": [TEXT]}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "nonsense",
        "{",
        "[]",
        "null",
        "{}",
        '{"metadata":{}}',
        '{"parts":{}}',
        '{"parts":["text"]}',
        '{"parts":[],"metadata":[]}',
        '{"parts":[{"type":"data-x","data":' + "[" * 100_000 + "]" * 100_000 + "}]}",
    ],
    ids=lambda content: content[:40],
)
def test_a_row_that_holds_no_message_is_none(content: str) -> None:
    assert parse_stored("m", "user", content) is None


def test_a_row_of_an_unknown_role_holds_no_message() -> None:
    assert parse_stored("m", "robot", '{"parts":[]}') is None


def test_a_row_of_a_newer_release_is_read_as_far_as_we_know_it() -> None:
    newer = '{"parts":[{"type":"hologram","depth":3}],"mood":"fine"}'
    assert parse_stored("m", "user", newer) == Message("m", "user", [{"type": "hologram", "depth": 3}])


@unhurried
@given(st.text())
def test_any_text_can_be_stored_and_what_is_whole_comes_back(text: str) -> None:
    stored = parse_stored("m", "user", stored_content(user_message(text, id="m")))
    assert stored is not None
    assert stored.text == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if text.isprintable():
        assert stored.text == text


# --- taking one in


def test_text_becomes_a_user_message() -> None:
    assert parsed("hi") == user_message("hi", id="new")
    assert parsed("") == user_message("", id="new")


@pytest.mark.parametrize("id", [None, ""])
def test_a_message_without_an_id_gets_one(id: Any) -> None:
    assert parsed({"id": id, "role": "user", "parts": [TEXT]}).id == "new"
    assert parsed({"role": "user", "parts": [TEXT]}).id == "new"
    assert parsed({"id": "mine", "role": "user", "parts": [TEXT]}).id == "mine"


@unhurried
@given(histories())
def test_what_is_taken_in_is_a_copy_and_the_same(history: list[Message]) -> None:
    for message in history:
        for given_ in (message, message.to_json(), types.MappingProxyType(message.to_json())):
            taken = parsed(given_)
            assert taken == message
        for part in taken.parts:
            part.clear()
        assert parsed(message) == message


def test_parts_of_kinds_we_do_not_know_are_kept() -> None:
    part = {"type": "hologram", "depth": [1, None, {"x": "y"}]}
    assert parsed({"role": "user", "parts": [part], "metadata": {"k": None}}) == Message(
        "new", "user", [part], {"k": None}
    )


def test_a_date_becomes_text() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert parsed({"role": "user", "parts": [TEXT], "createdAt": now}).created_text == str(now)


def test_there_is_an_end_to_the_parts_of_a_message() -> None:
    step = {"type": "step-start"}
    assert len(parsed({"role": "user", "parts": [step] * MAX_PARTS}).parts) == MAX_PARTS
    with pytest.raises(InvalidMessage, match="more than 10000"):
        parsed({"role": "user", "parts": [step] * (MAX_PARTS + 1)})


@unhurried
@given(
    st.recursive(
        json_values | st.just(object()) | st.binary(max_size=3) | st.complex_numbers(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                words | st.sampled_from(["id", "role", "parts", "type", "text", "metadata"]),
                inner,
                max_size=5,
            )
        ),
    )
)
def test_anything_else_is_refused_and_what_is_taken_can_be_stored(value: Any) -> None:
    try:
        message = parsed(value)
    except InvalidMessage:
        return
    assert parse_stored(message.id, message.role, stored_content(message)) == message


def test_one_many_or_none_can_be_given() -> None:
    ids = map(str, itertools.count())
    taken = as_messages(
        ["a", user_message("b", id="x"), {"role": "user", "parts": [TEXT]}], new_id=lambda: next(ids)
    )
    assert [(m.id, m.text) for m in taken] == [("0", "a"), ("x", "b"), ("1", "hi")]
    assert as_messages("a", new_id=lambda: "n") == [user_message("a", id="n")]
    assert as_messages(user_message("b", id="x"), new_id=lambda: "n") == [user_message("b", id="x")]
    assert as_messages([], new_id=lambda: "n") == []
    with pytest.raises(InvalidMessage, match=r"messages\[1\]\.role"):
        as_messages(["a", {"role": "robot", "parts": []}], new_id=lambda: "n")


START = {"type": "step-start"}
A, B, C = ({"type": "text", "text": text} for text in "abc")


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([], []),
        ([START], [[]]),
        ([START, A, B], [[A, B]]),
        ([START, A, START, B, C], [[A], [B, C]]),
        ([START, A, START], [[A], []]),
        ([START, START, A], [[], [A]]),
        ([A, START, B], [[A], [B]]),
        ([A, B], [[A, B]]),
    ],
)
def test_the_parts_of_an_answer_belong_to_its_steps(
    parts: list[dict[str, str]], found: list[list[dict[str, str]]]
) -> None:
    assert steps(parts) == found
