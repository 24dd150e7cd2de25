"""Plays: what a scripted model answers, written the way it happens.

    says("The capital is ", "Paris.")                    each argument is one delta
    thinks("Let me see").calls("weather", city="Paris")  one answer: a thought, then a call
    says("Once upon ").then_hangs()                      the provider goes silent
    fails("Slow down.", kind="rate_limit", retry_after=2)    the call never opens
    says("Half an ans").then_fails("overloaded")         the provider breaks off

A play is a value: every method returns a new one, so plays can be kept and reused.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol, assert_never, get_args

from ..errors import ErrorKind, ModelError
from ..models.port import (
    Failed,
    FilePart,
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
from ..settings import check_call
from ..surface import check_words

__all__ = [
    "OPENING",
    "Cue",
    "Play",
    "Scene",
    "attaches",
    "calls",
    "calls_raw",
    "cites",
    "fails",
    "hangs",
    "opens",
    "overflows",
    "says",
    "thinks",
    "waits",
]

OVERFLOW = "prompt is too long: 200001 tokens > 200000 maximum"


class _Waitable(Protocol):
    def wait(self) -> Awaitable[object]: ...


Gate = _Waitable | Callable[[], Awaitable[object]]
"""What a play can wait for: an `asyncio.Event`, or a function that returns something to await."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cue:
    """Something that happens between two events: a wait, a silence, an exception."""

    gate: Gate | None = None
    opens: bool = False
    error: Callable[[], BaseException] | None = None

    async def take(self) -> None:
        """Wait for the gate, raise the error, or stay silent until cancelled."""
        if self.error is not None:
            raise self.error()
        if self.gate is None:
            await asyncio.get_running_loop().create_future()
        elif callable(self.gate):
            await self.gate()
        else:
            await self.gate.wait()


OPENING = Cue(opens=True)
"""The provider accepts the call."""

