"""Warm children: at most so many at work, replaced when they are used up, ended when nobody needs them.

    sandbox --lent--> a child --> given back, or ended

A child that crashed, was killed or did not come to its end is never used again. When the pool closes, or the
process dies, no child is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from ..kinds import SECONDS, at_least
from .child import CannotStart, Child

__all__ = ["OPTIONS", "Pool"]

OPTIONS = {"most": at_least(1), "jobs_each": at_least(1), "idle_after": SECONDS}
"""What whoever makes a sandbox may say of its children."""


class Pool:
    """Children of one guest."""

    def __init__(
        self,
        start: Callable[[int], Awaitable[Child]],
        *,
        most: int,
        jobs_each: int,
        idle_after: float,
    ) -> None:
        self._start = start
        self._jobs_each, self._idle_after = jobs_each, idle_after
        self._room = asyncio.Semaphore(most)
        # By the memory that they may use, which cannot be changed once a child is locked.
        self._resting: list[tuple[int, Child, asyncio.TimerHandle]] = []
        self._at_work: dict[Child, asyncio.Event] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        """The processes that are there."""
        return [child.pid for child in (*self._at_work, *(child for _, child, _ in self._resting))]

    @asynccontextmanager
    async def lent(self, memory: int, keep: str | None = None) -> AsyncGenerator[Child]:
        """A child that may use so much memory, for one job: rather one that keeps something of this name."""
        async with self._room:
            child = await self._taken(memory, keep)
            returned = self._at_work[child] = asyncio.Event()
            child.jobs += 1
            try:
                yield child
            finally:
                try:
                    if child.is_idle and child.jobs < self._jobs_each and not self._is_closed:
                        self._rest(memory, child)
                    else:
                        await self._ended(child)
                finally:
                    del self._at_work[child]
                    returned.set()

    async def _taken(self, memory: int, keep: str | None) -> Child:
        if self._is_closed:
            raise CannotStart("The sandbox is closed.")
        while (place := self._best(memory, keep)) is not None:
            _, child, timer = self._resting.pop(place)
            timer.cancel()
            if child.is_alive:
                return child
            await self._ended(child)
        child = await self._start(memory)
        if self._is_closed:
            await self._ended(child)
            raise CannotStart("The sandbox is closed.")
        return child

    def _best(self, memory: int, keep: str | None) -> int | None:
        """The child to take: one that keeps what is asked for, else the one that rests for the least time."""
        able = [place for place, (has, _, _) in enumerate(self._resting) if has == memory]
        keeping = [place for place in able if keep is not None and keep in self._resting[place][1].kept]
        return max(keeping or able, default=None)

    def _rest(self, memory: int, child: Child) -> None:
        timer = asyncio.get_running_loop().call_later(self._idle_after, self._send_away, child)
        self._resting.append((memory, child, timer))

    def _send_away(self, child: Child) -> None:
        self._resting = [rest for rest in self._resting if rest[1] is not child]
        self._begin_ending(child)

    def _begin_ending(self, child: Child) -> asyncio.Task[None]:
        ending = asyncio.create_task(child.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending

    async def _ended(self, child: Child) -> None:
        """End a child even if whoever waits for it is cancelled meanwhile; then that is raised."""
        ending = self._begin_ending(child)
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait({ending})
            raise

    async def aclose(self) -> None:
        """End all children. Those at work are killed, and whoever waits for them hears it."""
        self._is_closed = True
        for _, child, timer in self._resting:
            timer.cancel()
            self._begin_ending(child)
        self._resting.clear()
        returned = list(self._at_work.values())
        for child in self._at_work:
            child.kill()
        for event in returned:
            await event.wait()
        if self._ending:
            await asyncio.wait(self._ending)
