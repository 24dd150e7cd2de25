"""Conversations for property tests: streams of chunks, stored messages, prompts that hooks make."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from everthink import chunks as ui
from everthink.messages import Message
from everthink.models import port as model

__all__ = [
    "any_chunks",
    "chunk_streams",
    "histories",
    "json_values",
    "metadata",
    "prompts",
    "stored_messages",
    "unhurried",
    "words",
]

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A machine that is busy with something else fails no test."""

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
json_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
json_values = st.recursive(
    json_leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, json_values, max_size=3)
metadata = st.none() | st.dictionaries(st.sampled_from(["anthropic", "openai", "x"]), objects, max_size=2)
block_ids = st.sampled_from(["1", "2", "3"])
call_ids = st.sampled_from(["call_1", "call_2", "call_3"])
tool_names = st.sampled_from(["weather", "search", "ask_user"])


# --- streams of chunks


@st.composite
def _block(draw: st.DrawFn, id: str) -> list[ui.Chunk]:
    """A block of text or thinking, perhaps without its start, perhaps never ended."""
    start, delta, end = draw(
        st.sampled_from(
            [
                (ui.TextStart, ui.TextDelta, ui.TextEnd),
                (ui.ReasoningStart, ui.ReasoningDelta, ui.ReasoningEnd),
            ]
        )
    )
    made: list[ui.Chunk] = [delta(id, text, draw(metadata)) for text in draw(st.lists(words, max_size=4))]
    if draw(st.integers(0, 9)):
        made.insert(0, start(id, draw(metadata)))
    if draw(st.integers(0, 4)):
        made.append(end(id, draw(metadata)))
    return made


_call_ends = st.sampled_from(
    ["output", "streamed", "error", "broken", "approved", "denied", "asks", "waits", "cut"]
)


@st.composite
def _call(draw: st.DrawFn, id: str) -> list[ui.Chunk]:
    """A tool call on one of the ways it can go."""
    name, end = draw(tool_names), draw(_call_ends)
    executed = draw(st.booleans())
    made: list[ui.Chunk] = []
    if draw(st.booleans()):
        made.append(ui.ToolInputStart(id, name, executed, draw(metadata), title=draw(st.none() | words)))
        made += [ui.ToolInputDelta(id, text) for text in draw(st.lists(words, max_size=2))]
    given = draw(json_values | st.just('{"a": 1}'))
    if end == "cut":
        return made
    if end == "broken":
        return [*made, ui.ToolInputError(id, name, given, draw(words), dynamic=True)]
    made.append(ui.ToolInputAvailable(id, name, given, executed, draw(metadata)))
    if end == "streamed":
        made += [
            ui.ToolOutputAvailable(id, value, preliminary=True)
            for value in draw(st.lists(json_values, min_size=1, max_size=3))
        ]
    if end in ("approved", "denied", "asks"):
        made.append(ui.ToolApprovalRequest(f"approval_{id}", id, approval_descriptor=draw(metadata)))
    if end in ("output", "streamed", "approved"):
        made.append(ui.ToolOutputAvailable(id, draw(json_values), executed, draw(metadata)))
    elif end == "error":
        made.append(ui.ToolOutputError(id, draw(words)))
    elif end == "denied":
        made.append(ui.ToolOutputDenied(id))
    return made


_small = (
    st.builds(ui.File, words, words, metadata)
    | st.builds(ui.SourceUrl, words, words, st.none() | words, metadata)
    | st.builds(ui.SourceDocument, words, words, words, st.none() | words, metadata)
    | st.builds(
        ui.Data, st.sampled_from(["data-a", "data-b"]), json_values, st.none() | block_ids, st.booleans()
    )
    | st.builds(ui.MessageMetadata, objects)
    | st.builds(lambda value: ui.Other({"type": "from-the-future", "value": value}), json_values)
)

# Chunks that say nothing new, come too late or speak of something nobody has seen.
_strays = (
    st.builds(ui.TextDelta, block_ids, words)
    | st.builds(ui.TextEnd, block_ids)
    | st.builds(ui.ReasoningDelta, block_ids, words, metadata)
    | st.builds(ui.ToolInputStart, call_ids, tool_names)
    | st.builds(ui.ToolInputDelta, call_ids, words)
    | st.builds(ui.ToolInputAvailable, call_ids, tool_names, json_values)
    | st.builds(ui.ToolInputError, call_ids, tool_names, json_values, words)
    | st.builds(ui.ToolOutputAvailable, call_ids, json_values, preliminary=st.booleans())
    | st.builds(ui.ToolOutputError, call_ids, words)
    | st.builds(ui.ToolOutputDenied, call_ids)
    | st.builds(ui.ToolApprovalRequest, words, call_ids)
    | st.builds(ui.Error, st.none() | words)
)


@st.composite
def _step(draw: st.DrawFn, number: int) -> list[ui.Chunk]:
    tracks: list[list[ui.Chunk]] = []
    for place in range(draw(st.integers(0, 3))):
        tracks.append(draw(_block(f"{number}-{place}")))
    for place in range(draw(st.integers(0, 2))):
        tracks.append(draw(_call(f"call_{number}_{place}")))
    tracks.append([draw(_small) for _ in range(draw(st.integers(0, 2)))])
    if not draw(st.integers(0, 3)):
        tracks.append(draw(st.lists(_strays, max_size=3)))
    made: list[ui.Chunk] = [ui.StartStep()]
    # Interleave: each track keeps its own order.
    while tracks := [track for track in tracks if track]:
        made.append(draw(st.sampled_from(tracks)).pop(0))
    return [*made, ui.FinishStep()]


