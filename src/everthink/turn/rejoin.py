"""Where a cut-off answer goes on: the model's new words joined to those that readers have.

    model events --rejoin--> the same events, without what is there already

A model that continues its own text needs no help; one that is asked to go on tends to begin a
few words early, or from the start. What it says twice is taken out before anybody sees it, so a
reader's text never rewinds and never repeats itself. Pure: text in, text out.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import msgspec

from ..messages import Part, tool_name
from ..models import port as model

__all__ = ["CUT", "Seam", "made_again", "rejoin"]

CUT = "\0cut"
"""The id of the block that was cut off, among the model's events."""

LOOKS_BACK = 4000
"""An overlap is looked for in so many characters before the cut, besides at the very start."""
SURE = 12
"""An overlap of so many characters is no coincidence."""

_WORD = re.compile(r"\w{2}")


class Seam:
    """Takes the new text piece by piece; gives what follows `said`, without what repeats it."""

    def __init__(self, said: str, *, trims: bool = True) -> None:
        self._said, self._held, self._open = said, "", True
        # Where in `said` the new text may have begun again.
        self._starts: list[int] | None = None
        # A model that goes on by itself may still repeat the white space we had to take off its end.
        self._only_space = not trims

    def take(self, text: str) -> str:
        """The part of `text` (and of what was held back) that can be shown now."""
        if not self._open or not text:
            return text
        self._held += text
        if self._only_space:
            return self._join(self._spaces()) if self._held.strip() else ""
        self._narrow()
        still_open = any(start + len(self._held) < len(self._said) for start in self._starts or ())
        return "" if still_open else self._join(self._overlap())

    def close(self) -> str:
        """The model is done: what was held back, without the overlap."""
        if not self._open:
            return ""
        return self._join(self._spaces() if self._only_space else self._overlap())

    def _join(self, overlap: int) -> str:
        self._open = False
        rest, self._held = self._held[overlap:], ""
        return rest

    def _narrow(self) -> None:
        """Keep the places where `said` goes on as the new text does, as far as both reach."""
        said, held = self._said, self._held
        if self._starts is None:
            if not held:
                return
            first = max(0, len(said) - LOOKS_BACK)
            self._starts = [i for i in range(first, len(said)) if said[i] == held[0]]
            if first and said[0] == held[0]:
                self._starts.insert(0, 0)
        self._starts = [i for i in self._starts if _agree(said, i, held)]

    def _overlap(self) -> int:
        """How much of the held text repeats the end of what was said."""
        for start in self._starts or ():
            length = len(self._said) - start
            if length <= len(self._held) and self._counts(start):
                return length
        return 0

    def _counts(self, start: int) -> bool:
        """True when a repetition from `start` is no coincidence: all of it, a long one, or whole words."""
        tail = self._said[start:]
        if start == 0 or len(tail) >= SURE:
            return True
        begins_word = not (self._said[start - 1].isalnum() and tail[0].isalnum())
        return begins_word and _WORD.search(tail) is not None

    def _spaces(self) -> int:
        ended = self._said[len(self._said.rstrip()) :]
        length = 0
        while length < min(len(ended), len(self._held)) and self._held[length] == ended[length]:
            length += 1
        return length


def _agree(said: str, start: int, held: str) -> bool:
    return said.startswith(held, start) if start + len(held) <= len(said) else held.startswith(said[start:])


async def rejoin(
    events: AsyncIterator[model.ModelEvent],
    said: str,
    *,
    is_open: bool,
    trims: bool,
    heard: Callable[[], object],
) -> AsyncGenerator[model.ModelEvent, None]:
    """The model's events after a cut: its first block of text goes on with the block that was cut off.

    `is_open`: that block may still grow, under the id `CUT`. Thinking about how to go on is left out
    (`heard` is told that something came). `trims` is False for a model that continues by itself.
    """
    seam = Seam(said, trims=trims)
    block: str | None = None
    started: model.TextStart | None = None
    is_joined = False
    async for event in events:
        if is_joined:
            yield event
            continue
        match event:
            case model.ReasoningStart() | model.ReasoningDelta() | model.ReasoningEnd():
                heard()
            case model.TextStart(id):
                block, started = id, event
            case model.TextDelta(id, text):
                block = id
                if rest := seam.take(text):
                    if not is_open and started is not None:
                        yield started
                    started = None
                    yield model.TextDelta(CUT if is_open else id, rest)
                else:
                    heard()
            case model.TextEnd(id, metadata) if id == block:
                rest = seam.close()
                if rest and not is_open and started is not None:
                    yield started
                    started = None
                if rest:
                    yield model.TextDelta(CUT if is_open else id, rest)
                if is_open or started is None:
                    yield model.TextEnd(CUT if is_open else id, metadata)
                is_joined = True
            case model.ToolInputStart() | model.ToolCallReady() | model.Finish() | model.Failed():
                if rest := seam.close():
                    if not is_open and started is not None:
                        yield started
                    yield model.TextDelta(CUT if is_open or block is None else block, rest)
                is_joined = True
                if is_open and not isinstance(event, model.Failed):
                    yield model.TextEnd(CUT)
                yield event
            case _:
                yield event


async def made_again(
    events: AsyncIterator[model.ModelEvent], half_made: list[Part], *, heard: Callable[[], object]
) -> AsyncGenerator[model.ModelEvent, None]:
    """The model's events, where a call that it makes again takes the place of the one it had half made.

    Readers see that one completed. What is not made again stays in `half_made`.
    """
    aliases: dict[str, str] = {}
    async for event in events:
        if isinstance(event, model.ToolInputStart | model.ToolCallReady) and event.id not in aliases:
            part = next((p for p in half_made if tool_name(p) == event.name), None)
            if part is not None:
                half_made.remove(part)
                aliases[event.id] = part["toolCallId"]
        match event:
            case model.ToolInputStart(id) | model.ToolInputDelta(id) if id in aliases:
                heard()
            case model.ToolCallReady(id) if id in aliases:
                yield msgspec.structs.replace(event, id=aliases[id])
            case _:
                yield event
