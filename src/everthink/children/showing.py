"""Runs for windows: what is told live, and to whoever comes late, each piece once and in order.

    RunTold --> RunViews --agent-tool-event--> connections

A window that connects is told of the latest runs from the journal. What happens meanwhile waits until it has
been; what it knows already is not told again. Pieces are known by their number, ends by what they say: a run
that was interrupted may go on, and its next piece has the number that its end had.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..journal.feed import RunTold
from ..messages import decode_json
from ..store.port import AgentStore
from ..wire.frames import AgentToolEvent, ServerFrame
from .replaying import replayed

__all__ = ["RunViews"]

R = TypeVar("R")
"""A connected client."""


@dataclass(slots=True)
class _Known:
    """What a window knows of a run."""

    is_started: bool = False
    last: int = 0
    """The number of the last piece."""
    end: dict[str, Any] | None = None
    passing: dict[str, Any] | None = None
    """How far it was last."""


class RunViews(Generic[R]):
    """What the windows of one agent know of its runs. `send` gives frames that belong together to some."""

    def __init__(self, send: Callable[[Sequence[R], Sequence[ServerFrame]], None]) -> None:
        self._send = send
        # What each window was told, by run.
        self._known: weakref.WeakKeyDictionary[R, dict[str, _Known]] = weakref.WeakKeyDictionary()
        # Those who are just being told of the latest runs, and what happens meanwhile.
        self._parked: dict[R, list[RunTold]] = {}

    def tell(self, told: RunTold, readers: Iterable[R]) -> None:
        """Something happened in a run."""
        now: list[R] = []
        for reader in readers:
            if (parked := self._parked.get(reader)) is not None:
                parked.append(told)
            elif self._is_new(reader, told):
                now.append(reader)
        if now:
            self._send(now, [_frame(told)])

    async def greet(self, reader: R, store: AgentStore) -> None:
        """Tell a new window of the latest runs: all at once, since they may be longer than what may wait."""
        self._parked[reader] = []
        frames: list[ServerFrame] = []
        try:
            for told in await replayed(store):
                if self._is_new(reader, told):
                    frames.append(_frame(told, replay=True))
        finally:
            parked = self._parked.pop(reader)
            frames += [_frame(told) for told in parked if self._is_new(reader, told)]
            if frames:
                self._send([reader], frames)

    def _is_new(self, reader: R, told: RunTold) -> bool:
        known = self._known.setdefault(reader, {}).setdefault(told.run_id, _Known())
        if told.is_passing:  # it has no number of its own: the same twice is once
            said = decode_json(told.event["body"], dict[str, Any])
            said.pop("id", None)
            is_new, known.passing = said != known.passing, said
            return is_new
        match told.event["kind"]:
            case "started":
                is_new, known.is_started = not known.is_started, True
            case "chunk":
                is_new = told.sequence > known.last
                if is_new:
                    known.last, known.end = told.sequence, None
            case _:
                is_new, known.end = told.event != known.end, told.event
        return is_new


def _frame(told: RunTold, *, replay: bool = False) -> AgentToolEvent:
    return AgentToolEvent(told.sequence, told.event, told.call_id, replay)
