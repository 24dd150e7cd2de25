"""What is counted in a JSON text before it is decoded."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everthink.limits import Limits
from everthink.wire.bounds import check, mend
from everthink.wire.codec import decode

MIB = 1024 * 1024
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**127), 2**127) | st.text('{}[],:"\\ué\U0001f600x'),
    lambda some: st.lists(some) | st.dictionaries(st.text('{}[],:"\\x', max_size=3), some),
)


def nodes(value: Any) -> int:
    """Brackets, commas and colons, counted in the value; long numbers count as more."""
    if type(value) is int:
        return 4 * (len(str(abs(value))) // 16)
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + len(value) + sum(map(nodes, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(nodes, value))
    return 0


def depth(value: Any) -> int:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if below is None else 1 + max(map(depth, below), default=0)


def within(**limits: int) -> Limits:
    return Limits(**limits)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(ANYTHING, st.booleans(), st.booleans())
def test_values_and_levels_are_counted_exactly(value: Any, is_ascii: bool, as_bytes: bool) -> None:
    text: Any = json.dumps(value, ensure_ascii=is_ascii)
    text = text.encode() if as_bytes else text
    found, levels = nodes(value), depth(value)
    assert check(text, within(frame_nodes=max(1, found), frame_depth=max(1, levels))) is None
    if found > 1:
        why = check(text, within(frame_nodes=found - 1))
        assert (why or "").startswith(f"holds more than {found - 1} values")
    if levels > 1:
        why = f"is nested deeper than {levels - 1} levels"
        assert check(text, within(frame_depth=levels - 1)) == why


@pytest.mark.parametrize("piece", ['{"a":[', '[{"":', "["])
def test_levels_are_counted_across_pieces(piece: str) -> None:
    # Twice as long as what is looked at in one go
    text = '{"a":' + '"' + "x" * 130_000 + '","b":' + piece * 64
    assert check(text, within(frame_depth=64)) == "is nested deeper than 64 levels"
    assert check(text, within(frame_depth=200)) is None


@pytest.mark.parametrize("text", ["]" * 10_000, '"' * 10_000, "\\" * 10_001, "", '{"a', '\\"' * 5000 + "]]["])
def test_what_is_no_json_is_not_judged(text: str) -> None:
    assert check(text, Limits()) is None


def test_a_long_text_of_brackets_is_fine() -> None:
    assert check(json.dumps({"code": "f({[,:]})\\" * 100_000}), Limits()) is None


def frame(state: str) -> str:
    return '{"type":"rpc","id":"1","method":"m","args":[' + state + "]}"


# The densest of each kind, up to what is let in.
HEAVY = {
    "plain text": frame('"' + "x" * MIB + '"'),
    "text with an emoji": frame('"\U0001f600' + "x" * MIB + '"'),
    "an emoji in escapes": frame('"' + "\\ud83d\\ude00" * (MIB // 12) + '"'),
    "halves of an emoji": frame('"' + "\\ud83d" * (MIB // 6) + '"'),
    "a half after many escapes": frame('"' + "\\n" * (MIB // 2) + '\\ud83d"'),
    "a half after backslashes": frame('"' + "\\\\" * (MIB // 2) + '\\ud83d"'),
    "lists": frame("[]," * 40_000 + '"' + "x" * MIB + '"'),
    "objects": frame('{"":1},' * 26_000 + '"' + "x" * MIB + '"'),
    "texts": frame('"",' * 79_000 + '"' + "x" * MIB + '"'),
    "numbers": frame("1," * 79_000 + '"' + "x" * MIB + '"'),
    "long numbers": frame(("9" * 40 + ",") * 8_800 + '"' + "x" * MIB + '"'),
    "fractions": frame(("0." + "1" * 39 + ",") * 8_800 + '"' + "x" * MIB + '"'),
    "slow numbers": frame("1e300," * 190 + '"' + "x" * MIB + '"'),
    "levels": frame('{"a":' * 100 + "1" + "}" * 100 + ',"' + "x" * MIB + '"'),
    "more lists": frame(("[" + chr(34) + "x" * 22 + chr(34) + "],") * (2 * MIB // 27) + "1"),
}


@pytest.mark.parametrize("kind", HEAVY)
def test_what_is_let_in_takes_at_most_eight_times_its_bytes(kind: str) -> None:
    data = HEAVY[kind].encode()
    assert len(data) >= MIB
    tracemalloc.start()
    try:
        read = decode(data, Limits())
        peak = tracemalloc.get_traced_memory()[1] + len(data)
    finally:
        tracemalloc.stop()
    assert read is not None
    assert type(read).__name__ == "CallMethod"
    assert peak <= 8 * len(data)


REFUSED = {
    "lists": frame("[]," * (MIB // 3) + "1"),
    "objects": frame("{}," * (MIB // 3) + "1"),
    "small objects": frame('{"":1},' * (MIB // 7) + "1"),
    "texts": frame('"",' * (MIB // 3) + "1"),
    "numbers": frame("1," * (MIB // 2) + "1"),
    "a long number": frame("9" * MIB),
    "long numbers": frame(("9" * 4000 + ",") * 264 + "1"),
    "a fraction": frame("0." + "1" * MIB),
    "slow numbers": frame("1.2345678901234567e-300," * (MIB // 24) + "1"),
    "levels": frame("[" * MIB),
    "objects in objects": frame('{"a":' * (MIB // 5)),
    "the transcript of a client": '{"type":"cf_agent_chat_messages","messages":[' + "[]," * MIB + "1]}",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refusing_takes_little_memory(kind: str) -> None:
    data = REFUSED[kind].encode()
    tracemalloc.start()
    try:
        read: Any = decode(data, Limits())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert type(read).__name__ == "Refused"
    assert peak <= 3 * len(data) + 100_000


@given(st.lists(st.sampled_from(["\\\\", "\\n", '\\"', "\\ud83d", "\\ude00", "\\uD83D", "ud83d", "x", "é"])))
def test_halves_are_mended_one_by_one(parts: list[str]) -> None:
    mended: list[str] = []
    for part in parts:
        if part == "\\ude00" and mended[-1:] in (["\\ud83d"], ["\\uD83D"]):
            mended[-1] += part
        else:
            mended.append(part)
    halves = ("\\ud83d", "\\ude00", "\\uD83D")
    expected = "".join("\\ufffd" if part in halves else part for part in mended)
    assert mend("".join(parts).encode()).decode() == expected


def test_halves_are_mended_across_pieces() -> None:
    pair, half = b"\\ud83d\\ude00", b"\\ud83d"
    for shift in range(13):
        text = b"x" * shift + pair * 12_000 + half + pair * 12_000
        assert mend(text) == b"x" * shift + pair * 12_000 + b"\\ufffd" + pair * 12_000
