"""Runs that nobody waits for: seen through to their end, whoever asked for them and whichever process it is.

    run_agent_tool(…, detached=…) --Plan--> Runs --Watch--> DetachedRuns --> delivering.py
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

from ..errors import AgentError
from ..messages import encode_json
from ..observe.run_events import AgentToolDetachedLiveCountWarning
from ..schedules.callbacks import callback_name
from ..settings import as_settings
from . import queries
from .beginning import Beginning
from .delivering import SOURCE, Delivering, Plan
from .following import first_of
from .parts import Parts
from .queries import RunRow
from .telling import OPEN, WHY, Ended, ended_of
from .values import Detached, InterruptedReason
from .watching import Watch, outside

__all__ = ["CANCELLED_BY_PARENT", "DetachedRuns"]

CANCELLED_BY_PARENT = "cancelled by parent"
MANY = 50
"""So many detached runs at once are told as a warning."""
_GIVEN_UP: dict[InterruptedReason, str] = {
    **WHY,
    "no-progress": "The child said nothing for too long, and was stopped.",
}


@dataclass(slots=True)
class _Kept:
    """A run that is seen through here."""

    row: RunRow
    plan: Plan
    is_given_up: bool
    watch: Watch | None = None
    task: asyncio.Task[Any] | None = None
    gave_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once it was tried to tell that it was given up: its end is told after that."""
    to_stop: str | None = None
    """Why it is to be stopped, if that was asked for before there was a watch."""

    def is_at_rest(self) -> bool:
        """True when nothing happens in it before a person answers, or its time is over."""
        return self.watch is not None and not self.is_given_up and self.watch.is_at_rest()


class DetachedRuns:
    """The detached runs of one parent."""

    def __init__(self, parts: Parts, beginning: Beginning) -> None:
        self._parts, self._beginning = parts, beginning
        self._delivering = Delivering(parts)
        self._kept: dict[str, _Kept] = {}
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

    def watch(self, watch: Watch) -> None:
        """See a run through that has begun."""
        self._begin(watch.row, lambda kept: self._see_through(watch, kept))

    def take_up(self, row: RunRow) -> None:
        """See a run through that an earlier process left, or whose end it did not deliver."""
        if row.run_id not in self._kept:
            self._begin(row, lambda kept: self._taken_up(row, kept))

    async def stop(self, row: RunRow, reason: str | None) -> None:
        """The same for a run whose child was told to stop: nobody waits for a person's answer then."""
        self.take_up(row)
        kept = self._kept[row.run_id]
        kept.to_stop = reason or CANCELLED_BY_PARENT
        if kept.watch is not None:
            await kept.watch.stop(kept.to_stop)

    def _begin(self, row: RunRow, work: Callable[[_Kept], Awaitable[None]]) -> None:
        kept = self._kept[row.run_id] = _Kept(row, Plan.of(row), row.give_up_claimed_at is not None)
        self._count()
        self._parts.background(self._whole(row.run_id, kept, work), rests=kept.is_at_rest)

    async def _whole(self, run_id: str, kept: _Kept, work: Callable[[_Kept], Awaitable[None]]) -> None:
        kept.task = cast("asyncio.Task[Any]", asyncio.current_task())
        try:
            await outside(work(kept))
        finally:
            if self._kept.get(run_id) is kept:
                del self._kept[run_id]
            self._count()

    def _count(self) -> None:
        live = len(self._kept)
        if live >= MANY and not self._has_warned:
            self._parts.emit(AgentToolDetachedLiveCountWarning(live_count=live, threshold=MANY))
        self._has_warned = live >= MANY

    def forget(self, run_id: str) -> None:
        """See a run through no longer: it is cleared."""
        kept = self._kept.pop(run_id, None)
        if kept is not None and kept.task is not None and kept.task is not asyncio.current_task():
            kept.task.cancel()

    def leave(self) -> None:
        """The parent leaves memory: it is back when the time of a run is over."""
        for kept in self._kept.values():
            if kept.plan.max_budget is not None and not kept.is_given_up:
                self._parts.wake_at(kept.row.started_at + math.ceil(kept.plan.max_budget * 1000))

    # --- seeing it through

    async def _taken_up(self, row: RunRow, kept: _Kept) -> None:
        if row.status in OPEN:
            joined = await self._beginning.join(row)
            if isinstance(joined, Watch):
                await self._see_through(joined, kept)
                return
            # Its child is gone: that is stored, and windows know.
            row = await queries.one(self._parts.store, row.run_id) or row
        await self._delivering.deliver(row, "finish", ended_of(row))

    async def _see_through(self, watch: Watch, kept: _Kept) -> None:
        row = watch.row
        watch.on_milestone = lambda: self._parts.background(outside(self._delivering.milestones(row)))
        if kept.is_given_up and row.give_up_delivered_at is None:
            self._give_up(watch, kept, cast("InterruptedReason", row.reason or "budget-exceeded"))
        elif kept.is_given_up:
            kept.gave_up.set()
        ended = await self._within_budgets(watch, kept)
        await self._delivering.milestones(row)
        if kept.is_given_up:
            await kept.gave_up.wait()
        await self._delivering.deliver(row, "finish", ended, number=watch.following.last + 1)

    async def _within_budgets(self, watch: Watch, kept: _Kept) -> Ended:
        """How a run ends, which is given up when it takes too long."""
        ending = asyncio.ensure_future(watch.end())
        try:
            await self._delivering.milestones(watch.row)
            if await watch.following.is_over():
                await ending  # it was in time, however late we come
            kept.watch = watch
            if kept.to_stop is not None:
                await watch.stop(kept.to_stop)
            while not ending.done():
                left, why = self._left(watch, kept)
                if left <= 0:
                    self._give_up(watch, kept, why)
                else:
                    await first_of(self._parts.clock, left, ending)
            return await ending
        finally:
            kept.watch = None
            ending.cancel()
            watch.close()

    # --- giving it up

    def _left(self, watch: Watch, kept: _Kept) -> tuple[float, InterruptedReason]:
        """Seconds until it is to be looked at again; 0 or less: it is given up, and why."""
        plan, now = kept.plan, self._parts.clock.now_ms()
        if kept.is_given_up:
            return math.inf, "budget-exceeded"
        budget = patience = math.inf
        if plan.max_budget is not None:
            budget = plan.max_budget - (now - watch.row.started_at) / 1000
        if plan.no_progress_budget is not None:
            if not watch.has_reported or watch.following.child.waits_for_person():
                watch.heard_at = now  # nothing is expected of it yet
            patience = plan.no_progress_budget - (now - watch.heard_at) / 1000
        return (budget, "budget-exceeded") if budget <= patience else (patience, "no-progress")

    def _give_up(self, watch: Watch, kept: _Kept, why: InterruptedReason) -> None:
        kept.is_given_up = True
        ended = Ended("interrupted", error=_GIVEN_UP[why], reason=why)
        self._parts.background(self._given_up(watch, kept, ended))

    async def _given_up(self, watch: Watch, kept: _Kept, ended: Ended) -> None:
        """Tell that it is given up; stop it once that is stored, so that no crash leaves it half done."""
        try:
            await self._delivering.deliver(
                watch.row,
                "give_up",
                ended,
                number=watch.following.last + 1,
                claimed=lambda: watch.stop(ended.error),
                tried=kept.gave_up.set,
            )
        finally:
            kept.gave_up.set()
