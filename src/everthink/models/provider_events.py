"""Turn pydantic-ai's stream of parts into our model events.

    provider_model --PartStart, PartDelta, PartEnd--> Translation --ModelEvent--> turn/loop

What a provider wants back with a part travels as metadata under the provider's name:
`signature` or `redactedData` of a thought, `itemId`, and `details` (everything else);
`provider_request` reads it again. Nothing is said twice: a block that was started ends once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from pydantic_ai import messages as ai
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_jsonable_python

from .port import (
    Finish,
    FinishReason,
    GeneratedFile,
    ModelEvent,
    ProviderMetadata,
    ProviderToolResult,
    Raw,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Source,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCallReady,
    ToolInputDelta,
    ToolInputStart,
    Usage,
)

__all__ = ["Translation", "usage_of"]

_REASONS: dict[str | None, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content-filter",
    "tool_call": "tool-calls",
    "error": "error",
}


class Translation:
    """The events of one answer. `ids` names the text block of each part index, for the fast path."""

    def __init__(self, output_tool: str | None = None) -> None:
        self.ids: dict[int, str] = {}
        self._output_tool = output_tool
        self._open: dict[int, ai.ModelResponsePart] = {}
        self._unsigned: dict[int, ai.ThinkingPart] = {}
        self._unfinished: dict[int, ai.BaseToolCallPart[Any]] = {}
        self._cited: set[tuple[str | None, str | None]] = set()
        self._first = 0
        self._has_calls = False

    def translate(self, event: ai.ModelResponseStreamEvent) -> Iterator[ModelEvent]:
        """Our events for one of theirs."""
        if isinstance(event, ai.PartDeltaEvent):
            yield from self._delta(event.index, event.delta)
        elif isinstance(event, ai.PartStartEvent):
            yield from self._start(event.index, event.part)
        elif isinstance(event, ai.PartEndEvent):
            yield from self._end(event.index, event.part, event.next_part_kind)

    def end_stream(self) -> Iterator[ModelEvent]:
        """What was still held back. An answer that goes on in a second stream numbers its parts anew."""
        yield from self._sign()
        for call in self._unfinished.values():
            yield _ready(call)
        self._unfinished.clear()
        self._open.clear()
        self.ids.clear()
        self._first += 1000

    def finish(self, stream: StreamedResponse, usage: Usage) -> Finish:
        """The last event."""
        details = dict(stream.provider_details or {})
        raw = details.pop("finish_reason", None)
        details.pop("timestamp", None)
        reason = _REASONS.get(stream.finish_reason, "other")
        if self._has_calls and reason == "stop":
            reason = "tool-calls"  # some providers call both "stop"
        elif self._output_tool and reason == "tool-calls" and not self._has_calls:
            reason = "stop"
        if stream.provider_name == "anthropic":
            details |= _cached(usage)
        return Finish(
            reason,
            usage,
            raw_reason=None if raw is None else str(raw),
            response_id=stream.provider_response_id,
            model_id=stream.model_name,
            provider_metadata={stream.provider_name: to_jsonable_python(details, fallback=str)}
            if details and stream.provider_name
            else None,
        )

    def _start(self, index: int, part: ai.ModelResponsePart) -> Iterator[ModelEvent]:
        if not isinstance(part, ai.ThinkingPart):
            yield from self._sign()
        again = index in self._open
        self._open[index] = part
        match part:
            case ai.TextPart():
                id = self.ids[index] = self._id("text", index)
                yield TextStart(id, _metadata(part))
                if part.content:
                    yield TextDelta(id, part.content)
                yield from self._sources(part.citations)
            case ai.ThinkingPart():
                id = self._id("reasoning", index)
                yield ReasoningStart(id, _metadata(part) if _is_redacted(part) else None)
                if part.content:
                    yield ReasoningDelta(id, part.content)
            case ai.ToolCallPart() | ai.NativeToolCallPart():
                if not again:
                    yield from self._start_call(index, part)
            case ai.NativeToolReturnPart():
                yield ProviderToolResult(
                    part.tool_call_id,
                    part.tool_name,
                    to_jsonable_python(part.content, fallback=str),
                    is_error=part.outcome != "success",
                    provider_metadata=_metadata(part),
                )
            case ai.FilePart():
                yield GeneratedFile(part.content.data_uri, part.content.media_type, _metadata(part))
            case _:
                yield Raw(part)

    def _start_call(self, index: int, part: ai.BaseToolCallPart[Any]) -> Iterator[ModelEvent]:
        written = _json(part.args)
        if part.tool_name == self._output_tool:
            self.ids[index] = self._id("text", index)
            yield TextStart(self.ids[index])
            if written:
                yield TextDelta(self.ids[index], written)
            return
        executed = isinstance(part, ai.NativeToolCallPart)
        self._has_calls = self._has_calls or not executed
        yield ToolInputStart(part.tool_call_id, part.tool_name, executed, _metadata(part))
        if written:
            yield ToolInputDelta(part.tool_call_id, written)

    def _delta(self, index: int, delta: ai.ModelResponsePartDelta) -> Iterator[ModelEvent]:
        if isinstance(delta, ai.TextPartDelta):
            if delta.content_delta:
                yield TextDelta(self.ids[index], delta.content_delta)
            yield from self._sources(delta.citations_delta)
        elif isinstance(delta, ai.ToolCallPartDelta):
            if not (written := _json(delta.args_delta)):
                return
            if index in self.ids:
                yield TextDelta(self.ids[index], written)
            elif isinstance(call := self._open.get(index), ai.BaseToolCallPart):
                yield ToolInputDelta(call.tool_call_id, written)
            if index in self._unfinished:
                self._unfinished[index] = delta.apply(self._unfinished[index])  # type: ignore[arg-type, assignment]
        elif isinstance(delta, ai.ThinkingPartDelta):
            if delta.content_delta:
                yield ReasoningDelta(self._id("reasoning", index), delta.content_delta)
            if index in self._unsigned:
                self._unsigned[index] = delta.apply(self._unsigned[index])
        else:
            yield Raw(delta)

    def _end(self, index: int, part: ai.ModelResponsePart, following: str | None) -> Iterator[ModelEvent]:
        self._open.pop(index, None)
        match part:
            case ai.TextPart():
                yield TextEnd(self.ids[index], _metadata(part))
            case ai.ThinkingPart():
                if following == "thinking" and part.signature is None:
                    self._unsigned[index] = part  # its signature may follow the parts after it
                else:
                    yield ReasoningEnd(self._id("reasoning", index), _metadata(part))
            case ai.ToolCallPart() | ai.NativeToolCallPart():
                if index in self.ids:
                    yield TextEnd(self.ids[index])
                elif _is_whole(part.args):
                    yield _ready(part)
                else:
                    self._open[index] = self._unfinished[index] = part  # calls may be written interleaved
            case _:
                pass

    def _sign(self) -> Iterator[ModelEvent]:
        for index, part in self._unsigned.items():
            yield ReasoningEnd(self._id("reasoning", index), _metadata(part))
        self._unsigned.clear()

    def _sources(self, citations: list[ai.Citation] | None) -> Iterator[ModelEvent]:
        for citation in citations or ():
            for source in citation.sources:
                url = source.url if isinstance(source, ai.WebCitationSource) else None
                if (url, source.title) in self._cited:
                    continue
                self._cited.add((url, source.title))
                id = f"source_{len(self._cited)}"
                if url is not None:
                    yield Source(id, url, source.title)
                else:
                    yield Source(id, None, source.title or "document", "text/plain", source.title)

    def _id(self, kind: str, index: int) -> str:
        return f"{kind}_{self._first + index}"


def _cached(usage: Usage) -> dict[str, int]:
    """What was read from and written to the cache of prompts, under the names of the AI SDK."""
    found = {
        "cacheReadInputTokens": usage.cached_input_tokens,
        "cacheCreationInputTokens": usage.cache_write_tokens,
    }
    return {name: tokens for name, tokens in found.items() if tokens is not None}


def _ready(part: ai.BaseToolCallPart[Any]) -> ToolCallReady:
    executed = isinstance(part, ai.NativeToolCallPart)
    return ToolCallReady(part.tool_call_id, part.tool_name, _json(part.args), executed, _metadata(part))


def _metadata(part: Any) -> ProviderMetadata | None:
    """What the provider wants back with this part, under its name."""
    provider = part.provider_name
    if provider is None:
        return None
    if isinstance(part, ai.ThinkingPart) and _is_redacted(part):
        return {provider: {"redactedData": part.signature}}
    data: dict[str, Any] = {}
    if item := getattr(part, "id", None):
        data["itemId"] = item
    if signature := getattr(part, "signature", None):
        data["signature"] = signature
    if part.provider_details:
        data["details"] = to_jsonable_python(part.provider_details, fallback=str)
    return {provider: data} if data or not isinstance(part, ai.TextPart | ai.ThinkingPart) else None


def _is_redacted(part: ai.ThinkingPart) -> bool:
    return part.id in ("redacted_thinking", "redacted_content")


def _json(args: str | dict[str, Any] | None) -> str:
    if not args:
        return ""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


def _is_whole(args: Any) -> bool:
    if not isinstance(args, str) or not args:
        return True
    try:
        msgspec.json.decode(args)
    except msgspec.DecodeError:
        return False
    return True


def usage_of(usage: RequestUsage, so_far: Usage | None = None) -> Usage:
    """Token counts, added to those of an earlier segment. What was not reported stays unknown."""
    if usage.unmeasured_requests or not (usage.input_tokens or usage.output_tokens):
        return so_far or Usage()
    now = Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens + usage.output_tokens,
        usage.output_reasoning_tokens or None,
        usage.cache_read_tokens or None,
        usage.cache_write_tokens or None,
    )
    if so_far is None:
        return now
    pairs = zip(msgspec.structs.astuple(so_far), msgspec.structs.astuple(now), strict=True)
    return Usage(*(a if b is None else b if a is None else a + b for a, b in pairs))