@st.composite
def chunk_streams(draw: st.DrawFn) -> list[ui.Chunk]:
    """The chunks of a whole answer of several steps, with blocks and calls interleaved."""
    made: list[ui.Chunk] = [ui.Start(draw(st.none() | words), draw(st.none() | objects))]
    for number in range(draw(st.integers(1, 3))):
        made += draw(_step(number))
    ends: list[ui.Chunk] = [ui.Finish("stop", draw(st.none() | objects)), ui.Error("broke off"), ui.Abort()]
    return [*made, draw(st.sampled_from(ends))]


any_chunks = st.one_of(
    st.builds(ui.Start, st.none() | words, st.none() | objects),
    st.builds(ui.StartStep),
    st.builds(ui.FinishStep),
    *(
        st.builds(kind, words, metadata)
        for kind in (ui.TextStart, ui.TextEnd, ui.ReasoningStart, ui.ReasoningEnd)
    ),
    *(st.builds(kind, words, words, metadata) for kind in (ui.TextDelta, ui.ReasoningDelta)),
    st.builds(
        ui.ToolInputStart,
        words,
        words,
        st.booleans(),
        metadata,
        st.none() | objects,
        st.booleans(),
        st.none() | words,
    ),
    st.builds(ui.ToolInputDelta, words, words),
    st.builds(ui.ToolInputAvailable, words, words, json_values, st.booleans(), metadata, st.none() | objects),
    st.builds(ui.ToolInputError, words, words, json_values, words, dynamic=st.booleans()),
    st.builds(ui.ToolApprovalRequest, words, words, st.none() | words, st.none() | objects),
    st.builds(ui.ToolOutputAvailable, words, json_values, st.booleans(), metadata, preliminary=st.booleans()),
    st.builds(ui.ToolOutputError, words, words, st.booleans(), metadata, st.booleans()),
    st.builds(ui.ToolOutputDenied, words),
    st.builds(ui.Finish, st.none() | st.sampled_from(["stop", "tool-calls", "other"]), st.none() | objects),
    st.builds(ui.Error, words),
    st.builds(ui.Abort, st.none() | words),
    _small,
)
"""One chunk of any type."""


# --- stored messages

_states = st.sampled_from(
    [
        "input-streaming",
        "input-available",
        "approval-requested",
        "approval-responded",
        "output-available",
        "output-error",
        "output-denied",
        "from-the-future",
    ]
)
_missing = st.just(...)


@st.composite
def _tool_part(draw: st.DrawFn, ids: st.SearchStrategy[str]) -> dict[str, Any]:
    name = draw(tool_names)
    part: dict[str, Any] = {"type": f"tool-{name}", "toolCallId": draw(ids), "state": draw(_states)}
    if draw(st.booleans()):
        part |= {"type": "dynamic-tool", "toolName": name}
    optional = {
        "input": json_values | st.just('{"a": 1}'),
        "output": json_values,
        "errorText": words,
        "preliminary": st.booleans(),
        "providerExecuted": st.booleans(),
        "callProviderMetadata": st.just({"x": {"y": 1}}),
        "approval": st.fixed_dictionaries(
            {}, optional={"id": words, "approved": st.booleans(), "reason": words}
        ),
    }
    for key, values in optional.items():
        value = draw(_missing | values)
        if value is not ...:
            part[key] = value
    return part


_other_parts = (
    st.builds(lambda text: {"type": "text", "text": text}, words)
    | st.builds(lambda text: {"type": "reasoning", "text": text}, words)
    | st.just({"type": "reasoning", "text": "", "providerMetadata": {"anthropic": {"redactedData": "x"}}})
    | st.just({"type": "step-start"})
    | st.just({"type": "file", "url": "data:,x", "mediaType": "text/plain"})
    | st.builds(lambda data: {"type": "data-a", "data": data}, json_values)
    | st.just({"type": "source-url", "sourceId": "s", "url": "https://example.com"})
)


def _parts(ids: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.lists(_tool_part(ids) | _other_parts, max_size=8)


stored_messages = st.builds(lambda parts: Message("a", "assistant", parts), _parts(call_ids))
"""An assistant message as storage may hold it: any part in any state, ids that repeat."""


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """A conversation of such messages, with questions in between (or not)."""
    made = [Message("u0", "user", [{"type": "text", "text": "hello"}])]
    for number in range(draw(st.integers(1, 4))):
        made.append(Message(f"a{number}", "assistant", draw(_parts(call_ids))))
        if draw(st.booleans()):
            made.append(Message(f"u{number + 1}", "user", [{"type": "text", "text": "go on"}]))
    return made


# --- prompts as a hook may make them

_text_parts = st.builds(model.TextPart, words)
_call_parts = st.builds(model.ToolCallPart, call_ids, tool_names, json_values, st.booleans())
_result_parts = st.builds(model.ToolResultPart, call_ids, tool_names, json_values)
_approvals = st.builds(model.ApprovalResponse, words, call_ids, st.booleans())
_said = _text_parts | st.builds(model.ReasoningPart, words) | _call_parts | _result_parts

prompts = st.lists(
    st.just(model.UserMessage([model.TextPart("go on")]))
    | st.just(model.SystemMessage("be kind"))
    | st.builds(model.AssistantMessage, st.lists(_said, max_size=5))
    | st.builds(model.ToolMessage, st.lists(_result_parts | _approvals, max_size=4)),
    max_size=8,
)
"""Model messages in any order: calls and results that fit, repeat, or belong to nothing."""
