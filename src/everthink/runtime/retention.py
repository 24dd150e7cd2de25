"""Which agents may go because nothing has happened to them for a long time: `App(retention=…)`.

    Directory, tidying up --> idle() --> for each: is_over() --> erase

`agents.seen_at` is a time at which the agent was certainly in use, written rarely: for those in memory, and
those that have left it, whenever the directory tidies up. It may lie behind, so it only says whom to look at.
What counts is when something was last said, done or remembered, and that nothing is still to come: of the
agent, and of all below it, who go with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..address import Address
from ..clock import Clock
from ..context import queries as context
from ..fibers import queries as fiber_queries
from ..journal import queries as turn
from ..schedules import alarm_queries, job_queries
from ..session import queries as session
from ..store.port import Store
from . import queries

__all__ = ["Retention"]

_TO_COME = (turn.ANY_OPEN, alarm_queries.ANY, job_queries.ANY, fiber_queries.ANY_OPEN, queries.IS_TO_CONTINUE)
_DONE = (session.LAST, turn.LAST, *context.LAST, fiber_queries.LAST)
_AT_ONCE = 50
"""So many agents are looked at, or marked as seen, in one statement."""


class Retention:
    """Knows who has been idle for longer than agents are kept."""

    def __init__(self, seconds: float, *, store: Store, clock: Clock, classes: Collection[str]) -> None:
        self._ms, self._store, self._clock = round(seconds * 1000), store, clock
        self._classes = sorted(classes)

    @property
    def _before(self) -> int:
        return self._clock.now_ms() - self._ms

    async def seen(self, agents: Collection[str]) -> None:
        """These agents are, or just were, in use."""
        names, now = sorted(agents), self._clock.now_ms()
        for first in range(0, len(names), _AT_ONCE):
            await self._store.apply([queries.note_seen(names[first : first + _AT_ONCE], now=now)])

    async def idle(self) -> Sequence[Address]:
        """Some agents that may be over; none when there are no more."""
        look = queries.unseen(self._classes, before=self._before, limit=_AT_ONCE)
        return [Address(cls, name) for cls, name in await self._store.fetch(look.sql, *look.params)]

    async def is_over(self, agent: str) -> bool:
        """True when nothing has happened for long enough and nothing is to come. Otherwise that is noted."""
        for (member,) in await self._store.fetch(queries.MEMBERS, agent):
            in_use_at = await self._in_use_at(member)
            if in_use_at >= self._before:
                await self._store.apply([queries.note_seen([agent], now=in_use_at)])
                return False
        return True

    async def _in_use_at(self, member: str) -> int:
        """When something last happened to an agent: now, while something is to come."""
        for sql in _TO_COME:
            if await self._store.fetch(sql, member):
                return self._clock.now_ms()
        return max([(await self._store.fetch(sql, member))[0][0] or 0 for sql in _DONE])
