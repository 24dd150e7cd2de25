"""The runs of an agent's children: one turn of a child each, asked for by the parent and kept with it.

    agent_tool, run_agent_tool --> Runs --> Beginning --Watch--> how it ended --> result

How a run ended is stored with the result of the call that asked for it. A parent that is stopped stops its
children; one that only leaves memory does not, and takes up at its next start what nobody asks for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from ..abort import AbortSignal
from ..address import Address
from ..clock import ms_of
from ..current import current_turn
from ..errors import AgentError
from ..journal import turn_rows
from ..journal.feed import Cleared, FeedEvent, TurnEnded
from ..journal.read import Below, is_asking, worked_at
from ..settings import check_call
from ..store.port import AgentStore, Statement
from ..surface import check_words
from . import queries
from .beginning import Asked, Beginning, Started
from .detached import CANCELLED_BY_PARENT, DetachedRuns
from .family import BELOW
from .parts import Parts
from .queries import RunRow
from .telling import OPEN, described, ended_of, result_of, started, stored_result, tell
from .values import CANCELLED, AgentToolResult, AgentToolRun, RunStatus
from .watching import UnknownChild, Watch, Watched, began, child_of, finished, reason_of, stop_child

__all__ = ["CLEARED", "RUNS", "Runs"]

log = logging.getLogger("everthink.children")

RUNS = "runs"
"""Under this name a parent keeps that it has runs: others look for none."""
CLEARED = "cleared"
"""It keeps this there while runs of a conversation are to go that was cleared."""


@dataclass(frozen=True, slots=True)
class EndedForCall:
    """How a run ended that a call of the model waits for, and what is stored with that call's result."""

    result: AgentToolResult
    statements: Sequence[Statement] = ()
    stored: Callable[[], object] | None = None
    """To be called once they are."""