Scene = tuple[Cue | None, tuple[ModelEvent, ...]]
"""A cue to take, then events that follow each other at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Say:
    deltas: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Think:
    deltas: tuple[str, ...]
    metadata: ProviderMetadata | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    name: str
    input: str
    id: str | None
    provider_executed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Result:
    output: Any
    is_error: bool


@dataclasses.dataclass(frozen=True, slots=True)
class _Break:
    error: Callable[[], ModelError]


@dataclasses.dataclass(frozen=True, slots=True)
class _Open:
    """Nothing but the opening."""


_Beat = _Open | _Say | _Think | _Call | _Result | _Break | Cue | Source | GeneratedFile | Raw


@dataclasses.dataclass(frozen=True)
class Play:
    """One answer of a scripted model. Start with `says`, `thinks`, `calls`, `fails`…, chain the rest."""

    beats: tuple[_Beat, ...] = ()
    usage: Usage | None = None
    reason: FinishReason | None = None
    raw_reason: str | None = None

    def says(self, *deltas: str) -> Play:
        """Text; each argument is one delta. Text that follows text is the same block."""
        for delta in deltas:
            check_call("says", text=delta)
        return self._and(_Say(deltas))

    def thinks(
        self,
        *deltas: str,
        signature: str | None = None,
        redacted: str | None = None,
        provider: str = "anthropic",
    ) -> Play:
        """A block of thinking, with the signature (or the sealed text) the provider wants back."""
        data = {"signature": signature, "redactedData": redacted}
        known = {key: value for key, value in data.items() if value is not None}
        return self._and(_Think(deltas, {provider: known} if known else None))

    def calls(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,
        /,
        *,
        id: str | None = None,
        provider_executed: bool = False,
        **arguments: Any,
    ) -> Play:
        """A tool call. Give the input as keywords or as one mapping. Ids are made when left out."""
        check_call("calls", name=name, input=input)
        text = json.dumps({**(input or {}), **arguments}, ensure_ascii=False)
        return self._and(_Call(name, text, id, provider_executed))

    def calls_raw(self, name: str, input: str, *, id: str | None = None) -> Play:
        """A tool call whose input is this very text, be it broken JSON or nothing."""
        return self._and(_Call(name, input, id, False))

    def provider_result(self, output: Any, *, is_error: bool = False) -> Play:
        """The provider's own result of the call just before."""
        return self._and(_Result(output, is_error))

    def cites(
        self,
        url: str | None = None,
        *,
        title: str | None = None,
        media_type: str | None = None,
        filename: str | None = None,
    ) -> Play:
        """A citation: a web page by `url`, or a document by `media_type` and `title`."""
        return self._and(Source("", url, title, media_type, filename))

    def attaches(self, file: FilePart | GeneratedFile | str, media_type: str = "image/png") -> Play:
        """A file the model made: a file value, or a URL and its media type."""
        if not isinstance(file, str):
            file, media_type = file.url, file.media_type
        return self._and(GeneratedFile(file, media_type))

    def streams_raw(self, value: Any) -> Play:
        """Something only `on_chunk` sees."""
        return self._and(Raw(value))

    def waits(self, gate: Gate) -> Play:
        """Hold until the event is set (or the function's awaitable is done). No sleeping."""
        check_call("waits", gate=gate)
        return self._and(Cue(gate=gate))

    def then_hangs(self) -> Play:
        """Go silent until cancelled. First in a play: the call never opens."""
        return self._and(Cue())

    def then_fails(
        self,
        what: str = "The provider broke off.",
        *,
        kind: ErrorKind = "transient",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> Play:
        """End with a `Failed` event: an error the provider reports inside the stream."""
        return self._and(_Break(_error(what, kind, status, retry_after)))

    def then_overflows(self, what: str = OVERFLOW) -> Play:
        """End with a `Failed` event of kind `context_overflow`."""
        return self.then_fails(what, kind="context_overflow", status=400)

    def then_raises(self, error: BaseException | Callable[[], BaseException]) -> Play:
        """Raise out of the stream, as a broken connection or a bug would."""
        return self._and(Cue(error=error if callable(error) else lambda: error))

    def uses(
        self,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        total_tokens: int | None = None,
        *,
        reasoning_tokens: int | None = None,
        cached_input_tokens: int | None = None,
        cache_write_tokens: int | None = None,
    ) -> Play:
        """Report this usage. Without it every count is unknown."""
        if total_tokens is None and input_tokens is not None and output_tokens is not None:
            total_tokens = input_tokens + output_tokens
        usage = Usage(
            input_tokens,
            output_tokens,
            total_tokens,
            reasoning_tokens,
            cached_input_tokens,
            cache_write_tokens,
        )
        return dataclasses.replace(self, usage=usage)

    def finishes(self, reason: FinishReason, *, raw: str | None = None) -> Play:
        """Finish for this reason. Without it: `tool-calls` after a call, else `stop`."""
        check_words("finishes: reason", reason, get_args(FinishReason))
        return dataclasses.replace(self, reason=reason, raw_reason=raw)

    def then(self, more: Play) -> Play:
        """This play, then `more`, as one answer."""
        return Play(
            self.beats + more.beats,
            more.usage or self.usage,
            more.reason or self.reason,
            more.raw_reason or self.raw_reason,
        )

    def perform(self, new_id: Callable[[], str]) -> tuple[Scene, ...]:
        """One answer in order, with a fresh id for every call that has none."""
        return self._fixed or tuple(_scenes(self, new_id))

    @cached_property
    def _fixed(self) -> tuple[Scene, ...] | None:
        """The answer, when it is the same in every performance."""
        if any(isinstance(beat, _Call) and beat.id is None for beat in self.beats):
            return None
        if any(isinstance(beat, _Break) for beat in self.beats):
            return None  # an exception gathers a traceback: make a new one each time
        return tuple(_scenes(self, str))

    def _and(self, beat: _Beat) -> Play:
        return dataclasses.replace(self, beats=(*self.beats, beat))


def _scenes(play: Play, new_id: Callable[[], str]) -> Iterator[Scene]:
    cue: Cue | None = None
    events: list[ModelEvent] = []
    for event in _events(play, new_id):
        if isinstance(event, Cue):
            if events or cue:
                yield cue, tuple(events)
            cue, events = event, []
        else:
            events.append(event)
    yield cue, tuple(events)


def _events(play: Play, new_id: Callable[[], str]) -> Iterator[ModelEvent | Cue]:
    opened = False
    block: TextEnd | ReasoningEnd | None = None
    last = _Call("", "", "", False)
    reason: FinishReason = "stop"
    for number, beat in enumerate(play.beats, 1):
        if not opened and not isinstance(beat, Cue):
            opened = True
            yield OPENING
        if block and not _goes_on(block, beat):
            yield block
            block = None
        match beat:
            case _Open():
                pass
            case _Say(deltas):
                if block is None:
                    block = TextEnd(f"text_{number}")
                    yield TextStart(block.id)
                for delta in deltas:
                    yield TextDelta(block.id, delta)
            case _Think(deltas, metadata):
                block = ReasoningEnd(f"reasoning_{number}", metadata)
                yield ReasoningStart(block.id)
                for delta in deltas:
                    yield ReasoningDelta(block.id, delta)
            case _Call():
                last = dataclasses.replace(beat, id=beat.id or new_id())
                reason = reason if beat.provider_executed else "tool-calls"
                yield from _call(last)
            case _Result(output, is_error):
                yield ProviderToolResult(last.id or "", last.name, output, is_error)
            case Source():
                yield Source(f"source_{number}", beat.url, beat.title, beat.media_type, beat.filename)
            case _Break(error):
                yield Failed(error())
                return
            case Cue() | GeneratedFile() | Raw():
                yield beat
            case _:
                assert_never(beat)
    if not opened:
        yield OPENING
    if block:
        yield block
    yield Finish(play.reason or reason, play.usage or Usage(), play.raw_reason)


def _goes_on(block: TextEnd | ReasoningEnd, beat: _Beat) -> bool:
    """Whether the block stays open. Text after text is one block; a silence or a failure comes mid-block."""
    return isinstance(beat, Cue | Raw | Source | _Break) or (
        isinstance(block, TextEnd) and isinstance(beat, _Say)
    )


def _call(call: _Call) -> Iterator[ModelEvent]:
    id, name, text = call.id or "", call.name, call.input
    yield ToolInputStart(id, name, call.provider_executed)
    middle = (len(text) + 1) // 2
    for half in (text[:middle], text[middle:]):
        if half:
            yield ToolInputDelta(id, half)
    yield ToolCallReady(id, name, text, call.provider_executed)


def _error(
    what: str, kind: ErrorKind, status: int | None, retry_after: float | None
) -> Callable[[], ModelError]:
    check_words("fails: kind", kind, get_args(ErrorKind))
    if status is None and kind == "rate_limit":
        status = 429
    return lambda: ModelError(what, kind=kind, status=status, retry_after=retry_after)


def fails(
    what: str = "The provider refused.",
    *,
    kind: ErrorKind = "fatal",
    status: int | None = None,
    retry_after: float | None = None,
) -> Play:
    """The call never opens: a `ModelError` is raised before the first event."""
    return Play().then_raises(_error(what, kind, status, retry_after))


def overflows(what: str = OVERFLOW) -> Play:
    """The call never opens: the conversation is longer than the model's context."""
    return fails(what, kind="context_overflow", status=400)


def opens() -> Play:
    """The call opens and nothing has been said yet: `opens().then_hangs()`."""
    return Play((_Open(),))


_NOTHING = Play()
says = _NOTHING.says
thinks = _NOTHING.thinks
calls = _NOTHING.calls
calls_raw = _NOTHING.calls_raw
cites = _NOTHING.cites
attaches = _NOTHING.attaches
waits = _NOTHING.waits
hangs = _NOTHING.then_hangs
