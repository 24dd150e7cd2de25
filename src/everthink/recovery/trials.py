"""Count attempts before they begin, so that what takes the process down is found out.

    begin --count, durable--> the attempt --> passed | undone        process dies --> the count stays

One per process. What was never suspected begins at once. A suspect waits until it is the only one that
is being tried, so that a crash counts against nobody else; and one that has struck out is not
tried any more. An attempt that lives for `WINDOW` seconds has not taken the process down: the next
may begin, and its own count is taken back.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..clock import Clock, Timer, moment_of, ms_of
from ..errors import StoreError
from ..store.port import AgentStore, Statement, Store
from . import suspects
from .suspects import STRIKES, Suspect

__all__ = ["WINDOW", "Trial", "Trials"]

log = logging.getLogger("everthink.recovery")

WINDOW = 10.0
"""Seconds after which an attempt that still runs counts as harmless."""
Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class Trial:
    """One attempt. `suspect` is its row while it runs, `before` the row it found."""

    suspect: Suspect
    before: Suspect | None = None
    is_aside: bool = False
    """True when it must not be tried: it has struck out."""
    is_open: bool = False
    """True while the row counts it."""
    holds_place: bool = False
    """True while the other suspects wait for it."""
    timer: Timer | None = None

    @property
    def key(self) -> Key:
        """Whose it is."""
        return self.suspect.agent, self.suspect.turn


class Trials:
    """The attempts of one process."""

    def __init__(
        self, store: Store, clock: Clock, *, store_of: Callable[[str], AgentStore] | None = None
    ) -> None:
        self._store, self._clock = store, clock
        # An agent's own way to the store, while this process may write about it.
        self._given_store_of = store_of
        # The rows that were there when we came, and what became of them since.
        self._known: dict[Key, Suspect] = {}
        # By agent, as it was when we came.
        self._ranks: dict[str, int] = {}
        self._loading: asyncio.Task[None] | None = None
        self._open: dict[Key, Trial] = {}
        self._line = _Line()
        self._writes: set[asyncio.Future[None]] = set()

    def _store_of(self, agent: str) -> AgentStore:
        return AgentStore(self._store, agent) if self._given_store_of is None else self._given_store_of(agent)

    async def load(self) -> None:
        """Learn who is suspected. Once."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.create_task(self._load(), name="suspects")
        await asyncio.shield(self._loading)

    async def _load(self) -> None:
        for row in await self._store.fetch(suspects.ALL):
            suspect = suspects.suspect_of(row)
            self._known[suspect.agent, suspect.turn] = suspect
            self._ranks[suspect.agent] = max(suspect.strikes, self._ranks.get(suspect.agent, 0))

    async def learn(self, agent: str) -> None:
        """Read again what is known of an agent that another process may have tried."""
        await self.load()
        for row in await self._store.fetch(suspects.ALL_OF_AGENT, agent=agent):
            suspect = suspects.suspect_of(row)
            if (suspect.agent, suspect.turn) not in self._open:
                self._known[suspect.agent, suspect.turn] = suspect

    def rank(self, agent: str) -> int:
        """How much speaks against an agent: those with little are started first."""
        return self._ranks.get(agent, 0)

    def running(self, agent: str, turn: str = "") -> Trial | None:
        """The attempt that is under way."""
        return self._open.get((agent, turn))

    # --- an attempt begins

    async def begin(self, agent: str, turn: str = "", *, said: int = -1, what: str) -> Trial:
        """Count an attempt; it is durable when this returns. A suspect waits for its place first."""
        trial = await self.prepare(agent, turn, said=said, what=what)
        if not trial.is_aside:
            await self.count(trial)
        return trial

    async def prepare(self, agent: str, turn: str = "", *, said: int = -1, what: str) -> Trial:
        """An attempt that is not counted yet; whoever is suspected has its place when this returns."""
        await self.load()
        key, now = (agent, turn), moment_of(self._clock.now_ms())
        running = self._open.get(key)
        if running is not None:
            await self.undo(running)  # an earlier attempt of this process, which lives
        fresh = Suspect(agent=agent, turn=turn, said=said, first_at=now, last_at=now, what=what)
        known = await self._again(key) if key in self._known else None
        if known is None:
            return Trial(fresh)
        if known.is_aside or (known.strikes >= STRIKES and said <= known.said):
            return Trial(replace(known, what=known.what or what), known, is_aside=True)
        await self._line.enter(known.strikes)
        strikes = 1 if said > known.said else known.strikes + 1
        return Trial(replace(fresh, strikes=strikes, first_at=known.first_at), known, holds_place=True)

    async def _again(self, key: Key) -> Suspect | None:
        """What the row says now: somebody may have released it."""
        rows = await self._store.fetch(suspects.ONE, key[1], agent=key[0])
        if not rows:
            self._known.pop(key, None)
            return None
        known = self._known[key] = suspects.suspect_of(rows[0])
        return known

    async def count(self, trial: Trial, *more: Statement) -> None:
        """Write down that the attempt begins, together with `more`."""
        try:
            if trial.key in self._known or trial.suspect.turn:
                await self._store_of(trial.suspect.agent).apply([suspects.counted(trial.suspect), *more])
                is_counted = True
            else:
                suspect = trial.suspect
                marked = suspects.counted_start(now=ms_of(suspect.last_at), what=suspect.what)
                rows = await self._store_of(suspect.agent).apply([marked, *more])
                is_counted = bool(rows[0])
        except asyncio.CancelledError:
            trial.is_open = True  # the commit may be under way: what it counts is taken back behind it
            self._later(trial.suspect.agent, self._taken_back(trial))
            self._close(trial)
            raise
        except BaseException:
            self._leave(trial)
            raise
        if is_counted:
            trial.is_open = True
            self._open[trial.key] = trial
            self._known[trial.key] = trial.suspect
            trial.timer = self._clock.call_later(WINDOW, lambda: self._survived(trial), housekeeping=True)

    # --- it ends

    def lives(self, trial: Trial) -> None:
        """The attempt shows that it lives: the next suspect need not wait for its end."""
        self._leave(trial)

    def passing(self, agent: str, turn: str = "") -> list[Statement]:
        """What clears it of suspicion, for the commit of its end. Follow that with `passed`."""
        return [suspects.cleared(turn)] if (agent, turn) in self._known else []

    def passed(self, agent: str, turn: str = "") -> None:
        """It ended well, and that is durable."""
        known = self._known.get((agent, turn))
        if known is not None and not known.is_aside:
            del self._known[agent, turn]
        trial = self._open.get((agent, turn))
        if trial is not None:
            self._close(trial)

    def clear(self, trial: Trial) -> None:
        """It ended well: clear it of suspicion, without waiting for that."""
        if trial.is_open:
            self._later(trial.suspect.agent, [suspects.cleared(trial.suspect.turn)])
            self.passed(*trial.key)
        self._leave(trial)

    async def undo(self, trial: Trial) -> None:
        """It was broken off, and the process lives: it does not count, neither for nor against it."""
        taken_back = self._taken_back(trial)
        self._close(trial)
        if taken_back:
            await self._written(trial.suspect.agent, taken_back)

    async def undo_all(self, agent: str | None = None) -> None:
        """The agent is stopped on purpose, or all are: what was being tried does not count."""
        trials = [one for one in self._open.values() if agent in (None, one.suspect.agent)]
        taken_back: dict[str, list[Statement]] = {}
        for one in trials:
            if statements := self._taken_back(one):
                taken_back.setdefault(one.suspect.agent, []).extend(statements)
            self._close(one)
        await asyncio.gather(*(self._written(one, commit) for one, commit in taken_back.items()))
        if self._writes:
            await asyncio.wait(set(self._writes))

    def aside(self, suspect: Suspect) -> Statement:
        """The statement that puts something aside, for the commit that says so."""
        put = replace(suspect, is_aside=True)
        self._known[suspect.agent, suspect.turn] = put
        return suspects.put_aside(put)

    def released(self, agent: str, turn: str | None = None) -> None:
        """Its row is gone: it is tried again."""
        for key in [key for key in self._known if key[0] == agent and turn in (None, key[1])]:
            del self._known[key]

    def dropping(self, agent: str) -> list[Statement]:
        """What takes turns that are set aside off the list, for the commit that clears the conversation."""
        return [suspects.dropped()] if any(key[0] == agent and key[1] for key in self._known) else []

    def forget(self, agent: str) -> None:
        """The agent is about to be erased: nothing is written about it any more."""
        for trial in [one for one in self._open.values() if one.suspect.agent == agent]:
            self._close(trial)
        self.released(agent)

    def _survived(self, trial: Trial) -> None:
        """It runs for so long that it is not what takes processes down, or not soon."""
        if not trial.is_open:
            return
        if trial.suspect.turn:
            taken_back = self._taken_back(trial)
            self._close(trial)
            self._later(trial.suspect.agent, taken_back)
        else:
            self.clear(trial)

    def _taken_back(self, trial: Trial) -> list[Statement]:
        if not trial.is_open:
            return []
        if trial.before is None:
            self._known.pop(trial.key, None)
            return [suspects.cleared(trial.suspect.turn)]
        self._known[trial.key] = trial.before
        return [suspects.counted(trial.before)]

    def _close(self, trial: Trial) -> None:
        if trial.timer is not None:
            trial.timer.cancel()
        trial.is_open = False
        if self._open.get(trial.key) is trial:
            del self._open[trial.key]
        self._leave(trial)

    def _leave(self, trial: Trial) -> None:
        if trial.holds_place:
            trial.holds_place = False
            self._line.leave()

    def _later(self, agent: str, commit: Sequence[Statement]) -> None:
        written = asyncio.ensure_future(self._written(agent, commit))
        self._writes.add(written)
        written.add_done_callback(self._writes.discard)

    async def _written(self, agent: str, commit: Sequence[Statement]) -> None:
        try:
            await self._store_of(agent).apply(commit)
        except StoreError as error:
            log.warning("an attempt that ended well stays counted, and is tried alone next time: %s", error)


class _Line:
    """Lets one through at a time; of those who wait, the one with the fewest strikes."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def enter(self, strikes: int) -> None:
        """Return when the place is ours. Follow with `leave`."""
        if not self._is_taken:
            self._is_taken = True
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (strikes, next(self._numbers), place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Let the next one through."""
        while self._waiting:
            _, _, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._is_taken = False