class Runs:
    """The runs of one parent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.watched = Watched()
        """Those that somebody here waits for, or brings to their end."""
        self._beginning = Beginning(parts, self.watched)
        # One run is begun, or looked for, at a time.
        self._lock = asyncio.Lock()
        # The turns of the parent that have asked for runs, and go on.
        self._turns: set[str] = set()
        parts.feed.join(self._see)
        self.detached = DetachedRuns(parts, self._beginning)

    # --- asking for one

    async def run(self, cls: type[Any], asked: Asked, signal: AbortSignal | None = None) -> AgentToolResult:
        """Let a child answer, and wait for it unless it is detached. Failures are told in the result."""
        if asked.detached is not None and signal is not None:
            log.warning("run %s is detached: its signal stops nothing", asked.run_id)
            signal = None
        begun = await self._begun(cls, asked, signal, None if asked.detached else self._alive())
        if isinstance(begun, AgentToolResult):
            return begun
        if begun.row.detached is not None:
            return _handle(begun.row)
        with self._parts.hold():  # nobody would call the code again that waits here
            return await begun.kept(signal)

    async def run_for_call(
        self, cls: type[Any], asked: Asked, request_id: str, alive: Callable[[], object] | None = None
    ) -> EndedForCall:
        """The same for a call of the parent's model, which stores how it ended together with its own result.
        `alive` is told of each piece of the child."""
        aborts = self._parts.aborts
        signal = None if aborts is None else aborts.peek(request_id)
        begun = await self._begun(cls, asked, signal, alive)
        if isinstance(begun, AgentToolResult):
            return EndedForCall(begun)
        ended = await begun.end(signal)
        begun.close()
        statement, told = begun.ending(ended)
        return EndedForCall(result_of(begun.row, ended), [statement], told)

    def _alive(self) -> Callable[[], object] | None:
        """Says that the turn of the parent which this code is part of does not hang."""
        within, turns = current_turn(), self._parts.turns
        if within is None or turns is None or within.agent != self._parts.address.id:
            return None
        turn = turns.of(within.id)
        return None if turn is None else turn.alive

    async def _begun(
        self, cls: type[Any], asked: Asked, signal: AbortSignal | None, alive: Callable[[], object] | None
    ) -> Watch | AgentToolResult:
        """Begin a run, or join it. What is begun is seen through: a child must not run that nobody knows."""
        beginning = asyncio.ensure_future(self._begin(cls, asked, alive))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # Where the agent stops at once, nobody comes to hear that it could not begin.
            beginning.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._parts.background(self._abandoned(beginning, signal))
            raise

    async def _abandoned(
        self, beginning: asyncio.Future[Watch | AgentToolResult], signal: AbortSignal | None
    ) -> None:
        begun = await beginning
        if isinstance(begun, AgentToolResult) or begun.row.detached is not None:
            return
        if signal is not None and signal.aborted:
            await begun.stopped(reason_of(signal))
        else:
            begun.close()

    async def _begin(
        self, cls: type[Any], asked: Asked, alive: Callable[[], object] | None
    ) -> Watch | AgentToolResult:
        child: Started | None = None
        try:
            while True:
                async with self._lock:
                    row, asked = await self._beginning.known(asked)
                    if asked.turn is not None:
                        self._turns.add(asked.turn)
                    # Of a known run as well: from here on its class is known.
                    address = self._beginning.address(cls, asked)
                    if isinstance(address, AgentToolResult):
                        return address
                    if row is not None:
                        self._beginning.check_same(cls, asked, row)
                    if row is not None and (asked.detached is not None or row.detached is not None):
                        return self._known_detached(row)
                    if row is None:
                        begun = await self._new(cls, asked, address, child, alive)
                        if begun is not None:
                            break
                # Outside: a child whose start takes long holds up no other.
                if row is not None:
                    return await self._beginning.join(row, asked.output, alive)
                if child is not None:
                    child.let_go()
                child = await self._beginning.start(address)
        finally:
            if child is not None:
                child.let_go()
        if isinstance(begun, AgentToolResult):
            return begun
        tell(self._parts.feed, begun.row, 0, started(begun.row))
        await began(self._parts, begun.row)
        return begun

    async def _new(
        self,
        cls: type[Any],
        asked: Asked,
        address: Address,
        child: Started | None,
        alive: Callable[[], object] | None,
    ) -> Watch | AgentToolResult | None:
        """Begin a run that nobody has begun. `None`: its child is to be started first."""
        row = await self._beginning.room(cls, asked, address)
        if isinstance(row, AgentToolResult):
            return row
        if child is None or not child.is_at(address):
            return None
        begun = await self._beginning.begin(child, row, asked, alive)
        if isinstance(begun, Watch) and row.detached is not None:
            self.detached.watch(begun)
        return begun

    def _known_detached(self, row: RunRow) -> AgentToolResult:
        """A run that is detached stays so, whoever asks again: its result when it is over."""
        if row.status not in OPEN:
            return stored_result(row)
        if row.detached is None:
            raise AgentError(
                f"The run {row.run_id!r} was begun by somebody who waits for it: it cannot be detached.",
                kept="It goes on.",
                next_step="Use another run_id, or ask for it without `detached`.",
            )
        self.detached.take_up(row)
        return _handle(row)

    # --- those that are kept

    async def list(self) -> list[AgentToolRun]:
        """Those that are kept, the oldest first."""
        return [described(row) for row in await queries.kept(self._parts.store)]

    async def cancel(self, run_id: str, reason: object = None) -> None:
        """Stop a run. One that is over, or unknown, stays as it is."""
        row = await queries.one(self._parts.store, run_id)
        if row is None or row.status not in OPEN:
            return
        text = None if reason is None else str(reason)
        if text is None and row.detached is not None:
            text = CANCELLED_BY_PARENT
        if watches := self.watched.of(run_id):
            await watches[0].stop(text)
        elif row.detached is not None:
            with contextlib.suppress(UnknownChild):  # its end is told all the same
                if (child := await child_of(self._parts, row)) is not None:
                    await stop_child(child, run_id, text)
            await self.detached.stop(row, text)  # which delivers that it was stopped
        elif isinstance(joined := await self._beginning.join(row), Watch):
            await joined.stopped(text)

    async def clear(
        self, *, older_than: datetime | None, status: RunStatus | Sequence[RunStatus] | None
    ) -> int:
        """Delete runs with their children. How many."""
        check_call("clear_agent_tool_runs", older_than=older_than)
        if status is not None:
            check_words("clear_agent_tool_runs: status", status, get_args(RunStatus))
        wanted = None if status is None else frozenset([status] if isinstance(status, str) else status)
        rows = await queries.kept(self._parts.store, before=None if older_than is None else ms_of(older_than))
        cleared = [row for row in rows if wanted is None or row.status in wanted]
        for row in cleared:
            await self._clear(row)
        return len(cleared)

    async def _clear(self, row: RunRow) -> None:
        if row.detached is None:
            await self.cancel(row.run_id, "cleared")
        else:
            self.detached.forget(row.run_id)  # erasing its child stops it, and nobody is told
        await self._parts.kin.erase(self._parts.address.child(row.cls, row.run_id))
        await self._parts.store.apply([queries.cleared(row.run_id)])

    # --- those that nobody asks for again

    async def reconcile(self) -> None:
        """See to the runs that an earlier process left and that nobody asks for again."""
        async with self._lock:  # what begins just now is seen to by whoever begins it
            for row in await queries.owed(self._parts.store):
                if row.detached is not None:
                    self.detached.take_up(row)
                elif row.ended_at is not None and row.run_id not in self._parts.ended_here:
                    self._parts.background(finished(self._parts, row, ended_of(row), row.ended_at))
        for row in await queries.open_runs(self._parts.store):
            if row.turn is not None:
                self._turns.add(row.turn)
                await self._without_turn(row)
            elif self._is_left(row):
                self._parts.background(self._left(row), rests=lambda id=row.run_id: self.is_at_rest(id))

    def _see(self, shown: FeedEvent) -> None:
        """A turn that is over waits for nobody: what it has asked for and nobody has stopped is stopped. With
        a conversation that is cleared go the runs of its calls."""
        if isinstance(shown, TurnEnded) and shown.turn.id in self._turns:
            self._turns.discard(shown.turn.id)
            self._parts.background(self._after(shown.turn.id))
        elif isinstance(shown, Cleared):
            self._parts.background(self.forget(set(self._turns)))

    async def forget(self, cut: Collection[str] = ()) -> None:
        """Delete the runs of calls whose conversation was cleared, with their children. `cut`: turns that the
        clearing stops. Those of code, and those that nobody waits for, outlive their turn and stay."""
        parts = self._parts
        turns = {turn.id: turn for turn in await turn_rows.all_turns(parts.store)}
        for row in await queries.kept(parts.store):
            turn = None if row.turn is None else turns.get(row.turn)
            if turn is None or row.detached is not None or parts.keeps is None:
                continue
            is_over = turn.ended_at is not None or turn.id in cut
            if is_over and not await parts.keeps(turn.answer_id):
                await self._clear(row)
        await parts.store.apply([parts.forgot()])

    async def _after(self, turn_id: str) -> None:
        for row in await queries.open_runs(self._parts.store):
            if row.turn == turn_id:
                await self._without_turn(row)

    def _is_left(self, row: RunRow) -> bool:
        return row.run_id not in self.watched and row.detached is None and row.status == "running"

    async def _without_turn(self, row: RunRow) -> None:
        """Stop a run whose turn is over, or was told to stop. Another one asks again, and goes on with it."""
        assert row.turn is not None
        turn = await turn_rows.one(self._parts.store, row.turn)
        if turn is not None and turn.ended_at is None and turn.stop is None:
            return
        if self._is_left(row):
            reason = None if turn is None else turn.stop or turn.error
            self._parts.background(self.cancel(row.run_id, reason or CANCELLED))

    async def _left(self, row: RunRow) -> None:
        """Bring a run of code to its end that nobody waits for."""
        if isinstance(joined := await self._beginning.join(row), Watch):
            await joined.kept()

    # --- waiting for a person

    def rests(self, turn_id: str, call_id: str) -> bool:
        """True when a call of a turn waits for a run in which nothing happens before a person answers."""
        own = [watch for watch in self.watched if watch.row.turn == turn_id]
        return any(watch.row.call_id == call_id and watch.is_at_rest() for watch in own)

    def is_at_rest(self, run_id: str) -> bool:
        """True when nothing happens in a run before a person answers."""
        return any(watch.is_at_rest() for watch in self.watched.of(run_id))

    def leave(self) -> None:
        """The parent leaves memory: see that it is back when something is due."""
        self.detached.leave()

    async def below(self, turn_id: str) -> Below:
        """What the children do that a turn waits for, and those below them."""
        worked, is_asked = 0, False
        for row in await queries.open_runs(self._parts.store):
            if row.turn != turn_id:
                continue
            for (agent,) in await self._parts.store.fetch(BELOW, row.child):
                member = AgentStore(self._parts.store.database, agent)
                worked = max(worked, await worked_at(member))
                is_asked = is_asked or await is_asking(member)
        return Below(worked, is_asked)


def _handle(row: RunRow) -> AgentToolResult:
    """What whoever asks for a detached run gets of it."""
    return AgentToolResult(run_id=row.run_id, agent_type=row.cls, status="running")
