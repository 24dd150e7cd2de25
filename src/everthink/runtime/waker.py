"""Sleep until the earliest timer of all agents is due, then reach the agents concerned. One per process.

    alarms rows --earliest--> Waker --call_later--> reach(address) --> the agent runs what is due
    schedule() --wake_at---^

Nothing polls: the database is read when the process starts, and when the time has come that somebody
named. A process with nothing to wait for has no timer at all. Agents of classes that this process
does not have are left to the one that does.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from ..address import Address
from ..backoff import backoff
from ..clock import Clock, Timer
from ..errors import AgentElsewhere, AgentSetAside, StoreClosed, StoreError
from ..schedules import alarm_queries as queries
from ..store.port import Store

__all__ = ["Waker"]

log = logging.getLogger("everthink.runtime")

PAGE = 500
"""How many rows are read at once."""
AT_ONCE = 32
"""How many agents are woken at the same time."""
PATIENCE = 10.0
"""Seconds after which an agent that is still busy no longer counts among those."""
LONGEST_NAP = 60.0
"""Seconds after which the clock is looked at again: it may have been set, or the machine may have slept."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds until an agent that failed is tried again: doubled each time, up to the second."""

Find = Callable[[str], Awaitable[Address | None]]
Reach = Callable[[Address], Awaitable[object]]


@dataclass(slots=True)
class _Failing:
    """An agent that could not do what was due."""

    streak: int
    until: int


