"""What is told of a detached run: that it was given up, how it ended, which milestones it passed.

    DetachedRuns --deliver--> one commit: how it ended, the claim
                                  --> on_agent_tool_finish, a message, a method --> delivered

Two slots, each by itself: `give_up`, and `finish`. A slot is claimed in the commit that stores how the run
stands, before anybody is told; it is delivered once nobody has raised. What raised is tried again, and a
process that dies in between leaves the slot to the next one: so whoever is told may be told twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ..backoff import backoff
from ..calling import call_hook
from ..messages import decode_json
from ..observe.run_events import AgentToolDetachedDeliveryFailed
from ..schedules.callbacks import find
from ..store.port import AgentStore, Statement
from . import queries
from .parts import Parts
from .progress import milestone_of
from .queries import RunRow, Slot
from .telling import OPEN, Ended, described, result_of, stored, tell, terminal
from .values import AgentToolProgress, AgentToolResult, AgentToolRun, MilestoneMode

__all__ = ["SOURCE", "Delivering", "Plan", "completion_text", "milestone_text"]

log = logging.getLogger("everthink.children")

SOURCE = "detached-agent-tool"
"""Where a message says that it comes from, unless something else was asked for."""
FIRST_PAUSE, LONGEST_PAUSE = 60.0, 3600.0
"""Seconds until a delivery that raised is tried again: doubled each time, up to the second."""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What becomes of a detached run, as its row keeps it."""

    on_finish: str | None = None
    """The method that is called."""
    is_told: bool = False
    """True when the conversation gets a message."""
    source: str = SOURCE
    max_budget: float | None = None
    no_progress_budget: float | None = None
    milestones: tuple[str, ...] = ()
    mode: MilestoneMode = "narrate"

    @classmethod
    def of(cls, row: RunRow) -> Plan:
        """That of a run."""
        return decode_json(row.detached or "{}", cls)


class Delivering:
    """Delivers what is told of the detached runs of one parent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # One after the other: a milestone may be heard of while those before it are told.
        self._telling = asyncio.Lock()

    # --- how it ended

    async def deliver(
        self,
        row: RunRow,
        slot: Slot,
        ended: Ended,
        *,
        number: int | None = None,
        claimed: Callable[[], Awaitable[None]] | None = None,
        tried: Callable[[], object] | None = None,
    ) -> None:
        """Tell how a run stands, until nobody raises. `number` is that of the frame which tells windows;
        `claimed` is called once it is stored, `tried` after the first attempt."""
        parts, failures = self._parts, 0
        while True:
            now = parts.clock.now_ms()
            statements: list[Statement] = [queries.claimed(row.run_id, slot, now=now)]
            if row.status in OPEN:
                statements.append(stored(row.run_id, ended, now=now))
            [is_ours, *_] = await parts.store.apply(statements)
            if not is_ours:
                return  # delivered before, or cleared
            if not failures:
                if number is not None:
                    tell(parts.feed, row, number, terminal(row.run_id, ended))
                if claimed is not None:
                    await claimed()
            run = described(row._replace(status=ended.status, ended_at=row.ended_at or now))
            try:
                await self._tell(Plan.of(row), run, result_of(row, ended))
            except Exception as error:  # noqa: BLE001 - of whatever kind: it is tried again
                failures += 1
                pause = backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
                words = str(error) or type(error).__name__
                told = AgentToolDetachedDeliveryFailed(
                    run_id=row.run_id,
                    kind=slot,
                    status=ended.status,
                    callback=Plan.of(row).on_finish,
                    error=words,
                )
                parts.emit(told)
                await parts.hooks.on_error(error)
            else:
                await parts.store.apply([queries.delivered(row.run_id, slot, now=parts.clock.now_ms())])
                return
            finally:
                if tried is not None:
                    tried()
            await parts.clock.sleep(pause)

    async def _tell(self, plan: Plan, run: AgentToolRun, result: AgentToolResult) -> None:
        hooks = self._parts.hooks
        await hooks.on_agent_tool_finish(run, result)
        if plan.is_told and (text := await hooks.format_detached_completion(run, result)):
            key = f"detached-finish:{run.run_id}:{result.status}"
            await self._submit(text, key, _marks(plan, run, status=result.status))
        if plan.on_finish is None:
            return
        method = find(hooks.agent, plan.on_finish)
        if method is None:
            log.error(
                "%s has no method %r any more; nobody is told of run %s",
                self._parts.address,
                plan.on_finish,
                run.run_id,
            )
            return
        await call_hook(method, run, result)

    # --- what it passes

    async def milestones(self, row: RunRow) -> None:
        """Tell the conversation of the milestones that it is to hear of and has not, each name once."""
        plan, parts = Plan.of(row), self._parts
        if not plan.milestones:
            return
        async with self._telling:
            passed = await queries.milestones(AgentStore(parts.store.database, row.child), row.run_id)
            known = {one.name for one in passed if one.told_at is not None}
            for one in passed:
                if one.name not in plan.milestones or one.name in known:
                    continue
                known.add(one.name)
                try:
                    await self._tell_milestone(plan, described(row), milestone_of(one))
                except Exception as error:  # noqa: BLE001 - the run must come to its end whatever a hook says
                    await parts.hooks.on_error(error)  # and it is tried again with what is told next
                    continue
                told = queries.milestones_told(row.child, row.run_id, one.name, now=parts.clock.now_ms())
                await parts.store.apply([told])

    async def _tell_milestone(self, plan: Plan, run: AgentToolRun, milestone: AgentToolProgress) -> None:
        text = await self._parts.hooks.format_detached_milestone(run, milestone)
        if not text:
            return
        key = f"detached-ms:{run.run_id}:{milestone.milestone}"
        marks = _marks(plan, run, milestone=milestone.milestone)
        if plan.mode == "react":
            await self._submit(text, key, marks)
        elif self._parts.add is not None:
            await self._parts.add(_message("assistant", text, marks, id=key))

    async def _submit(self, text: str, key: str, marks: dict[str, Any]) -> None:
        if self._parts.submit is not None:
            await self._parts.submit(_message("user", text, marks), idempotency_key=key, metadata=marks)


def _marks(plan: Plan, run: AgentToolRun, **more: Any) -> dict[str, Any]:
    return {"source": plan.source, "runId": run.run_id, "agentType": run.agent_type, **more}


def _message(role: str, text: str, marks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "text": text}], "metadata": marks, **more}


# --- in words, unless the agent has its own


def completion_text(run: AgentToolRun, result: AgentToolResult) -> str:
    """What the conversation reads of a run that is over, or was given up."""
    what = f"The background run of {_name(run)} ({run.run_id})"
    match result.status:
        case "completed":
            return f"{what} is complete:\n\n{result.summary or 'It said nothing.'}"
        case "aborted":
            return f"{what} was stopped: {result.error}"
        case "interrupted":
            return f"{what} was given up: {result.error}"
        case _:
            return f"{what} has failed: {result.error}"


def milestone_text(run: AgentToolRun, milestone: AgentToolProgress) -> str:
    """What the conversation reads of a milestone."""
    said = f": {milestone.message}" if milestone.message else "."
    return f"The background run of {_name(run)} has reached {milestone.milestone!r}{said}"


def _name(run: AgentToolRun) -> str:
    return (run.display or {}).get("name") or run.agent_type
