"""Fold streamed chunks into the assistant message they describe.

    models/ --Chunk--> fold --Message--> session/

Pure, and the only fold: live turns, replay, recovery and every client of ours use it, so
equal chunks must always give an equal message, wherever the stream was cut in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import chunks as ui
from ..messages import Message, Part, copy_json, is_settled, is_tool_part, normalize_input

__all__ = ["Accumulator", "Action", "CrossMessage", "StreamError", "Unhandled", "fold", "is_replay", "merge"]


@dataclass(frozen=True, slots=True)
class CrossMessage:
    """An outcome for a call of an *earlier* message (an approved tool, a provider's replay)."""

    tool_call_id: str
    output: Any = None
    error_text: str | None = None
    preliminary: bool = False
    is_error: bool = False
    is_denied: bool = False
    approval: dict[str, Any] | None = None
    """It has no outcome yet: it asks a person something."""


@dataclass(frozen=True, slots=True)
class StreamError:
    """The stream says it broke off."""

    text: str


@dataclass(frozen=True, slots=True)
class Unhandled:
    """A chunk that says nothing about the message."""


Action = CrossMessage | StreamError | Unhandled | None


class Accumulator:
    """An assistant message under construction.

    `apply` takes chunks in order; `message` shows what they made so far. With `continuation`
    the id is not taken from the `start` chunk.
    """

    __slots__ = ("_calls", "_named", "_open", "_pieces", "continuation", "id", "metadata", "parts")

    def __init__(self, id: str, *, continuation: bool = False) -> None:
        self.id = id
        self.continuation = continuation
        self.parts: list[Part] = []
        self.metadata: dict[str, Any] | None = None
        self._calls: dict[str, Part] = {}
        # Data that may be replaced, by (type, id): filled when the first of them comes.
        self._named: dict[tuple[str, str], Part] | None = None
        # Text blocks that may still grow, by (type, id), and their text not yet joined.
        self._open: dict[tuple[str, str], Part] = {}
        self._pieces: dict[int, list[str]] = {}

    @classmethod
    def of(cls, message: Message, *, continuation: bool = False) -> Accumulator:
        """Go on from a stored message."""
        accumulator = cls(message.id, continuation=continuation)
        accumulator.parts = copy_json(message.parts)
        accumulator.metadata = copy_json(message.metadata)
        accumulator._calls = {p["toolCallId"]: p for p in accumulator.parts if is_tool_part(p)}
        return accumulator

    def copy(self) -> Accumulator:
        """An independent accumulator in the same state."""
        self._join()
        twin = Accumulator(self.id, continuation=self.continuation)
        twin.parts = copy_json(self.parts)
        twin.metadata = copy_json(self.metadata)
        places = {id(part): index for index, part in enumerate(self.parts)}
        twin._calls = {key: twin.parts[places[id(part)]] for key, part in self._calls.items()}
        twin._open = {key: twin.parts[places[id(part)]] for key, part in self._open.items()}
        return twin

    def message(self) -> Message:
        """The message so far, sharing nothing with the accumulator."""
        self._join()
        return Message(self.id, "assistant", copy_json(self.parts), copy_json(self.metadata))

    @property
    def has_content(self) -> bool:
        """True when there is anything besides step markers."""
        return any(part["type"] != "step-start" for part in self.parts)

    @property
    def open_blocks(self) -> list[tuple[str, str, Part]]:
        """The blocks that have not ended: kind (`text`, `reasoning`), id and part."""
        self._join()
        return [(kind, id, part) for (kind, id), part in self._open.items()]

    def call(self, tool_call_id: str) -> Part | None:
        """The part of a call, if this message has it."""
        return self._calls.get(tool_call_id)

    def apply(self, chunk: ui.Chunk) -> Action:
        """Take the next chunk. Returns what it means beyond this message, if anything."""
        handler = self._handlers.get(type(chunk))
        return handler(self, chunk) if handler else Unhandled()

    # --- text and reasoning

    def _begin(self, chunk: ui.TextStart | ui.ReasoningStart) -> None:
        kind = "text" if type(chunk) is ui.TextStart else "reasoning"
        part: Part = {"type": kind, "text": "", "state": "streaming"}
        if chunk.provider_metadata:
            part["providerMetadata"] = dict(chunk.provider_metadata)
        self.parts.append(part)
        self._open[kind, chunk.id] = part

    def _grow(self, chunk: ui.TextDelta | ui.ReasoningDelta) -> None:
        kind = "text" if type(chunk) is ui.TextDelta else "reasoning"
        part = self._open.get((kind, chunk.id)) or self._last_open(kind)
        if part is None:
            part = {"type": kind, "text": "", "state": "streaming"}
            self.parts.append(part)
            self._open[kind, chunk.id] = part
        pieces = self._pieces.get(id(part))
        if pieces is None:
            self._pieces[id(part)] = [part["text"], chunk.delta]
        else:
            pieces.append(chunk.delta)
        if chunk.provider_metadata:
            _merge_metadata(part, chunk.provider_metadata)

    def _end(self, chunk: ui.TextEnd | ui.ReasoningEnd) -> None:
        kind = "text" if type(chunk) is ui.TextEnd else "reasoning"
        part = self._open.pop((kind, chunk.id), None) or self._last_open(kind)
        if part is None:
            return
        self._join_part(part)
        part["state"] = "done"
        if chunk.provider_metadata:
            _merge_metadata(part, chunk.provider_metadata)

    def _last_open(self, kind: str) -> Part | None:
        for part in reversed(self.parts):
            if part["type"] == kind:
                return part if part.get("state") == "streaming" else None
        return None

    def _join(self) -> None:
        if self._pieces:
            for part in self.parts:
                self._join_part(part)

    def _join_part(self, part: Part) -> None:
        pieces = self._pieces.pop(id(part), None)
        if pieces is not None:
            part["text"] = "".join(pieces)

    # --- tools

    def _input_start(self, chunk: ui.ToolInputStart) -> None:
        if chunk.tool_call_id not in self._calls:
            self._push_call(chunk, "input-streaming")

    def _push_call(
        self, chunk: ui.ToolInputStart | ui.ToolInputAvailable | ui.ToolInputError, state: str
    ) -> Part:
        part: Part = {
            "type": f"tool-{chunk.tool_name}",
            "toolCallId": chunk.tool_call_id,
            "toolName": chunk.tool_name,
            "state": state,
        }
        if chunk.provider_executed:
            part["providerExecuted"] = True
        if chunk.provider_metadata:
            part["callProviderMetadata"] = chunk.provider_metadata
        if chunk.tool_metadata:
            part["toolMetadata"] = chunk.tool_metadata
        if chunk.title:
            part["title"] = chunk.title
        self.parts.append(part)
        self._calls[chunk.tool_call_id] = part
        return part

    def _input_available(self, chunk: ui.ToolInputAvailable) -> None:
        part = self._calls.get(chunk.tool_call_id)
        if part is None:
            part = self._push_call(chunk, "input-available")
        elif part["state"] != "input-streaming":
            return
        part["state"] = "input-available"
        part["input"] = normalize_input(chunk.input)
        if chunk.provider_executed:
            part["providerExecuted"] = True
        if chunk.provider_metadata:
            part["callProviderMetadata"] = chunk.provider_metadata
        if chunk.title:
            part["title"] = chunk.title

    def _input_error(self, chunk: ui.ToolInputError) -> None:
        part = self._calls.get(chunk.tool_call_id)
        if part is None:
            part = self._push_call(chunk, "output-error")
        elif is_settled(part):
            return
        part["state"] = "output-error"
        part["input"] = normalize_input(chunk.input)
        part["errorText"] = chunk.error_text
        part.pop("output", None)
        part.pop("preliminary", None)

    def _approval_request(self, chunk: ui.ToolApprovalRequest) -> Action:
        part = self._calls.get(chunk.tool_call_id)
        approval: dict[str, Any] = {"id": chunk.approval_id}
        if chunk.approval_descriptor:
            approval["descriptor"] = chunk.approval_descriptor
        if part is None:
            return CrossMessage(chunk.tool_call_id, approval=approval) if chunk.approval_descriptor else None
        if not is_settled(part) and part["state"] != "approval-responded":
            part["state"], part["approval"] = "approval-requested", approval
        return None

    def _output_denied(self, chunk: ui.ToolOutputDenied) -> Action:
        part = self._calls.get(chunk.tool_call_id)
        if part is None:
            return CrossMessage(chunk.tool_call_id, is_denied=True)
        if not is_settled(part) and part["state"] != "approval-responded":
            part["state"] = "output-denied"
            part.pop("output", None)
            part.pop("preliminary", None)
        return None

    def _output_available(self, chunk: ui.ToolOutputAvailable) -> Action:
        part = self._calls.get(chunk.tool_call_id)
        if part is None:
            return CrossMessage(chunk.tool_call_id, chunk.output, preliminary=bool(chunk.preliminary))
        part["state"] = "output-available"
        part["output"] = chunk.output
        part.pop("errorText", None)
        if chunk.preliminary:
            part["preliminary"] = True
        else:
            part.pop("preliminary", None)
        if chunk.provider_metadata:
            part["resultProviderMetadata"] = chunk.provider_metadata
        return None

    def _output_error(self, chunk: ui.ToolOutputError) -> Action:
        part = self._calls.get(chunk.tool_call_id)
        if part is None:
            return CrossMessage(chunk.tool_call_id, error_text=chunk.error_text, is_error=True)
        part["state"] = "output-error"
        part["errorText"] = chunk.error_text
        part.pop("output", None)
        part.pop("preliminary", None)
        return None

    # --- the rest

    def _step(self, chunk: ui.StartStep) -> None:
        self.parts.append({"type": "step-start"})

    def _nothing(self, chunk: ui.Chunk) -> None:
        return None

    def _push(self, chunk: ui.File | ui.SourceUrl | ui.SourceDocument) -> None:
        part: Part = {"type": chunk.type}
        match chunk:
            case ui.File():
                part |= {"url": chunk.url, "mediaType": chunk.media_type}
            case ui.SourceUrl():
                part |= {"sourceId": chunk.source_id, "url": chunk.url}
            case ui.SourceDocument():
                part |= {"sourceId": chunk.source_id, "mediaType": chunk.media_type, "title": chunk.title}
                if chunk.filename:
                    part["filename"] = chunk.filename
        if isinstance(chunk, ui.SourceUrl) and chunk.title:
            part["title"] = chunk.title
        if chunk.provider_metadata:
            part["providerMetadata"] = chunk.provider_metadata
        self.parts.append(part)

    def _data(self, chunk: ui.Data) -> None:
        if chunk.transient:
            return
        part: Part = {"type": chunk.type, "data": chunk.data}
        if chunk.id is not None:
            if self._named is None:
                self._named = _named(self.parts)
            known = self._named.get((chunk.type, chunk.id))
            if known is not None:
                known["data"] = chunk.data
                return
            part["id"] = chunk.id
            self._named[chunk.type, chunk.id] = part
        self.parts.append(part)

    def _start(self, chunk: ui.Start) -> None:
        if chunk.message_id is not None and not self.continuation:
            self.id = chunk.message_id
        self._describe(chunk.message_metadata)

    def _finish(self, chunk: ui.Finish | ui.MessageMetadata) -> None:
        self._describe(chunk.message_metadata)

    def _describe(self, metadata: dict[str, Any] | None) -> None:
        if metadata:
            self.metadata = {**(self.metadata or {}), **metadata}

    def _error(self, chunk: ui.Error) -> Action:
        return StreamError(chunk.error_text if chunk.error_text is not None else ui.encode(chunk))

    def _other(self, chunk: ui.Other) -> Action:
        if chunk.type == "step-start":
            self.parts.append({"type": "step-start"})
            return None
        return Unhandled()

    _handlers: ClassVar[dict[type, Callable[..., Action]]] = {
        ui.TextStart: _begin,
        ui.TextDelta: _grow,
        ui.TextEnd: _end,
        ui.ReasoningStart: _begin,
        ui.ReasoningDelta: _grow,
        ui.ReasoningEnd: _end,
        ui.ToolInputStart: _input_start,
        ui.ToolInputDelta: _nothing,
        ui.ToolInputAvailable: _input_available,
        ui.ToolInputError: _input_error,
        ui.ToolApprovalRequest: _approval_request,
        ui.ToolOutputAvailable: _output_available,
        ui.ToolOutputError: _output_error,
        ui.ToolOutputDenied: _output_denied,
        ui.StartStep: _step,
        ui.FinishStep: _nothing,
        ui.File: _push,
        ui.SourceUrl: _push,
        ui.SourceDocument: _push,
        ui.Data: _data,
        ui.Start: _start,
        ui.Finish: _finish,
        ui.MessageMetadata: _finish,
        ui.Error: _error,
        ui.Other: _other,
    }


def _named(parts: Iterable[Part]) -> dict[tuple[str, str], Part]:
    """The parts that have an id, the first of each."""
    found: dict[tuple[str, str], Part] = {}
    for part in parts:
        id = part.get("id")
        if isinstance(id, str):
            found.setdefault((part["type"], id), part)
    return found


def _merge_metadata(part: Part, metadata: dict[str, Any]) -> None:
    part["providerMetadata"] = {**part.get("providerMetadata", {}), **metadata}


def fold(chunks: Iterable[ui.Chunk], start: Accumulator | None = None, *, id: str = "") -> Accumulator:
    """Fold `chunks` onto `start` (left as it was) or onto an empty message."""
    accumulator = start.copy() if start else Accumulator(id)
    for chunk in chunks:
        accumulator.apply(chunk)
    return accumulator


def is_replay(chunk: ui.Chunk, accumulator: Accumulator) -> bool:
    """True when a provider repeats what the message already holds; readers should not see it again."""
    match chunk:
        case ui.ToolInputStart():
            return accumulator.call(chunk.tool_call_id) is not None
        case ui.ToolInputDelta() | ui.ToolInputAvailable():
            part = accumulator.call(chunk.tool_call_id)
            return part is not None and part["state"] != "input-streaming"
        case ui.ToolOutputDenied() | ui.ToolApprovalRequest():
            part = accumulator.call(chunk.tool_call_id)
            return part is not None and (is_settled(part) or part["state"] == "approval-responded")
        case _:
            return False


def merge(messages: Sequence[Message], message: Message, *, continuation: bool = False) -> list[Message]:
    """`messages` with `message` in its place: replaced by id, else appended.

    A continuation without a message of its id goes on with the last assistant message, whose
    parts and metadata are kept in front.
    """
    merged = list(messages)
    for index, known in enumerate(merged):
        if known.id == message.id:
            merged[index] = message
            return merged
    if continuation:
        for index in range(len(merged) - 1, -1, -1):
            known = merged[index]
            if known.role == "assistant":
                metadata = {**(known.metadata or {}), **(message.metadata or {})} or None
                merged[index] = Message(known.id, "assistant", [*known.parts, *message.parts], metadata)
                return merged
    merged.append(message)
    return merged