class Waker:
    """Reaches agents when their time has come.

    `find(agent)` gives the address of an id, if there is such an agent. `reach(address)` starts it if need
    be and lets it run what is due. `left` are queries for agents to which an earlier process left work: their
    ids, and the time if it is not at once. They are asked when we start. `rank(agent)` is low for those that
    are reached first. `elsewhere` names the agents that other processes have, with all below them: they see
    to them.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        classes: Collection[str],
        find: Find,
        reach: Reach,
        left: Sequence[str] = (),
        rank: Callable[[str], int] = lambda agent: 0,
        elsewhere: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        self._store, self._clock, self._classes = store, clock, classes
        self._find, self._reach, self._left, self._rank = find, reach, left, rank
        # Those of `left` that were not asked yet.
        self._unasked: list[str] = []
        self._ask_elsewhere = elsewhere
        self._elsewhere: Collection[str] = ()
        self._at: float = math.inf
        self._timer: Timer | None = None
        self._awake = asyncio.Event()
        self._is_looking = False
        self._rested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._busy: dict[str, asyncio.Task[None]] = {}
        # Met in the present look; and those met while they were still busy because of an earlier one.
        self._met: set[str] = set()
        self._again: set[str] = set()
        self._failing: dict[str, _Failing] = {}
        # Agents to reach at a time that no row of `alarms` tells.
        self._wanted: dict[str, float] = {}
        self._unknown: set[str] = set()
        self._has_warned = False

    def start(self) -> None:
        """Look for what is due, and from now on wait for it."""
        if self._task is None:
            # A context of its own: whoever opened the app may do so in the middle of a request.
            self._is_looking = True
            self._unasked = list(self._left)
            self._task = asyncio.create_task(self._run(), name="waker", context=contextvars.Context())

    def look(self) -> None:
        """Look again for everything that was left: another process may have been at it, and is gone."""
        self._unasked = list(self._left)
        self.wake_at()

    async def stop(self) -> None:
        """Reach nobody any more. What an agent is doing is the agent's to end."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._task, *self._busy.values()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._task, self._at, self._is_looking = None, math.inf, False
        self._rested.set()

    def wake_at(self, at_ms: float = 0, agent: str | None = None) -> None:
        """Something is due at this time (now, when it has passed): a timer, whose row is committed, or
        something else that the agent with this id knows of when it is in memory again."""
        if agent is not None:
            self._wanted[agent] = min(at_ms, self._wanted.get(agent, math.inf))
        if at_ms < self._at:
            self._at = at_ms
            if self._task is not None:
                self._set_timer()

    async def idle(self) -> None:
        """Return once nothing is due and nobody is being woken. For tests that move a clock."""
        while self._is_looking or self._awake.is_set() or self._busy:
            self._rested.clear()
            await self._rested.wait()

    # --- sleeping

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._at == math.inf:
            return
        wait = (self._at - self._clock.now_ms()) / 1000
        if wait <= 0:
            self._awake.set()
        else:
            self._timer = self._clock.call_later(min(wait, LONGEST_NAP), self._set_timer)

    async def _run(self) -> None:
        failures = 0
        while True:
            self._awake.clear()
            self._is_looking = True
            # From here on whoever wakes us means something that the look below may have missed.
            self._at = math.inf
            try:
                await self._ask_for_left()
                self.wake_at(await self._look())
                await self._warn_of_unknown()
                failures = 0
            except StoreClosed:
                return
            except Exception as error:  # whatever it was: timers must not end because of one look
                failures += 1
                pause = backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
                trace = None if isinstance(error, StoreError) else error
                log.warning("timers are looked at again in %g s: %s", pause, error, exc_info=trace)
                self.wake_at(self._clock.now_ms() + pause * 1000)
            self._set_timer()
            self._is_looking = False
            self._rested.set()
            await self._awake.wait()

    # --- looking

    async def _ask_for_left(self) -> None:
        while self._unasked:
            asked = self._unasked[0]
            for agent, *at in await self._store.fetch(asked):
                self._wanted[agent] = min(at[0] if at else 0, self._wanted.get(agent, math.inf))
            if self._unasked[:1] == [asked]:
                del self._unasked[0]

    async def _look(self) -> float:
        """Wake every agent for which something is due. Returns when to look again."""
        self._met.clear()
        self._elsewhere = await self._ask_elsewhere() if self._ask_elsewhere is not None else ()
        for agent, at in sorted(self._wanted.items(), key=lambda wanted: self._rank(wanted[0])):
            if at <= self._clock.now_ms():
                self._wanted.pop(agent, None)
                await self._go(agent)
        times = [await self._look_at(cls) for cls in sorted(self._classes)]
        self._met.clear()
        return min([*times, *self._wanted.values()], default=math.inf)

    async def _look_at(self, cls: str) -> float:
        """Wake the agents of one class. Returns when the next timer of the class is due."""
        after: Sequence[object] = (-1, "", "")
        while True:
            rows = await self._store.fetch(queries.NEXT, cls, *after, PAGE)
            for due_at, agent, _ in rows:
                if due_at > self._clock.now_ms():
                    return due_at
                await self._go(agent)
            if len(rows) < PAGE:
                return math.inf
            after = rows[-1]

    async def _warn_of_unknown(self) -> None:
        """Say once that there are timers of classes which this process does not have."""
        cls = ""
        while not self._has_warned:
            ((found,),) = await self._store.fetch(queries.NEXT_CLASS, cls)
            if found is None:
                self._has_warned = True
                return
            cls = found
            if cls not in self._classes:
                self._warn(cls)

    def _warn(self, cls: str) -> None:
        if cls not in self._unknown:
            self._unknown.add(cls)
            log.warning(
                "there is work for agents of the class %s, which is not in this app: it is left alone."
                " Add the class to the app, or run it where the class is.",
                cls,
            )

    # --- waking

    async def _go(self, agent: str) -> None:
        """Reach an agent as soon as there is room."""
        if agent in self._met or agent in self._elsewhere:
            return
        address = await self._find(agent)
        if address is None:
            return  # erased since somebody saw what it has to do
        if address.cls_name not in self._classes:
            self._warn(address.cls_name)
            return
        if address.root.id in self._elsewhere:
            return
        self._met.add(agent)
        if agent in self._busy:
            # It may have looked before this row was there.
            self._again.add(agent)
            return
        failing = self._failing.get(agent)
        if failing is not None and failing.until > self._clock.now_ms():
            return
        await self._slots.acquire()
        task = asyncio.create_task(self._wake(agent, address), name=f"wake {agent}")
        self._busy[agent] = task
        task.add_done_callback(lambda _: self._done(agent))

    def _done(self, agent: str) -> None:
        del self._busy[agent]
        if agent in self._again:
            self._again.discard(agent)
            self.wake_at()
        self._rested.set()

    async def _wake(self, agent: str, address: Address) -> None:
        slot = _Slot(self._slots)
        timer = self._clock.call_later(PATIENCE, slot.leave)
        try:
            await self._reach(address)
            self._failing.pop(agent, None)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            self._failed(agent, "it was stopped")
        except AgentElsewhere:
            log.debug("another process was quicker to reach %s", agent)
        except AgentSetAside as error:
            log.info("%s", error)  # told when it was set aside; whoever releases it wakes us
        except Exception as error:  # noqa: BLE001 - of whatever kind: the next agent must not suffer
            self._failed(agent, error)
        finally:
            timer.cancel()
            slot.leave()

    def _failed(self, agent: str, reason: object) -> None:
        known = self._failing.get(agent)
        streak = 0 if known is None else known.streak + 1
        pause = backoff(streak + 1, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        until = self._clock.now_ms() + round(pause * 1000)
        self._failing[agent] = _Failing(streak, until)
        self.wake_at(until, agent)
        log.warning(
            "%s could not do what was due and is tried again in %g s: %s",
            agent,
            pause,
            reason,
            exc_info=reason if isinstance(reason, Exception) else None,
        )


class _Slot:
    """A place among those that are woken at the same time. Left once."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots: asyncio.Semaphore | None = slots

    def leave(self) -> None:
        if self._slots is not None:
            self._slots.release()
            self._slots = None
