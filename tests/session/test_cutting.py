"""Cutting as memory promises it: in shape, in a copy, and only what is old or too large for its row."""

from __future__ import annotations

from typing import Any

import pytest

from everthink.messages import Message, encode_json
from everthink.session.row_size import (
    MAX_ROW_BYTES,
    cut,
    fit,
    shorten,
)


def answer(output: Any) -> Message:
    part = {"type": "tool-t", "toolCallId": "c", "state": "output-available", "input": {}, "output": output}
    return Message("a", "assistant", [part])


@pytest.mark.memory_case(180)
def test_an_old_object_is_cut_in_shape_and_the_message_is_left_as_it_was() -> None:
    given = answer({"ok": True, "page": {"body": "x" * 5000}, "rows": ["short", "y" * 5000]})
    before = given.copy()
    output = shorten(given).parts[0]["output"]
    assert given == before
    assert output["ok"] is True
    assert output["page"]["body"].startswith("xxx")
    assert output["rows"][0] == "short"
    assert output["rows"][1].startswith("yyy")
    assert output["__truncated"] is True
    assert len(encode_json(output)) <= 500


@pytest.mark.memory_case(181)
@pytest.mark.parametrize("limit", [100, 120, 150])
def test_lists_in_lists_with_little_room_leave_an_object_that_says_what_was_cut(limit: int) -> None:
    given = {"rows": [[["x" * 50] * 20] * 20] * 20}
    size = len(encode_json(given))
    assert cut(given, limit)["__truncated"] is True
    assert cut(given, limit)["__truncatedChars"] == size
    # also where it is part of something larger
    assert cut({"a": given}, limit + 80)["a"]["__truncatedChars"] == size


@pytest.mark.memory_case(183)
def test_old_text_stays_text() -> None:
    output = shorten(answer("x" * 5000)).parts[0]["output"]
    assert isinstance(output, str)
    assert len(output) == 500


@pytest.mark.memory_case(184)
def test_outputs_of_a_row_that_is_too_large_keep_their_shape() -> None:
    small = fit(answer({"rows": ["x" * 600] * 5000, "ok": True}))
    output = small.parts[0]["output"]
    assert len(encode_json(small)) <= MAX_ROW_BYTES
    assert output["ok"] is True
    assert output["rows"][0].startswith("xxx")


@pytest.mark.memory_case(185)
def test_an_output_of_nothing_but_names_becomes_a_mark_and_its_row_fits() -> None:
    small = fit(answer({f"name {n}": n for n in range(200_000)}))
    output = small.parts[0]["output"]
    assert len(encode_json(small)) <= MAX_ROW_BYTES
    assert output["__truncated"] is True
    assert len(output) == 3


@pytest.mark.memory_case(186)
def test_what_a_person_wrote_at_great_length_is_cut_with_a_note() -> None:
    small = fit(Message("u", "user", [{"type": "text", "text": "x" * (MAX_ROW_BYTES + 1)}]))
    assert len(encode_json(small)) <= MAX_ROW_BYTES
    assert small.parts[0]["text"].startswith(
        "[Text truncated for storage (1800001 chars). First 500 chars: xx"
    )


@pytest.mark.memory_case(607)
def test_a_cut_text_says_how_long_it_was_and_a_cut_list_keeps_what_is_small() -> None:
    assert cut("z" * 1000, 100) == "z" * 74 + "... [truncated 1000 chars]"
    assert cut([1, 2, 3, "y" * 600], 100)[:3] == [1, 2, 3]
