"""What each chunk does to the message."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import chunks as ui
from everthink.journal.fold import (
    Accumulator,
    StreamError,
    Unhandled,
    fold,
    is_replay,
    merge,
)
from everthink.messages import Message


def parts(*chunks: ui.Chunk) -> list[dict[str, Any]]:
    return fold(chunks, id="m").message().parts


# --- text and reasoning

BLOCKS = [
    ("text", ui.TextStart, ui.TextDelta, ui.TextEnd),
    ("reasoning", ui.ReasoningStart, ui.ReasoningDelta, ui.ReasoningEnd),
]
each_kind = pytest.mark.parametrize(("kind", "start", "delta", "end"), BLOCKS, ids=[b[0] for b in BLOCKS])


@each_kind
@pytest.mark.case(221, 224)
def test_a_block_streams_then_grows_then_is_done(kind: str, start: Any, delta: Any, end: Any) -> None:
    chunks = [start("1"), delta("1", "Hel"), delta("1", "lo"), end("1")]
    seen = [parts(*chunks[: n + 1]) for n in range(4)]
    assert seen == [
        [{"type": kind, "text": text, "state": state}]
        for text, state in [
            ("", "streaming"),
            ("Hel", "streaming"),
            ("Hello", "streaming"),
            ("Hello", "done"),
        ]
    ]


@each_kind
@pytest.mark.case(222, 226)
def test_a_lone_delta_makes_a_part_with_its_data(kind: str, start: Any, delta: Any, end: Any) -> None:
    assert parts(delta("1", "Hi")) == [{"type": kind, "text": "Hi", "state": "streaming"}]
    assert parts(delta("1", "Hi", {"p": {"s": 1}})) == [
        {"type": kind, "text": "Hi", "state": "streaming", "providerMetadata": {"p": {"s": 1}}}
    ]


@each_kind
@pytest.mark.case(223, 224)
def test_several_blocks_make_several_parts(kind: str, start: Any, delta: Any, end: Any) -> None:
    made = parts(start("1"), delta("1", "a"), end("1"), start("2"), delta("2", "b"), end("2"))
    assert [(p["text"], p["state"]) for p in made] == [("a", "done"), ("b", "done")]


@each_kind
@pytest.mark.case(252)
def test_blocks_that_interleave_stay_apart(kind: str, start: Any, delta: Any, end: Any) -> None:
    # Given two blocks of which each grows while the other is open
    made = parts(
        start("1"),
        start("2"),
        delta("1", "a"),
        delta("2", "x"),
        delta("1", "b"),
        end("1"),
        delta("2", "y"),
        end("2"),
    )

    # Then every delta went to its own
    assert [(p["text"], p["state"]) for p in made] == [("ab", "done"), ("xy", "done")]


def test_text_and_thinking_of_the_same_id_stay_apart() -> None:
    made = parts(
        ui.ReasoningStart("0"),
        ui.TextStart("0"),
        ui.ReasoningDelta("0", "hm"),
        ui.TextDelta("0", "so"),
        ui.TextEnd("0"),
    )
    assert [(p["type"], p["text"], p["state"]) for p in made] == [
        ("reasoning", "hm", "streaming"),
        ("text", "so", "done"),
    ]


@each_kind
def test_a_delta_of_an_unknown_id_goes_to_the_block_that_is_open(
    kind: str, start: Any, delta: Any, end: Any
) -> None:
    assert [p["text"] for p in parts(start("1"), delta("?", "a"))] == ["a"]
    # and never reopens one that is done
    assert [p["text"] for p in parts(start("1"), end("1"), delta("?", "a"))] == ["", "a"]


@each_kind
@pytest.mark.case(225)
def test_provider_data_of_start_delta_and_end_is_merged(kind: str, start: Any, delta: Any, end: Any) -> None:
    # Given data on each chunk (a signature comes with the end)
    made = parts(
        start("1", {"a": {"x": 1}}), delta("1", "hm", {"b": {"y": 1}}), end("1", {"a": {"signature": "s"}})
    )
    assert made[0]["providerMetadata"] == {"a": {"signature": "s"}, "b": {"y": 1}}

    # Then without any there is no such field
    assert "providerMetadata" not in parts(start("1"), delta("1", "hm"), end("1"))[0]


def test_the_end_of_a_block_nobody_saw_changes_nothing() -> None:
    assert parts(ui.TextEnd("1"), ui.ReasoningEnd("1")) == []


# --- files, sources, steps, data


@pytest.mark.case(227)
def test_files_and_sources_add_parts_with_only_the_fields_they_have() -> None:
    assert parts(
        ui.File("data:,x", "text/plain"),
        ui.File("data:,y", "text/plain", {"p": {"k": 1}}),
        ui.SourceUrl("s1", "https://a.example"),
        ui.SourceUrl("s2", "https://b.example", "B", {"p": {"k": 2}}),
        ui.SourceDocument("s3", "application/pdf", "Paper"),
        ui.SourceDocument("s4", "application/pdf", "Paper", "paper.pdf"),
    ) == [
        {"type": "file", "url": "data:,x", "mediaType": "text/plain"},
        {"type": "file", "url": "data:,y", "mediaType": "text/plain", "providerMetadata": {"p": {"k": 1}}},
        {"type": "source-url", "sourceId": "s1", "url": "https://a.example"},
        {
            "type": "source-url",
            "sourceId": "s2",
            "url": "https://b.example",
            "title": "B",
            "providerMetadata": {"p": {"k": 2}},
        },
        {"type": "source-document", "sourceId": "s3", "mediaType": "application/pdf", "title": "Paper"},
        {
            "type": "source-document",
            "sourceId": "s4",
            "mediaType": "application/pdf",
            "title": "Paper",
            "filename": "paper.pdf",
        },
    ]


@pytest.mark.case(228)
@pytest.mark.parametrize("chunk", [ui.StartStep(), ui.decode('{"type":"step-start"}')], ids=["new", "old"])
def test_the_start_of_a_step_adds_a_marker_and_its_end_nothing(chunk: ui.Chunk) -> None:
    accumulator = Accumulator("m")
    assert accumulator.apply(chunk) is None
    assert accumulator.apply(ui.FinishStep()) is None
    assert accumulator.message().parts == [{"type": "step-start"}]
    assert not accumulator.has_content


@pytest.mark.case(229)
def test_a_data_part_is_replaced_in_its_place_by_one_of_the_same_type_and_id() -> None:
    made = parts(
        ui.Data("data-a", 1, "x"),
        ui.Data("data-a", 2, "y"),
        ui.Data("data-b", 3, "x"),
        ui.Data("data-a", 4, "x"),
    )
    assert made == [
        {"type": "data-a", "data": 4, "id": "x"},
        {"type": "data-a", "data": 2, "id": "y"},
        {"type": "data-b", "data": 3, "id": "x"},
    ]


@pytest.mark.case(230)
def test_a_data_part_without_id_is_always_added() -> None:
    assert parts(ui.Data("data-a", 1), ui.Data("data-a", 2)) == [
        {"type": "data-a", "data": 1},
        {"type": "data-a", "data": 2},
    ]


@pytest.mark.case(231)
def test_a_transient_data_part_is_seen_and_not_stored() -> None:
    accumulator = Accumulator("m")
    accumulator.apply(ui.Data("data-a", 1, "x"))
    assert accumulator.apply(ui.Data("data-a", 2, "x", transient=True)) is None
    assert accumulator.message().parts == [{"type": "data-a", "data": 1, "id": "x"}]


# --- the message around the parts


@pytest.mark.case(243)
def test_start_sets_the_id_and_merges_metadata() -> None:
    message = fold([ui.Start("new", {"a": 1}), ui.Start(None, {"b": 2})], id="old").message()
    assert (message.id, message.metadata) == ("new", {"a": 1, "b": 2})


@pytest.mark.case(243)
def test_start_of_a_continuation_keeps_the_id_and_merges_metadata() -> None:
    accumulator = Accumulator("old", continuation=True)
    accumulator.apply(ui.Start("new", {"a": 1}))
    assert (accumulator.message().id, accumulator.message().metadata) == ("old", {"a": 1})


@pytest.mark.case(244)
def test_a_bare_start_changes_neither_id_nor_metadata() -> None:
    start = fold([ui.MessageMetadata({"a": 1})], id="old")
    assert fold([ui.Start()], start).message() == start.message()


@pytest.mark.case(245, 246)
@pytest.mark.parametrize(
    "last", [ui.Finish("stop", {"b": 2}), ui.Finish(None, {"b": 2}), ui.MessageMetadata({"b": 2})]
)
def test_metadata_is_merged_key_by_key(last: ui.Chunk) -> None:
    message = fold([ui.MessageMetadata({"a": 1, "b": 1}), last]).message()
    assert message.metadata == {"a": 1, "b": 2}


@pytest.mark.case(245)
@pytest.mark.parametrize("reason", ["stop", "tool-calls", None])
def test_finish_reports_its_reason_if_it_has_one(reason: str | None) -> None:
    chunk = ui.decode(ui.encode(ui.Finish(reason)))
    assert isinstance(chunk, ui.Finish)
    assert chunk.finish_reason == reason
    assert Accumulator("m").apply(chunk) is None


@pytest.mark.case(247)
def test_an_error_reports_its_text_or_itself() -> None:
    accumulator = Accumulator("m")
    assert accumulator.apply(ui.Error("overloaded")) == StreamError("overloaded")
    assert accumulator.apply(ui.Error("")) == StreamError("")
    assert accumulator.apply(ui.Error()) == StreamError('{"type":"error"}')
    assert accumulator.message().parts == []


@pytest.mark.case(248)
@pytest.mark.parametrize("chunk", [ui.Other({"type": "hologram"}), ui.Other({}), ui.Abort("stop")])
def test_a_chunk_that_says_nothing_about_the_message_is_unhandled(chunk: ui.Chunk) -> None:
    accumulator = Accumulator("m")
    assert accumulator.apply(chunk) == Unhandled()
    assert accumulator.message() == Message("m", "assistant", [])


@pytest.mark.case(249)
def test_a_snapshot_is_a_copy_and_has_no_metadata_when_there_is_none() -> None:
    accumulator = fold([ui.ToolInputAvailable("c", "t", {"deep": [1]}), ui.TextDelta("1", "a")])
    snapshot = accumulator.message()
    assert "metadata" not in snapshot.to_json()
    snapshot.parts[0]["input"]["deep"].append(2)
    snapshot.parts.clear()
    assert accumulator.message().parts[0]["input"] == {"deep": [1]}
    accumulator.apply(ui.TextDelta("1", "b"))
    assert accumulator.message().text == "ab"


def test_going_on_from_a_stored_message_shares_nothing_with_it() -> None:
    # Given a stored message with a call that waits
    stored = fold(
        [ui.ToolInputAvailable("c", "t", {}), ui.MessageMetadata({"a": {"b": 1}})], id="m"
    ).message()
    before = stored.copy()

    # When its outcome arrives
    accumulator = Accumulator.of(stored)
    accumulator.apply(ui.ToolOutputAvailable("c", "out"))
    accumulator.apply(ui.MessageMetadata({"c": 1}))

    # Then only the new message has it
    assert stored == before
    assert accumulator.call("c") is not None
    assert accumulator.message().parts[0]["output"] == "out"
    assert accumulator.message().metadata == {"a": {"b": 1}, "c": 1}


# --- merging into a list


def said(id: str, text: str, role: Any = "assistant", **metadata: Any) -> Message:
    return Message(id, role, [{"type": "text", "text": text}], metadata or None)


@pytest.mark.case(250)
def test_a_message_is_appended_or_takes_the_place_of_its_id() -> None:
    messages = [said("u", "hi", "user"), said("a", "old")]
    before = list(messages)
    assert merge(messages, said("b", "new")) == [*before, said("b", "new")]
    assert merge(messages, said("a", "new")) == [before[0], said("a", "new")]
    assert messages == before


@pytest.mark.case(251)
def test_a_continuation_goes_on_in_its_message_else_in_the_last_answer_else_at_the_end() -> None:
    history = [said("a", "one", x=1, y=1), said("b", "two", x=1, y=1), said("u", "hi", "user")]
    exact = merge(history, said("a", "new"), continuation=True)
    assert exact == [said("a", "new"), *history[1:]]

    merged = merge(history, said("c", "more", y=2), continuation=True)
    assert [m.id for m in merged] == ["a", "b", "u"]
    assert (merged[1].text, merged[1].metadata) == ("twomore", {"x": 1, "y": 2})
    assert history[1].text == "two"

    questions = [said("u", "hi", "user")]
    assert merge(questions, said("c", "more"), continuation=True) == [*questions, said("c", "more")]


# --- repetitions


@pytest.mark.parametrize(
    ("state", "chunk", "repeats"),
    [
        ("none", ui.ToolInputStart("c", "t"), False),
        ("none", ui.ToolInputDelta("c", "{"), False),
        ("none", ui.ToolInputAvailable("c", "t", {}), False),
        ("none", ui.ToolApprovalRequest("a", "c"), False),
        ("none", ui.ToolOutputDenied("c"), False),
        ("input-streaming", ui.ToolInputStart("c", "t"), True),
        ("input-streaming", ui.ToolInputDelta("c", "{"), False),
        ("input-streaming", ui.ToolInputAvailable("c", "t", {}), False),
        ("input-available", ui.ToolInputStart("c", "t"), True),
        ("input-available", ui.ToolInputDelta("c", "{"), True),
        ("input-available", ui.ToolInputAvailable("c", "t", {}), True),
        ("input-available", ui.ToolApprovalRequest("a", "c"), False),
        ("input-available", ui.ToolOutputDenied("c"), False),
        ("approval-requested", ui.ToolOutputDenied("c"), False),
        ("approval-responded", ui.ToolApprovalRequest("a", "c"), True),
        ("approval-responded", ui.ToolOutputDenied("c"), True),
        ("output-available", ui.ToolApprovalRequest("a", "c"), True),
        ("output-denied", ui.ToolOutputDenied("c"), True),
        ("output-error", ui.ToolInputAvailable("c", "t", {}), True),
        ("output-available", ui.ToolOutputAvailable("c", 1), False),
        ("output-available", ui.TextDelta("c", "x"), False),
    ],
)
def test_what_a_provider_repeats_is_recognised(state: str, chunk: ui.Chunk, repeats: bool) -> None:
    part = {"type": "tool-t", "toolCallId": "c", "toolName": "t", "state": state}
    message = Message("m", "assistant", [] if state == "none" else [part])
    assert is_replay(chunk, Accumulator.of(message)) is repeats
