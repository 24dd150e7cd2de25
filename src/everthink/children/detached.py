"""Runs that nobody waits for: seen through to their end, whoever asked for them and whichever process it is.

    run_agent_tool(…, detached=…) --Plan--> Runs --Followed--> DetachedRuns --> delivering.py
                                                                   '-- too long, too silent: given up

A run outlives the turn that asked for it, and the process: its parent takes it up at its next start. One that
is given up is stopped, and still seen through: its child may have come to its end at that moment.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from ..abort import AbortSignal
from ..current import current_connection, step_outside
from ..errors import AgentError
from ..messages import encode_json
from ..observe.run_events import AgentToolDetachedLiveCountWarning
from ..schedules.callbacks import callback_name
from ..settings import as_settings
from . import queries
from .delivering import SOURCE, Delivering, Plan
from .following import Followed, first_of
from .parts import Parts
from .queries import RunRow
from .telling import OPEN, WHY, Ended, ended_of
from .values import AgentToolResult, Detached, InterruptedReason

__all__ = ["CANCELLED_BY_PARENT", "DetachedRuns", "Hands", "outside"]

CANCELLED_BY_PARENT = "cancelled by parent"
MANY = 50
"""So many detached runs at once are told as a warning."""
_GIVEN_UP: dict[InterruptedReason, str] = {
    **WHY,
    "no-progress": "The child said nothing for too long, and was stopped.",
}


@dataclass(frozen=True, slots=True)
class Hands:
    """What `Runs` does for detached runs."""

    join: Callable[[RunRow], Awaitable[Followed | AgentToolResult]]
    """Follow a run where it is. Its result when it is over."""
    awaited: Callable[[Followed, AbortSignal | None], Awaitable[Ended]]
    """How a run that is followed ends."""
    stop: Callable[[Followed, str | None], Awaitable[None]]
    tell_end: Callable[[RunRow, Ended, int], None]
    """Tell windows how it ended, under which number."""


@dataclass(slots=True)
class _Watch:
    """A run that is seen through here."""

    plan: Plan
    heard_at: int
    """When something was last heard of it (ms). While nobody ran it, it was not silent."""
    has_reported: bool
    is_given_up: bool
    task: asyncio.Task[Any] | None = None
    gave_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it was tried to tell that it was given up: its end is told after that."""


