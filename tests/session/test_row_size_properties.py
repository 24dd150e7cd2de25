"""Cutting keeps what things are, holds its limit, and is done once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink.messages import Message, copy_json, encode_json
from everthink.session.row_size import (
    clean,
    cut,
    fit,
    shorten,
)
from tests.support.conversations import unhurried

pytestmark = pytest.mark.slow  # by nature: hundreds of cases each

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
leaves = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | words
values = st.recursive(
    leaves | st.builds(lambda word, times: word * times, words, st.integers(1, 30)),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(words, inner, max_size=12),
    max_leaves=40,
)
# The smallest share a nested value can get is 80 characters; a marker needs most of them.
limits = st.integers(80, 1200)


def length(value: Any) -> int:
    return len(value) if isinstance(value, str) else len(encode_json(value).decode())


@unhurried
@given(values, limits)
def test_what_is_cut_fits_its_limit(value: Any, limit: int) -> None:
    assert length(cut(value, limit)) <= limit


@unhurried
@given(values, limits)
def test_what_is_cut_stays_what_it_was(value: Any, limit: int) -> None:
    assert type(cut(value, limit)) is type(value)


@unhurried
@given(values, limits)
def test_what_fits_is_the_very_same_and_cutting_is_done_once(value: Any, limit: int) -> None:
    once = cut(value, limit)
    assert cut(once, limit) is once
    if length(value) <= limit:
        assert once is value


@unhurried
@given(values, limits)
def test_what_is_cut_says_so_and_the_original_is_left_alone(value: Any, limit: int) -> None:
    before = copy_json(value)
    once = cut(value, limit)
    assert value == before
    if once is not value:
        assert "truncated" in encode_json(once).decode()


@unhurried
@given(st.integers(1, 40), limits)
def test_deep_values_end_in_a_marker(depth: int, limit: int) -> None:
    # Given lists in lists around something too long
    value: Any = ["x" * 2000]
    for _ in range(depth):
        value = [value]
    once = cut(value, limit)

    # Then no more than eight of them are opened
    opened, inner = 0, once
    while isinstance(inner, list):
        opened, inner = opened + 1, inner[0]
    assert opened <= 9
    assert length(once) <= limit
    assert "truncated" in encode_json(once).decode()


def test_each_kind_is_cut_in_its_own_way() -> None:
    assert cut("x" * 200, 100) == "x" * 75 + "... [truncated 200 chars]"
    assert cut(["x" * 10] * 100, 200)[-1] == "... [truncated 88 items]"
    rows = cut({"a": "x" * 1000, "b": 1}, 500)
    assert rows["b"] == 1
    assert rows["a"].startswith("xxx")
    assert (rows["__truncated"], rows["__truncatedChars"]) == (True, 1014)
    assert cut({f"key {n}": n for n in range(100)}, 100) == {
        "__truncated": True,
        "__truncatedChars": length({f"key {n}": n for n in range(100)}),
        "note": "too large to keep",
    }


@pytest.mark.parametrize("limit", [500, 1000])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda big: [big],
        lambda big: {"result": big},
        lambda big: {"rows": [big, big]},
        lambda big: {"ok": True, "rows": [big], "count": 1},
        lambda big: {"a": {"b": [big]}},
        lambda big: [{"a": big, "b": [big]}],
    ],
)
def test_what_is_wrapped_in_something_small_is_not_lost_with_it(wrap: Any, limit: int) -> None:
    shown = cut(wrap("x" * 5000), limit)
    assert "x" * 20 in encode_json(shown).decode()
    assert length(shown) <= limit


# --- whole messages

parts = st.lists(
    st.builds(lambda said: {"type": "text", "text": said}, words.map(lambda word: word * 30))
    | st.builds(
        lambda id, output: {
            "type": "tool-t",
            "toolCallId": id,
            "state": "output-available",
            "output": output,
        },
        st.sampled_from(["1", "2", "3"]),
        values,
    )
    | st.builds(
        lambda said, data: {"type": "reasoning", "text": said, "providerMetadata": data},
        words,
        st.sampled_from([{}, {"openai": {"itemId": 1}}, {"openai": {"itemId": 1, "x": 2}}, {"a": {"s": 1}}]),
    ),
    max_size=8,
)
messages = st.builds(Message, st.just("m"), st.sampled_from(["user", "assistant", "system"]), parts)


@unhurried
@given(messages)
def test_cleaning_is_done_once_and_never_grows_a_message(message: Message) -> None:
    before = message.copy()
    once = clean(message)
    assert clean(once) is once
    assert len(encode_json(once)) <= len(encode_json(message))
    assert b"itemId" not in encode_json(once)
    assert message == before


@unhurried
@given(messages, st.integers(2000, 20_000))
def test_a_message_that_was_cut_has_its_parts_in_place_and_fits_if_it_can(
    message: Message, limit: int
) -> None:
    before = message.copy()
    small = fit(message, limit)
    assert message == before
    assert [part["type"] for part in small.parts] == [part["type"] for part in message.parts]
    if len(encode_json(message)) <= limit:
        assert small is message
        return
    assert len(encode_json(small)) < len(encode_json(message)) or small.parts == message.parts
    again = fit(small, limit)
    assert again.parts == small.parts
    assert again.metadata == small.metadata
    # Whatever may be cut was, if that was needed.
    if len(encode_json(small)) > limit:
        assert not any(part["type"] == "text" and len(part["text"]) > 1000 for part in small.parts)
        if message.role == "assistant":
            assert not any(length(part.get("output")) > 1000 for part in small.parts)


@unhurried
@given(messages)
def test_an_old_message_is_shown_short_and_not_changed(message: Message) -> None:
    before = message.copy()
    shown = shorten(message)
    assert message == before
    assert shorten(shown) is shown
    for part in shown.parts:
        assert length(part.get("output")) <= 500
        assert part["type"] != "text" or len(part["text"]) <= 10_000
