"""What a child says in one run, in order and each piece once, and how the run ends.

    child's feed --ChunksStored--> Following --sequence, body--> the parent's feed --> windows

It listens before anything is accepted or read, so nothing falls between what was stored and what comes live.
A run is the turn that the parent asked for, and those with which the child goes on after a person's answer,
until somebody says something else to it.
Piece `k` of it has the number `k + 1`, told live or read again from the child's journal. A turn that begins
anew counts on: no two pieces of a run have one number, though those from before are not kept.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from .. import chunks as ui
from ..clock import Clock
from ..errors import TurnInterrupted
from ..journal import turn_rows
from ..journal.feed import AgentLeft, ChunksStored, FeedEvent, RunProgressed, TurnStarted
from ..journal.read import extent_of, has_open_answer, numbered
from ..journal.segments import readable
from ..journal.turn import Turn
from ..journal.turn_rows import TurnRow
from ..store.port import AgentStore
from .parts import Child
from .values import InterruptedReason

__all__ = ["Following", "Windows", "first_of", "last_of", "pieces_of", "turns_of"]


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a child is waited for that a restart has cut off. Infinite: for ever."""

    no_progress: float
    """Seconds without a word."""
    in_all: float
    """Seconds from when it was joined, whatever it says."""
    since: float
    """When it was, by the clock."""

    @property
    def until(self) -> float:
        """When it is waited for no longer."""
        return self.since + self.in_all


class Following:
    """Follows one run. `tell(sequence, body)` is called for each piece, `note` for progress."""

    def __init__(
        self,
        child: Child,
        run_id: str,
        tell: Callable[[int, str], object],
        note: Callable[[RunProgressed], object],
    ) -> None:
        self.child, self.run_id, self._tell, self._note = child, run_id, tell, note
        self.is_catching_up = False
        """True while it tells what was said before it came."""
        self.last = 0
        """The number of the last piece that was told."""
        self.is_left = child.feed.is_over
        """True once the child has left memory: it is followed no longer."""
        self.is_stopped = False
        """True when the child was told to stop: nobody waits for a person's answer then."""
        self._is_answered = False
        # The number before the first piece of each turn.
        self._before: dict[str, int] = {}
        # Live pieces that wait until what was stored before them is told: turn, first number in it, bodies.
        self._parked: list[tuple[str, int, Sequence[str]]] | None = None
        self._moved, self._heard = asyncio.Event(), asyncio.Event()
        # True while somebody measures how long the child is silent: nobody else is woken by a piece.
        self._is_timed = False
        # The number of the turn that was asked for, once it is known.
        self._seq: int | None = None
        self._overtaken = asyncio.Event()
        self._leave = child.feed.join(self._see)

    def close(self) -> None:
        """Follow no longer. The child notices nothing."""
        self._leave()

    def stop(self) -> None:
        """The child is told to stop."""
        self.is_stopped = True
        self._moved.set()

    # --- what it says

    def _see(self, event: FeedEvent) -> None:
        self._heard.set()
        match event:
            case TurnStarted(turn=turn) if self._is_anothers(turn):
                self._overtaken.set()
            case TurnStarted(turn=turn) if self._is_ours(turn):
                self._note_life()  # somebody has answered it: from now on it may be silent again
            case ChunksStored(turn=turn) if self._is_ours(turn):
                said = (turn.id, turn.rewound + event.first_seq, event.bodies)
                if self._parked is None:
                    self._take(*said)
                else:
                    self._parked.append(said)
                self._note_life()
            case RunProgressed(run_id) if run_id == self.run_id:
                self._note(event)
                self._note_life()
            case AgentLeft():
                self.is_left = True
                self._moved.set()
            case _:
                pass

    def _note_life(self) -> None:
        if self._is_timed:
            self._moved.set()

    def _is_ours(self, turn: Turn) -> bool:
        if turn.id == self.run_id:
            self._seq = turn.seq
            return True
        return self._seq is not None and turn.continuation and not self._overtaken.is_set()

    def _is_anothers(self, turn: Turn) -> bool:
        is_later = self._seq is not None and turn.seq > self._seq
        return is_later and not turn.continuation and turn.id != self.run_id

    def _take(self, turn: str, first: int, bodies: Sequence[str]) -> None:
        before = self._before.setdefault(turn, self.last) + first
        for number, body in enumerate(bodies, before + 1):
            if number > self.last:
                self.last = number
                self._tell(number, body)
        self.last = max(self.last, before)

    async def catch_up(self) -> None:
        """Tell what was said before we came, then what came meanwhile."""
        self._parked, self.is_catching_up = [], True
        try:
            rows, is_overtaken = await _turns_of(self.child.store, self.run_id)
            if is_overtaken:
                self._overtaken.set()
            for row in rows:
                if row.id == self.run_id:
                    self._seq = row.seq
                self._take(row.id, *await pieces_of(self.child.store, row.id))
        finally:
            parked, self._parked, self.is_catching_up = self._parked, None, False
            for said in parked:
                self._take(*said)

    # --- how it ends

    async def to_the_end(self, clock: Clock, windows: Windows | None = None) -> InterruptedReason | None:
        """Return once the child is at rest (`None`), or why it is not waited for any longer.

        Look at `is_left` afterwards: a child that left memory has not ended.
        """
        ending = asyncio.ensure_future(self._at_rest())
        self._is_timed = windows is not None
        try:
            while not (ending.done() or self.is_left or self._waits_in_vain()):
                self._moved.clear()
                left, why = self._left(clock, windows)
                moved = asyncio.ensure_future(self._moved.wait())
                try:
                    is_heard = await first_of(clock, left, ending, moved)
                finally:
                    moved.cancel()
                if not is_heard and self._is_cut_off():
                    return why
            if ending.done():
                ending.result()
            return None
        finally:
            ending.cancel()

    def _left(self, clock: Clock, windows: Windows | None) -> tuple[float, InterruptedReason]:
        """Seconds for which it may say nothing, and why it is not waited for after them."""
        if windows is None or not self._is_cut_off():
            return math.inf, "no-progress"
        in_all = windows.until - clock.monotonic()
        if in_all <= windows.no_progress:
            return in_all, "window-exceeded"
        return windows.no_progress, "no-progress"

    def _is_cut_off(self) -> bool:
        """True while the child works at what a restart has cut off. Waiting for a person is no work, and what
        follows their answer was cut off by nothing."""
        return self.child.has_found_turns() and not self.child.waits_for_person()

    async def is_over(self) -> bool:
        """True when the child has come to its end, and goes on with nothing."""
        turn = await turn_rows.one(self.child.store, self.run_id)
        if turn is not None and (turn.ended_at is None or self.child.is_to_go_on()):
            return False
        return not await self._has_unheard_answer()

    async def _at_rest(self) -> None:
        child = self.child
        try:
            await child.submissions.wait(self.run_id)
        except TurnInterrupted:
            await asyncio.Event().wait()  # `is_left` says the same, to whoever waits for this
        self._is_answered = True
        self._moved.set()  # it may have been stopped before
        # It may have asked a person something: then it goes on when they have answered, and that was heard.
        while not (self._waits_in_vain() or self._overtaken.is_set()):
            self._heard.clear()
            if child.is_to_go_on():
                await _either(child.until_stable(None), self._overtaken.wait())
            elif await self._has_unheard_answer():
                await self._heard.wait()
            else:
                return

    async def _has_unheard_answer(self) -> bool:
        """True when somebody answers, or has, and the model is not told of it yet."""
        rows, is_overtaken = await _turns_of(self.child.store, self.run_id)
        last = rows[-1] if rows and not is_overtaken else None
        if last is None or last.status != "completed" or last.ended_at is None:
            return False
        return await has_open_answer(self.child.store, last.id, ended_at=last.ended_at)

    def _waits_in_vain(self) -> bool:
        """True when it was stopped while it waited for a person."""
        return self.is_stopped and self._is_answered and self.child.answers.is_waiting_for_person()