class DetachedRuns:
    """The detached runs of one parent."""

    def __init__(self, parts: Parts, hands: Hands) -> None:
        self._parts, self._hands = parts, hands
        self._delivering = Delivering(parts, hands.tell_end)
        self._watched: dict[str, _Watch] = {}
        self._has_warned = False

    # --- asking for one

    def planned(self, given: Any) -> str | None:
        """What `detached=…` asks for, as a row keeps it; `None`: somebody waits. Raises when it cannot be."""
        if given is None or given is False:
            return None
        asked = Detached() if given is True else as_settings(Detached, given, "detached")
        on_finish = None
        if asked.on_finish is not None:
            on_finish = callback_name(self._parts.hooks.agent, asked.on_finish, ("run", "result"))
        milestones = tuple(dict.fromkeys(name for name in asked.on_milestones if name))
        if self._parts.submit is None and (asked.notify or milestones):
            raise AgentError(
                f"Detached({'notify' if asked.notify else 'on_milestones'}=…) writes to a conversation, and"
                f" {self._parts.address} has none.",
                kept="Nothing was stored.",
                next_step='Name a method, Detached(on_finish="…"); on_progress hears of milestones.',
            )
        plan = Plan(
            on_finish=on_finish,
            is_told=bool(asked.notify),
            source=asked.notify if isinstance(asked.notify, str) else SOURCE,
            max_budget=asked.max_budget,
            no_progress_budget=asked.no_progress_budget,
            milestones=milestones,
            mode=asked.milestone_mode,
        )
        return encode_json(plan).decode()

    def watch(self, run: Followed) -> None:
        """See a run through that has begun."""
        self._begin(run.row, lambda watch: self._see_through(run, watch))

    def take_up(self, row: RunRow) -> None:
        """See a run through that an earlier process left, or whose end it did not deliver."""
        if row.run_id not in self._watched:
            self._begin(row, lambda watch: self._taken_up(row, watch))

    def _begin(self, row: RunRow, work: Callable[[_Watch], Awaitable[None]]) -> None:
        watch = _Watch(
            Plan.of(row),
            heard_at=self._parts.clock.now_ms(),
            has_reported=row.progress_at is not None,
            is_given_up=row.give_up_claimed_at is not None,
        )
        self._watched[row.run_id] = watch
        self._count()
        self._parts.background(self._whole(row.run_id, watch, work))

    async def _whole(self, run_id: str, watch: _Watch, work: Callable[[_Watch], Awaitable[None]]) -> None:
        watch.task = cast("asyncio.Task[Any]", asyncio.current_task())
        try:
            await outside(work(watch))
        finally:
            if self._watched.get(run_id) is watch:
                del self._watched[run_id]
            self._count()

    def _count(self) -> None:
        live = len(self._watched)
        if live >= MANY and not self._has_warned:
            self._parts.emit(AgentToolDetachedLiveCountWarning(live_count=live, threshold=MANY))
        self._has_warned = live >= MANY

    def heard(self, row: RunRow, *, is_report: bool, is_milestone: bool) -> None:
        """Something was heard of a run."""
        watch = self._watched.get(row.run_id)
        if watch is None:
            return
        watch.heard_at = self._parts.clock.now_ms()
        watch.has_reported = watch.has_reported or is_report
        if is_milestone:
            self._parts.background(outside(self._delivering.milestones(row)))

    def forget(self, run_id: str) -> None:
        """See a run through no longer: it is cleared."""
        watch = self._watched.pop(run_id, None)
        if watch is not None and watch.task is not None and watch.task is not asyncio.current_task():
            watch.task.cancel()

    # --- seeing it through

    async def _taken_up(self, row: RunRow, watch: _Watch) -> None:
        if row.status in OPEN:
            joined = await self._hands.join(row)
            if isinstance(joined, Followed):
                await self._see_through(joined, watch)
                return
            # Its child is gone: that is stored, and windows know.
            row = await queries.one(self._parts.store, row.run_id) or row
        await self._delivering.deliver(row, "finish", ended_of(row))

    async def _see_through(self, run: Followed, watch: _Watch) -> None:
        row = run.row
        if watch.is_given_up and row.give_up_delivered_at is None:
            self._give_up(run, watch, cast("InterruptedReason", row.reason or "budget-exceeded"))
        elif watch.is_given_up:
            watch.gave_up.set()
        ending = asyncio.ensure_future(self._hands.awaited(run, None))
        try:
            await self._delivering.milestones(row)
            if await run.following.is_over():
                await ending  # it was in time, however late we come
            while not ending.done():
                left, why = self._left(run, watch)
                if left <= 0:
                    self._give_up(run, watch, why)
                else:
                    await first_of(self._parts.clock, left, ending)
            ended = await ending
        finally:
            ending.cancel()
        await self._delivering.milestones(row)
        if watch.is_given_up:
            await watch.gave_up.wait()
        await self._delivering.deliver(row, "finish", ended, number=run.following.last + 1)

    # --- giving it up

    def _left(self, run: Followed, watch: _Watch) -> tuple[float, InterruptedReason]:
        """Seconds until it is to be looked at again; 0 or less: it is given up, and why."""
        plan, now = watch.plan, self._parts.clock.now_ms()
        if watch.is_given_up:
            return math.inf, "budget-exceeded"
        budget = patience = math.inf
        if plan.max_budget is not None:
            budget = plan.max_budget - (now - run.row.started_at) / 1000
        if plan.no_progress_budget is not None:
            if not watch.has_reported or run.following.child.answers.is_waiting_for_person():
                watch.heard_at = now  # nothing is expected of it yet
            patience = plan.no_progress_budget - (now - watch.heard_at) / 1000
        return (budget, "budget-exceeded") if budget <= patience else (patience, "no-progress")

    def _give_up(self, run: Followed, watch: _Watch, why: InterruptedReason) -> None:
        watch.is_given_up = True
        ended = Ended("interrupted", error=_GIVEN_UP[why], reason=why)
        self._parts.background(self._given_up(run, watch, ended))

    async def _given_up(self, run: Followed, watch: _Watch, ended: Ended) -> None:
        """Tell that it is given up; stop it once that is stored, so that no crash leaves it half done."""
        try:
            await self._delivering.deliver(
                run.row,
                "give_up",
                ended,
                number=run.following.last + 1,
                claimed=lambda: self._hands.stop(run, ended.error),
                tried=watch.gave_up.set,
            )
        finally:
            watch.gave_up.set()


async def outside(work: Awaitable[None]) -> None:
    """Do something that no turn waits for, in a task of its own: neither the turn that asked for the run,
    nor that of the child. Its client may be gone."""
    step_outside()
    current_connection.set(None)
    await work
