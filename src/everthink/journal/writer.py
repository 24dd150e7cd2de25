"""The stream writer: gather, commit, show.

    turn/loop, turn/calls --put(chunk)--> [gather] --commit--> store --show--> feed

Persist before show: nobody ever sees a chunk that a crash can take back. While a commit is
in flight the next chunks gather, so a slow model pays one small commit per chunk and a burst
pays one for hundreds. Ledger statements ride in the commit of the chunk they belong to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .. import chunks as ui
from ..clock import Clock
from ..errors import ToolInterrupted
from ..store.port import AgentStore, Rows, Statement
from . import queries
from .feed import ChunksStored, Feed
from .segments import pack
from .turn import Turn

__all__ = ["StreamWriter"]

HIGH_WATER = 512
"""So many chunks may wait for their commit before the model is held back."""


class _Batch:
    """What shares one commit."""

    __slots__ = ("afterwards", "bodies", "chunks", "first", "statements", "waiters")

    def __init__(self, first: int) -> None:
        self.first = first
        self.chunks: list[ui.Chunk] = []
        self.bodies: list[str] = []
        self.statements: list[Statement] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.afterwards: list[Callable[[], object]] = []

    def __bool__(self) -> bool:
        return bool(self.chunks or self.statements)

    def commit(self, turn: str, now: int) -> list[Statement]:
        if not self.chunks:
            return self.statements
        text = pack(self.chunks, self.bodies)
        last = self.first + len(self.chunks) - 1
        segment = queries.segment(turn, first=self.first, last=last, chunks=text, now=now)
        return [*self.statements, segment]

    def show(self, feed: Feed, turn: Turn) -> None:
        for call in self.afterwards:
            call()
        if self.chunks:
            feed.publish(ChunksStored(turn, self.first, self.bodies, self.chunks))

    def wake(self, lost: BaseException | None = None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if lost is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(lost)


class StreamWriter:
    """Writes the chunks of one turn and shows them once they are durable."""

    def __init__(self, turn: Turn, *, store: AgentStore, clock: Clock, feed: Feed, first: int = 0) -> None:
        self._turn = turn
        self._store, self._clock, self._feed = store, clock, feed
        self._loop = asyncio.get_running_loop()
        self._gathering = _Batch(first)
        # The batch whose commit is under way; None between commits.
        self._flight: _Batch | None = None
        self._scheduled = False
        self._closing = False
        self._failure: BaseException | None = None
        self.on_failure: Callable[[], object] | None = None
        """Called when a commit fails: nothing more can be shown."""
        self.next_seq = first

    @property
    def streamed(self) -> bool:
        """True once anything was put."""
        return self.next_seq > 0

    @property
    def is_broken(self) -> bool:
        """True once a commit failed. What was shown is in the journal; what was put since is lost."""
        return self._failure is not None

    def put(self, chunk: ui.Chunk, body: str, *statements: Statement) -> None:
        """Take the next chunk and the same as JSON, with what must be committed together with it."""
        batch = self._gathering
        batch.chunks.append(chunk)
        batch.bodies.append(body)
        self.next_seq += 1
        if statements:
            batch.statements += statements
        if not self._scheduled:
            self._schedule()

    def also(self, *statements: Statement) -> None:
        """Take statements that no chunk belongs to."""
        self._gathering.statements += statements
        if not self._scheduled:
            self._schedule()

    def afterwards(self, call: Callable[[], object]) -> None:
        """Call `call` once what was put so far is durable, just before it is shown."""
        self._gathering.afterwards.append(call)

    @property
    def is_full(self) -> bool:
        """True when too much is uncommitted, or nothing can be: time to wait for `settled`."""
        return len(self._gathering.chunks) >= HIGH_WATER or self._failure is not None

    async def settled(self) -> None:
        """Return once all that was put so far is durable and shown."""
        batch = self._gathering if self._gathering else self._flight
        if batch is not None and not self._failure:
            waiter: asyncio.Future[None] = self._loop.create_future()
            batch.waiters.append(waiter)
            await waiter
        if self._failure:
            raise self._failure

    async def seen_through(self) -> None:
        """The same, also when whoever waits is cancelled: a commit in flight cannot be called back."""
        settling, cancelled = asyncio.ensure_future(self.settled()), False
        while not settling.done():
            try:
                await asyncio.wait([settling])
            except asyncio.CancelledError:
                cancelled = True
        settling.result()
        if cancelled:
            raise asyncio.CancelledError

    def hold(self) -> None:
        """Start no other commit: what gathers now belongs to the last one."""
        self._closing = True

    async def pause(self) -> None:
        """Hold, and wait for the commit in flight."""
        self.hold()
        if self._flight is not None:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._flight.waiters.append(waiter)
            await waiter
        if self._failure:
            raise self._failure

    async def close(self, last: Sequence[Statement]) -> None:
        """Commit what waits together with `last`, in one commit, and show it. After `pause`."""
        batch, self._gathering = self._gathering, _Batch(self.next_seq)
        batch.statements += last
        if batch:
            try:
                await self._store.apply(self._commit_of(batch))
            except Exception as failure:
                self._failure = failure
                batch.wake()
                raise
        batch.show(self._feed, self._turn)
        batch.wake()

    def drop(self) -> None:
        """The turn is over: what still waits never will be committed, and whoever waits for it is told."""
        self._closing = True
        self._gathering.wake(ToolInterrupted("The turn was over before the result could be stored."))

    def _schedule(self) -> None:
        self._scheduled = True
        # Not at once: whatever else arrives in this turn of the event loop shares the commit.
        self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._scheduled = False
        if self._flight is not None or self._failure or self._closing or not self._gathering:
            return
        self._flight, self._gathering = self._gathering, _Batch(self.next_seq)
        self._store.apply(self._commit_of(self._flight)).add_done_callback(self._committed)

    def _commit_of(self, batch: _Batch) -> list[Statement]:
        return batch.commit(self._turn.id, self._clock.now_ms())

    def _committed(self, done: asyncio.Future[list[Rows]]) -> None:
        batch, self._flight = self._flight, None
        assert batch is not None
        failure = asyncio.CancelledError("the store gave up") if done.cancelled() else done.exception()
        if failure is not None:
            self._failure = failure
            self._gathering.wake()
            if self.on_failure is not None:
                self.on_failure()
        else:
            batch.show(self._feed, self._turn)
        batch.wake()
        self._commit()