async def turns_of(store: AgentStore, run_id: str) -> list[TurnRow]:
    """The turns of a child that are a run: the one that was asked for, and its continuations, up to where
    somebody says something else."""
    return (await _turns_of(store, run_id))[0]


async def _turns_of(store: AgentStore, run_id: str) -> tuple[list[TurnRow], bool]:
    """The same, and whether somebody has said something else."""
    rows = await turn_rows.all_turns(store)
    first = next((row for row in rows if row.id == run_id), None)
    if first is None:
        return [], False
    later = [row for row in rows if row.seq > first.seq and row.started_at is not None]
    own = list(takewhile(lambda row: row.continuation, later))
    return [first, *own], len(own) < len(later)


async def first_of(clock: Clock, seconds: float, *waits: asyncio.Future[Any]) -> bool:
    """True once one of these is done; False when none is within so many seconds. Infinite: for ever."""
    if seconds <= 0:
        return any(wait.done() for wait in waits)
    limits = [] if math.isinf(seconds) else [asyncio.ensure_future(clock.sleep(seconds))]
    try:
        await asyncio.wait([*waits, *limits], return_when=asyncio.FIRST_COMPLETED)
        return any(wait.done() for wait in waits)
    finally:
        for limit in limits:
            limit.cancel()


async def _either(*waits: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def last_of(store: AgentStore, run_id: str) -> int:
    """The number of the last piece of a run, without reading what was said; 0: there is none."""
    extents = [await extent_of(store, row.id) for row in await turns_of(store, run_id)]
    return sum(extent.before + extent.chunks for extent in extents)


async def pieces_of(store: AgentStore, turn: str) -> tuple[int, list[str]]:
    """What is kept of a turn, each piece as JSON text, and how many there were before those."""
    said = await numbered(store, turn)
    return said.before, [ui.encode(chunk) for chunk in readable(said.texts)]
