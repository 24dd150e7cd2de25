"""Chunks on the wire: the browser's names, nothing null, nothing lost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everthink import chunks as ui
from everthink.journal.segments import pack, unpack
from tests.support.conversations import any_chunks, chunk_streams, json_values, unhurried

EXAMPLES: list[tuple[ui.Chunk, dict[str, Any]]] = [
    (ui.Start(), {"type": "start"}),
    (ui.Start("m", {"a": 1}), {"type": "start", "messageId": "m", "messageMetadata": {"a": 1}}),
    (ui.StartStep(), {"type": "start-step"}),
    (ui.FinishStep(), {"type": "finish-step"}),
    (ui.TextStart("1"), {"type": "text-start", "id": "1"}),
    (ui.TextDelta("1", ""), {"type": "text-delta", "id": "1", "delta": ""}),
    (ui.TextEnd("1", {"p": {}}), {"type": "text-end", "id": "1", "providerMetadata": {"p": {}}}),
    (ui.ReasoningStart("1"), {"type": "reasoning-start", "id": "1"}),
    (ui.ReasoningDelta("1", "hm"), {"type": "reasoning-delta", "id": "1", "delta": "hm"}),
    (ui.ReasoningEnd("1"), {"type": "reasoning-end", "id": "1"}),
    (ui.ToolInputStart("c", "t"), {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"}),
    (
        ui.ToolInputStart("c", "t", True, {"p": {}}, {"m": 1}, True, "T"),
        {
            "type": "tool-input-start",
            "toolCallId": "c",
            "toolName": "t",
            "providerExecuted": True,
            "providerMetadata": {"p": {}},
            "toolMetadata": {"m": 1},
            "dynamic": True,
            "title": "T",
        },
    ),
    (ui.ToolInputDelta("c", "{"), {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{"}),
    (
        ui.ToolInputAvailable("c", "t", None),
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": None},
    ),
    (
        ui.ToolInputError("c", "t", "{", "broken", dynamic=True),
        {
            "type": "tool-input-error",
            "toolCallId": "c",
            "toolName": "t",
            "input": "{",
            "errorText": "broken",
            "dynamic": True,
        },
    ),
    (
        ui.ToolApprovalRequest("a", "c"),
        {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"},
    ),
    (ui.ToolOutputAvailable("c", None), {"type": "tool-output-available", "toolCallId": "c", "output": None}),
    (
        ui.ToolOutputAvailable("c", [1], preliminary=True),
        {"type": "tool-output-available", "toolCallId": "c", "output": [1], "preliminary": True},
    ),
    (ui.ToolOutputError("c", "no"), {"type": "tool-output-error", "toolCallId": "c", "errorText": "no"}),
    (ui.ToolOutputDenied("c"), {"type": "tool-output-denied", "toolCallId": "c"}),
    (ui.SourceUrl("s", "u"), {"type": "source-url", "sourceId": "s", "url": "u"}),
    (
        ui.SourceDocument("s", "m", "t", "f"),
        {"type": "source-document", "sourceId": "s", "mediaType": "m", "title": "t", "filename": "f"},
    ),
    (ui.File("u", "m"), {"type": "file", "url": "u", "mediaType": "m"}),
    (ui.Data("data-x", {"a": None}), {"type": "data-x", "data": {"a": None}}),
    (ui.Data("data-x", 1, "i", True), {"type": "data-x", "data": 1, "id": "i", "transient": True}),
    (ui.MessageMetadata({"a": 1}), {"type": "message-metadata", "messageMetadata": {"a": 1}}),
    (ui.Error("no"), {"type": "error", "errorText": "no"}),
    (ui.Abort(), {"type": "abort"}),
    (ui.Finish("stop"), {"type": "finish", "finishReason": "stop"}),
    (ui.Other({"type": "new", "x": None}), {"type": "new", "x": None}),
]


@pytest.mark.parametrize(("chunk", "wire"), EXAMPLES, ids=[ui.encode(chunk)[:40] for chunk, _ in EXAMPLES])
def test_a_chunk_has_the_browser_s_names_and_no_field_it_lacks(chunk: ui.Chunk, wire: dict[str, Any]) -> None:
    assert json.loads(ui.encode(chunk)) == wire
    assert ui.decode(json.dumps(wire)) == chunk
    assert chunk.type == wire["type"]


@unhurried
@given(any_chunks)
def test_every_chunk_survives_the_trip(chunk: ui.Chunk) -> None:
    text = ui.encode(chunk)
    assert ui.decode(text) == ui.decode(text.encode()) == chunk
    assert json.loads(text)["type"] == chunk.type
    assert ui.encode(ui.decode(text)) == text


@unhurried
@given(any_chunks)
def test_optional_fields_are_absent_and_never_null(chunk: ui.Chunk) -> None:
    fields = json.loads(ui.encode(chunk))
    carried = {"input", "output", "data", "value"}
    assert [name for name, value in fields.items() if value is None and name not in carried] == []


@unhurried
@given(json_values)
def test_a_chunk_of_an_unknown_type_is_carried_as_it_is(value: Any) -> None:
    wire = {"type": "hologram", "value": value}
    chunk = ui.decode(json.dumps(wire))
    assert chunk == ui.Other(wire)
    assert json.loads(ui.encode(chunk)) == wire


@pytest.mark.parametrize(
    "wire",
    [
        {},
        {"type": None},
        {"type": 7},
        {"type": "text-delta"},
        {"type": "text-delta", "id": 1, "delta": "x"},
        {"type": "data-x"},
        {"type": "data-x", "data": 1, "id": 7},
    ],
    ids=json.dumps,
)
def test_a_chunk_that_does_not_fit_its_type_is_carried_too(wire: dict[str, Any]) -> None:
    chunk = ui.decode(json.dumps(wire))
    assert chunk == ui.Other(wire)
    assert isinstance(chunk.type, str)


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '"text-delta"', "7"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        ui.decode(text)


def test_half_an_emoji_is_mended_rather_than_refused() -> None:
    # Given a provider that cut an emoji in two
    text = ui.encode(ui.TextDelta("1", "so \ud83d"))

    # Then what is left of it can be stored and read
    assert ui.decode(text) == ui.TextDelta("1", "so �")
    whole = ui.encode(ui.ToolOutputAvailable("c", {"\ud83d\ude00": ["\ud83d\ude00"]}))
    assert ui.decode(whole) == ui.ToolOutputAvailable("c", {"😀": ["😀"]})


# --- packed into a segment


def packed(chunks: list[ui.Chunk]) -> str:
    return pack(chunks, [ui.encode(chunk) for chunk in chunks])


@unhurried
@given(chunk_streams() | st.lists(any_chunks, max_size=12))
def test_a_segment_gives_back_every_chunk_as_it_was_put(chunks: list[ui.Chunk]) -> None:
    assert unpack(packed(chunks)) == chunks


@unhurried
@given(chunk_streams(), st.integers(0, 60))
def test_chunks_are_the_same_however_they_fell_into_segments(chunks: list[ui.Chunk], place: int) -> None:
    assert unpack(packed(chunks[:place])) + unpack(packed(chunks[place:])) == chunks


def test_a_run_of_deltas_takes_one_entry() -> None:
    run: list[ui.Chunk] = [ui.TextDelta("1", "a"), ui.TextDelta("1", "b"), ui.TextDelta("1", "")]
    assert json.loads(packed([*run, ui.ReasoningDelta("1", "c"), ui.TextDelta("2", "d", {"p": {}})])) == [
        ["t", "1", "a", "b", ""],
        ["r", "1", "c"],
        {"type": "text-delta", "id": "2", "delta": "d", "providerMetadata": {"p": {}}},
    ]


def test_half_an_emoji_in_a_run_is_mended_as_it_was_shown() -> None:
    halves: list[ui.Chunk] = [ui.TextDelta("1", "\ud83d"), ui.TextDelta("1", "\ude00")]
    assert unpack(packed(halves)) == [ui.decode(ui.encode(chunk)) for chunk in halves]
