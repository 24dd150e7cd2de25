"""How many tokens something is taken for."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given

from everthink.messages import Message, copy_json, encode_json
from everthink.models.tokens import (
    TokenCount,
    as_count,
    counted,
    estimate_message,
    estimate_messages,
    estimate_tokens,
)
from tests.support.conversations import json_values, stored_messages, unhurried, words

pytestmark = pytest.mark.anyio


def saying(*parts: dict[str, Any]) -> Message:
    return Message("m", "assistant", list(parts))


@pytest.mark.memory_case(606)
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("abcd", 2),
        ("abcde", 2),
        ("one two three", 4),
        ("x" * 400, 100),
        ("x" * 401, 101),
        (" ", 1),
        ("a " * 100, 130),
        ("\n\tone\n\n two \t", 4),
        # ten words of two letters: 29 characters, and 13 by their number
        (" ".join(["ab"] * 10), 13),
    ],
)
def test_text_is_taken_for_a_quarter_of_its_length_or_more_by_its_words(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


def test_length_is_measured_as_clients_measure_it() -> None:
    assert estimate_tokens("é" * 400) == 100
    assert estimate_tokens("世" * 400) == 100
    # outside the first plane a character counts as two
    assert estimate_tokens("😀" * 400) == 200
    # half a character, as a provider may leave it between two deltas
    assert estimate_tokens("\ud83d" * 400) == 100


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (None, 0),
        (True, 2),
        (7, 2),
        ({}, 2),
        ({"city": "Paris"}, 4),  # {"city":"Paris"} has 16 characters
        (["x" * 396], 100),
        ({"text": "世" * 400}, 103),
    ],
)
def test_what_is_no_text_is_taken_for_its_json(value: Any, tokens: int) -> None:
    assert estimate_tokens(value) == tokens


def test_what_has_no_json_is_taken_for_its_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return "x" * 40

    class Word(str):
        __slots__ = ()

    assert estimate_tokens(Odd()) == 10
    assert estimate_tokens(2**100) == estimate_tokens(str(2**100))
    assert estimate_tokens(Word("x" * 40)) == 10
    ring: list[Any] = []
    ring.append(ring)
    assert estimate_tokens(ring) == estimate_tokens("[[...]]")


def test_a_message_has_four_tokens_of_its_own() -> None:
    assert estimate_message(saying()) == 4
    assert estimate_message(saying({"type": "text", "text": "abcd"})) == 6
    assert estimate_messages([]) == 0
    assert estimate_messages([saying(), saying({"type": "text", "text": "abcd"})]) == 10


@pytest.mark.memory_case(606)
def test_messages_are_estimated_by_all_their_parts_that_count() -> None:
    messages = [
        Message("u", "user", [{"type": "text", "text": "hello world"}]),
        saying(
            {"type": "tool-t", "toolCallId": "c", "input": {"a": 1}, "output": "ok"},
            {"type": "from-the-future", "value": "x" * 400},
        ),
    ]
    assert estimate_messages(messages) == 15


@pytest.mark.memory_case(75)
@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "text", "text": "x" * 40}, 10),
        ({"type": "reasoning", "text": "x" * 40}, 10),
        ({"type": "reasoning", "reasoning": "x" * 40}, 10),
        ({"type": "reasoning", "text": "", "reasoning": "x" * 40}, 0),
        ({"type": "tool-t", "toolCallId": "c", "input": "x" * 40}, 10),
        ({"type": "tool-t", "toolCallId": "c", "input": "x" * 40, "output": "y" * 80}, 30),
        ({"type": "tool-t", "toolCallId": "c", "input": {"a": 1}, "result": "y" * 80}, 22),
        ({"type": "tool-t", "toolCallId": "c", "output": "y" * 80, "result": "z" * 800}, 20),
        ({"type": "dynamic-tool", "toolName": "t", "input": "x" * 40, "output": ["y" * 76]}, 30),
        ({"type": "source-url", "text": "x" * 40}, 10),
        ({"type": "data-a", "result": "x" * 40}, 10),
        ({"type": "file", "url": "data:," + "x" * 400, "mediaType": "text/plain"}, 0),
        ({"type": "step-start"}, 0),
    ],
)
def test_each_part_counts_by_what_it_says(part: dict[str, Any], tokens: int) -> None:
    assert estimate_message(saying(part)) == 4 + tokens


@unhurried
@given(words, words)
def test_more_text_is_never_fewer_tokens(text: str, more: str) -> None:
    assert estimate_tokens(text) <= estimate_tokens(f"{text} {more}")
    assert estimate_tokens(f"{text} {more}") <= estimate_tokens(text) + estimate_tokens(more) + 1


@unhurried
@given(json_values)
def test_a_value_is_taken_for_its_json(value: Any) -> None:
    if value is not None and not isinstance(value, str):
        assert estimate_tokens(value) == estimate_tokens(encode_json(value).decode())


@unhurried
@given(stored_messages)
def test_any_stored_message_can_be_estimated_and_is_left_as_it_was(message: Message) -> None:
    before = copy_json(message.parts)
    assert estimate_message(message) >= 4
    assert message.parts == before


# --- a counter of the user's


@pytest.mark.memory_case(74)
@pytest.mark.parametrize(
    ("given", "tokens"),
    [
        (7, 7),
        (7.0, 7),
        (7.01, 8),
        (0, 0),
        (-3, 0),
        (-0.5, 0),
        (math.inf, 0),
        (-math.inf, 0),
        (math.nan, 0),
        (None, 0),
        ("12", 0),
    ],
)
async def test_what_a_counter_says_becomes_a_whole_number_of_tokens(given: Any, tokens: int) -> None:
    async def later(_: TokenCount) -> Any:
        return given

    assert as_count(given) == tokens
    assert await counted(lambda _: given, TokenCount([])) == tokens
    assert await counted(later, TokenCount([])) == tokens


async def test_a_counter_is_given_everything_and_replaces_the_estimate() -> None:
    seen: list[TokenCount] = []

    def counter(count: TokenCount) -> int:
        seen.append(count)
        return 5

    count = TokenCount([saying({"type": "text", "text": "x" * 4000})], "prompt", ["a block"])
    assert await counted(counter, count) == 5
    assert seen == [count]


async def test_without_a_counter_messages_and_prompt_are_estimated() -> None:
    count = TokenCount([saying({"type": "text", "text": "x" * 400})], "y" * 40, ["a block"])
    assert await counted(None, count) == 114


async def test_what_a_counter_raises_is_for_its_caller() -> None:
    def counter(_: TokenCount) -> int:
        raise RuntimeError("no tokenizer")

    with pytest.raises(RuntimeError, match="no tokenizer"):
        await counted(counter, TokenCount([]))
