"""The turn queue: strict FIFO, one turn body at a time per agent.

    admission --reserve--> Ticket --front--> run --release--> next

A place is reserved before the turn's row is written, so acceptance order is running order.
Each place is bound to a generation; `reset` starts a new one, and places of an older
generation that reach the front are told so instead of running.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Completed", "Stale", "Ticket", "TurnQueue"]


@dataclass(frozen=True, slots=True)
class Completed:
    """The function ran; this is what it returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Stale:
    """The queue was reset before the function's turn came; it never ran."""


class Ticket:
    """A place in the queue."""

    __slots__ = ("_front", "_queue", "generation", "request_id")

    def __init__(self, queue: TurnQueue, request_id: str, generation: int) -> None:
        self._queue, self.request_id, self.generation = queue, request_id, generation
        self._front: asyncio.Future[bool] | None = None

    @property
    def is_front(self) -> bool:
        """True while it is this ticket's turn."""
        return self._queue.active is self

    async def front(self) -> bool:
        """Wait for the turn. False when the queue was reset meanwhile: do not run, the place is gone."""
        if self.is_front:
            return True
        self._front = self._front or asyncio.get_running_loop().create_future()
        try:
            return await self._front
        except asyncio.CancelledError:
            self.release()
            raise

    def release(self) -> None:
        """Give the place up; the next ticket comes to the front."""
        self._queue._leave(self)  # pyright: ignore[reportPrivateUsage]

    def _call(self, runs: bool) -> None:
        if self._front is None:
            self._front = asyncio.get_running_loop().create_future()
        if not self._front.done():
            self._front.set_result(runs)


class TurnQueue:
    """Who runs, who waits, and since which generation."""

    __slots__ = ("_idle", "_places", "_waiting", "active", "generation")

    def __init__(self) -> None:
        self.generation = 0
        self.active: Ticket | None = None
        # In their order. Leaving from the middle is as cheap as from the end, however many wait.
        self._waiting: OrderedDict[Ticket, None] = OrderedDict()
        # How many run or wait, by generation.
        self._places: dict[int, int] = {}
        self._idle: list[asyncio.Future[None]] = []

    @property
    def is_idle(self) -> bool:
        """True when nothing runs or waits."""
        return self.active is None and not self._waiting

    def count(self, generation: int | None = None) -> int:
        """How many run or wait in a generation (the current one when omitted)."""
        return self._places.get(self.generation if generation is None else generation, 0)

    @property
    def waiting(self) -> int:
        """How many wait, of whichever generation."""
        return len(self._waiting)

    def reserve(self, request_id: str, generation: int | None = None) -> Ticket:
        """Take the next place. It may be the front already."""
        ticket = Ticket(self, request_id, self.generation if generation is None else generation)
        self._waiting[ticket] = None
        self._places[ticket.generation] = self._places.get(ticket.generation, 0) + 1
        if self.active is None:
            self._advance()
        return ticket

    async def enqueue(
        self, request_id: str, fn: Callable[[], Awaitable[Any]], *, generation: int | None = None
    ) -> Completed | Stale:
        """Run `fn` when its turn comes. What it raises reaches this caller only."""
        ticket = self.reserve(request_id, generation)
        if not await ticket.front():
            return Stale()
        try:
            return Completed(await fn())
        finally:
            ticket.release()

    def reset(self) -> None:
        """Start a new generation. What runs goes on; what waits becomes stale."""
        self.generation += 1

    async def wait_for_idle(self) -> None:
        """Return once nothing runs or waits, including what is added meanwhile."""
        while not self.is_idle:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    def _leave(self, ticket: Ticket) -> None:
        if self.active is ticket:
            self.active = None
            self._gone(ticket)
            self._advance()
        elif ticket in self._waiting:
            del self._waiting[ticket]
            self._gone(ticket)

    def _gone(self, ticket: Ticket) -> None:
        left = self._places[ticket.generation] - 1
        if left:
            self._places[ticket.generation] = left
        else:
            del self._places[ticket.generation]

    def _advance(self) -> None:
        while self._waiting:
            ticket, _ = self._waiting.popitem(last=False)
            if ticket.generation == self.generation:
                self.active = ticket
                ticket._call(True)  # pyright: ignore[reportPrivateUsage]
                return
            self._gone(ticket)
            ticket._call(False)  # pyright: ignore[reportPrivateUsage]
        waiters, self._idle = self._idle, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
