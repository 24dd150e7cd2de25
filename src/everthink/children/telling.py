"""How a run is told: to windows as events, to code as values, to the database as its last statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from ..clock import moment_of
from ..journal.feed import Feed, RunTold
from ..messages import decode_json
from ..store.port import Statement
from . import queries
from .progress import progress_of
from .queries import RunRow
from .values import (
    CANCELLED,
    FAILED,
    INTERRUPTED,
    AgentToolResult,
    AgentToolRun,
    InterruptedReason,
    RunStatus,
)

__all__ = [
    "DELETED",
    "NO_OUTPUT",
    "OPEN",
    "SKIPPED",
    "WHY",
    "Ended",
    "described",
    "ended_of",
    "piece",
    "result_of",
    "started",
    "stored",
    "stored_result",
    "tell",
    "terminal",
]

OPEN = ("running", "interrupted")
"""States after which the child may still say how it ended."""
SKIPPED = "Agent tool run was skipped before the child could finish."
NO_OUTPUT = "The child ended without the structured output that was asked for."
DELETED = "The sub-agent was deleted before it could finish."
WHY: dict[InterruptedReason, str] = {
    "no-progress": "The child said nothing for too long; it goes on by itself.",
    "window-exceeded": "The child took longer than it may, and was stopped.",
    "budget-exceeded": "The child took longer than it may, and was stopped.",
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    status: RunStatus
    summary: str | None = None
    output: Any = None
    error: str | None = None
    reason: InterruptedReason | None = None
    is_left: bool = False
    """True when the child goes on although nobody waits for it any more."""


def tell(feed: Feed, row: RunRow, sequence: int, event: dict[str, Any], *, is_passing: bool = False) -> None:
    """Tell windows of the parent something of a run, number `sequence` of it."""
    feed.publish(RunTold(row.run_id, row.call_id, sequence, event, is_passing))


def started(row: RunRow) -> dict[str, Any]:
    """The event that begins a run."""
    event: dict[str, Any] = {"kind": "started", "runId": row.run_id, "agentType": row.cls}
    if row.preview is not None:
        event["inputPreview"] = row.preview
    event["order"] = row.place
    if row.display is not None:
        event["display"] = row.shown
    return event


def piece(run_id: str, body: str) -> dict[str, Any]:
    """The event that a piece of what the child says is."""
    return {"kind": "chunk", "runId": run_id, "body": body}


def terminal(run_id: str, ended: Ended) -> dict[str, Any]:
    """The event that ends one."""
    match ended.status:
        case "completed":
            return {"kind": "finished", "runId": run_id, "summary": ended.summary or ""}
        case "aborted":
            reason = {} if ended.error in (None, CANCELLED) else {"reason": ended.error}
            return {"kind": "aborted", "runId": run_id, **reason}
        case "interrupted":
            event = {"kind": "interrupted", "runId": run_id, "error": ended.error or INTERRUPTED}
            why = {} if ended.reason is None else {"reason": ended.reason}
            return {**event, **why, "childStillRunning": ended.is_left}
        case _:
            return {"kind": "error", "runId": run_id, "error": ended.error or FAILED}


def stored(run_id: str, ended: Ended, *, now: int, is_owed: bool = False) -> Statement:
    """What keeps how a run ended. `is_owed`: the parent is to hear of it."""
    return queries.ended(
        run_id,
        status=ended.status,
        summary=ended.summary,
        output=ended.output,
        error=ended.error,
        reason=ended.reason,
        is_left=ended.is_left,
        is_owed=is_owed,
        now=now,
    )


def ended_of(row: RunRow) -> Ended:
    """How a run has ended, by its row."""
    return Ended(
        cast("RunStatus", row.status),
        row.summary,
        None if row.output is None else decode_json(row.output),
        row.error,
        cast("InterruptedReason | None", row.reason),
        bool(row.is_left),
    )


def result_of(row: RunRow, ended: Ended) -> AgentToolResult:
    """What came of a run."""
    return AgentToolResult(
        run_id=row.run_id,
        agent_type=row.cls,
        status=ended.status,
        output=ended.output,
        summary=ended.summary,
        error=ended.error,
        reason=ended.reason,
        child_still_running=ended.is_left,
    )


def stored_result(row: RunRow) -> AgentToolResult:
    """The same for one that is over."""
    return result_of(row, ended_of(row))


def described(row: RunRow) -> AgentToolRun:
    """A run for hooks and lists."""
    return AgentToolRun(
        run_id=row.run_id,
        agent_type=row.cls,
        status=cast("RunStatus", row.status),
        parent_tool_call_id=row.call_id,
        input_preview=row.preview,
        display=row.shown,
        order=row.place,
        is_detached=row.detached is not None,
        progress=None if row.progress is None else progress_of(decode_json(row.progress)),
        started_at=moment_of(row.started_at),
        completed_at=None if row.ended_at is None else moment_of(row.ended_at),
    )
