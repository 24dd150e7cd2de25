"""What a child says in one run, in order and each piece once, and how the run ends.

    child's feed --ChunksStored--> Following --sequence, body--> the parent's feed --> windows

It listens before anything is accepted or read, so nothing falls between what was stored and what comes live.
A run is the turn that the parent asked for, and those with which the child goes on after a person's answer,
until somebody says something else to it.
Piece `k` of it has the number `k + 1`, told live or read again from the child's journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from .. import chunks as ui
from ..clock import Clock
from ..errors import TurnInterrupted
from ..journal import turn_rows
from ..journal.feed import AgentLeft, ChunksStored, FeedEvent, RunProgressed, TurnRewound, TurnStarted
from ..journal.read import has_open_answer, texts_of
from ..journal.segments import readable
from ..journal.turn import Turn
from ..journal.turn_rows import TurnRow
from ..store.port import AgentStore
from .parts import Child
from .values import InterruptedReason

__all__ = ["Following", "Windows", "stored_pieces", "turns_of"]


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a child is waited for that was begun by an earlier process. Seconds; infinite: for ever."""

    no_progress: float
    in_all: float


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
        self.is_left = False
        """True once the child has left memory: it is followed no longer."""
        self.is_stopped = False
        """True when the child was told to stop: nobody waits for a person's answer then."""
        self._is_answered = False
        self._offsets: dict[str, int] = {}
        self._told: dict[str, int] = {}
        # Live pieces that wait until what was stored before them is told.
        self._parked: list[ChunksStored] | None = None
        self._moved, self._heard = asyncio.Event(), asyncio.Event()
        # True while somebody measures how long the child is silent: nobody else is woken by a piece.
        self._is_timed = False
        # The number of the turn that was asked for, once it is known.
        self._seq: int | None = None
        self._is_overtaken = False
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
                self._is_overtaken = True
            case ChunksStored(turn=turn) if self._is_ours(turn):
                if self._parked is None:
                    self._take(turn.id, event.first_seq, event.bodies)
                else:
                    self._parked.append(event)
                self._note_life()
            case TurnRewound(turn) if turn.id in self._offsets:
                # It begins anew; its pieces get new numbers.
                self._offsets[turn.id], self._told[turn.id] = self.last, 0
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
        return self._seq is not None and turn.continuation and not self._is_overtaken

    def _is_anothers(self, turn: Turn) -> bool:
        is_later = self._seq is not None and turn.seq > self._seq
        return is_later and not turn.continuation and turn.id != self.run_id

    def _take(self, turn: str, first: int, bodies: Sequence[str]) -> None:
        offset = self._offsets.setdefault(turn, self.last)
        told = self._told.get(turn, 0)
        for number, body in enumerate(bodies, first):
            if number >= told:
                self.last = offset + number + 1
                self._tell(self.last, body)
        self._told[turn] = max(told, first + len(bodies))

    async def catch_up(self) -> None:
        """Tell what was said before we came, then what came meanwhile."""
        self._parked, self.is_catching_up = [], True
        try:
            rows, self._is_overtaken = await _turns_of(self.child.store, self.run_id)
            for row in rows:
                if row.id == self.run_id:
                    self._seq = row.seq
                self._take(row.id, 0, await _bodies(self.child.store, row.id))
        finally:
            parked, self._parked, self.is_catching_up = self._parked, None, False
            for event in parked:
                self._take(event.turn.id, event.first_seq, event.bodies)

    # --- how it ends

    async def to_the_end(self, clock: Clock, windows: Windows | None = None) -> InterruptedReason | None:
        """Return once the child is at rest (`None`), or why it is not waited for any longer.

        Look at `is_left` afterwards: a child that left memory has not ended.
        """
        ending = asyncio.ensure_future(self._at_rest())
        self._is_timed = windows is not None
        until = None if windows is None else clock.monotonic() + windows.in_all
        try:
            while not (ending.done() or self.is_left or self._waits_in_vain()):
                self._moved.clear()
                moved = asyncio.ensure_future(self._moved.wait())
                waits = [ending, moved]
                if windows is not None and until is not None:
                    silence = min(windows.no_progress, until - clock.monotonic())
                    if self.child.waits_for_person():
                        silence = until - clock.monotonic()  # it is no silence of the child
                    if silence != float("inf"):
                        waits.append(asyncio.ensure_future(clock.sleep(max(0.0, silence))))
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    if not (ending.done() or moved.done()) and until is not None:
                        return "window-exceeded" if clock.monotonic() >= until else "no-progress"
                finally:
                    for wait in waits[1:]:
                        wait.cancel()
            if ending.done():
                ending.result()
            return None
        finally:
            ending.cancel()

    async def _at_rest(self) -> None:
        child = self.child
        try:
            await child.submissions.wait(self.run_id)
        except TurnInterrupted:
            await asyncio.Event().wait()  # `is_left` says the same, to whoever waits for this
        self._is_answered = True
        # It may have asked a person something: then it goes on when they have answered, and that was heard.
        while not self._waits_in_vain():
            self._heard.clear()
            if child.is_to_go_on():
                await child.until_stable(None)
            elif await self._has_unheard_answer():
                await self._heard.wait()
            else:
                return

    async def _has_unheard_answer(self) -> bool:
        """True when somebody answers, or has, and the model is not told of it yet."""
        rows = await turns_of(self.child.store, self.run_id)
        last = rows[-1] if rows and not self._is_overtaken else None
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


async def stored_pieces(store: AgentStore, run_id: str) -> list[str]:
    """All that was said in a run, each piece as JSON text."""
    return [body for row in await turns_of(store, run_id) for body in await _bodies(store, row.id)]


async def _bodies(store: AgentStore, turn: str) -> list[str]:
    found: list[Any] = readable(await texts_of(store, turn))
    return [ui.encode(chunk) for chunk in found]
