"""How often a turn may be interrupted: the record of an incident, and the decision about it.

    record + progress + clock reading + settings --evaluate--> Assessment --> recovery/recover acts

Pure. A turn that keeps producing content is never given up, however long it takes; one that does
not gets a bounded number of attempts and one visible end.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from .. import chunks as ui
from ..settings import as_settings, check_fields

__all__ = [
    "DELTA_WINDOW_MS",
    "INCIDENT_TTL_MS",
    "TERMINAL_MESSAGE",
    "Assessment",
    "ChatRecovery",
    "Exhausted",
    "ExhaustedReason",
    "Incident",
    "IncidentStatus",
    "KeepRecovering",
    "Kind",
    "evaluate",
    "incident_id",
    "progress_of",
    "settings_of",
]

Kind = Literal["retry", "continue"]
IncidentStatus = Literal["attempting", "scheduled", "completed", "skipped", "failed", "exhausted"]
ExhaustedReason = Literal[
    "work_budget_exceeded",
    "no_progress_timeout",
    "recovery_aborted",
    "max_attempts_exceeded",
    "stable_timeout",
    "recovery_error",
]

TERMINAL_MESSAGE = "The assistant was interrupted and could not recover. Please try again."
DELTA_WINDOW_MS = 5_000
"""Deltas count as progress once in so many milliseconds."""
INCIDENT_TTL_MS = 3_600_000
"""An incident nothing happened to for so long is forgotten."""


@dataclass(frozen=True, slots=True)
class KeepRecovering:
    """What `should_keep_recovering` is asked about. `age` is in seconds."""

    incident_id: str
    request_id: str
    recovery_root_request_id: str
    attempt: int
    max_attempts: int
    recovery_kind: Kind
    work: int
    age: float


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A turn recovery gave up on, for `on_exhausted`."""

    incident_id: str
    request_id: str
    recovery_root_request_id: str
    attempt: int
    max_attempts: int
    recovery_kind: Kind
    stream_id: str
    created_at: datetime
    """When the turn was accepted."""
    partial_text: str
    partial_parts: list[dict[str, Any]]
    reason: ExhaustedReason
    terminal_message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRecovery:
    """How interrupted turns are recovered: `chat_recovery = ChatRecovery(max_attempts=6)`.

    Seconds are floats. Read anew at each use, so it may be changed on a live agent.
    """

    max_attempts: int = 10
    """Attempts without progress, however close together. Progress starts the count again."""
    no_progress_timeout: float = 300.0
    """Seconds without anything new after which a turn counts as stuck."""
    stable_timeout: float = 10.0
    """Seconds an attempt waits for its turn in the queue before it is put off."""
    max_recovery_work: float = math.inf
    """So much may be produced since the incident opened: a guard against a turn that never ends."""
    terminal_message: str = TERMINAL_MESSAGE
    """What people read when a turn is given up."""
    should_keep_recovering: Callable[[KeepRecovering], bool | Awaitable[bool | None] | None] | None = None
    """Asked from the second attempt on; only `False` stops. Not bound to the agent."""
    on_exhausted: Callable[[Exhausted], Any] | None = None
    """Told once when a turn is given up. Raising is logged."""

    def __post_init__(self) -> None:
        check_fields(self, "ChatRecovery")
        set_ = object.__setattr__
        attempts = min(max(1, _number(self.max_attempts, 10)), sys.maxsize)
        set_(self, "max_attempts", math.floor(attempts))
        set_(self, "no_progress_timeout", max(0.0, _number(self.no_progress_timeout, 300.0)))
        set_(self, "stable_timeout", max(0.0, _number(self.stable_timeout, 10.0)))
        work = _number(self.max_recovery_work, math.inf)
        set_(self, "max_recovery_work", math.inf if work < 0 else work)


def _number(value: Any, default: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return default if not is_number or math.isnan(value) else value


_USUAL = ChatRecovery()


def settings_of(chosen: Any) -> ChatRecovery | None:
    """The settings behind `chat_recovery`: `None` when it is off, the defaults for `True`."""
    if chosen is None or isinstance(chosen, bool):
        return None if chosen is False else _USUAL
    return as_settings(ChatRecovery, chosen, "chat_recovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """The record of one turn's interruptions. Retry and continue share it, and so one budget."""

    id: str
    request_id: str
    kind: Kind
    attempt: int
    max_attempts: int
    status: IncidentStatus
    first_seen_at: int
    last_attempt_at: int
    last_progress_at: int
    progress: int = 0
    work_baseline: int = 0
    reason: str | None = None

    @property
    def work(self) -> int:
        """What was produced since it opened."""
        return self.progress - self.work_baseline


def incident_id(request_id: str, user_message_id: str | None) -> str:
    """One per turn and question; how it is recovered is no part of it."""
    return f"{request_id}:{user_message_id or ''}"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What an interruption means. `exhausted`: the bound it hit, if any."""

    incident: Incident
    is_new: bool
    exhausted: ExhaustedReason | None
    asks_policy: bool
    """True when `should_keep_recovering` has a say."""


def evaluate(
    known: Incident | None,
    *,
    id: str,
    request_id: str,
    kind: Kind,
    progress: int,
    now: int,
    settings: ChatRecovery,
    awaiting: bool,
    worked_at: int = 0,
) -> Assessment:
    """Count an interruption. `progress` is what the turn has produced, `awaiting` that it waits for a person,
    `worked_at` when the children that it waits for last did something.

    A turn that waits for a person is never given up.
    """
    limit = settings.max_attempts
    if known is None:
        incident = Incident(
            id=id,
            request_id=request_id,
            kind=kind,
            attempt=1,
            max_attempts=limit,
            status="attempting",
            first_seen_at=now,
            last_attempt_at=now,
            last_progress_at=now,
            progress=progress,
            work_baseline=progress,
        )
        return Assessment(incident, True, None, False)
    progressed = progress > known.progress or worked_at > known.last_attempt_at
    last_progress = now if progressed or awaiting else known.last_progress_at
    attempt = 1 if progressed else known.attempt + 1
    incident = replace(
        known,
        kind=kind,
        attempt=attempt,
        max_attempts=limit,
        status="attempting",
        last_attempt_at=now,
        last_progress_at=last_progress,
        progress=max(known.progress, progress),
        reason=None,
    )
    reason: ExhaustedReason | None = None
    if awaiting:
        pass
    elif incident.work > settings.max_recovery_work:
        reason = "work_budget_exceeded"
    elif now - last_progress > settings.no_progress_timeout * 1000:
        reason = "no_progress_timeout"
    elif attempt > limit:
        reason = "max_attempts_exceeded"
    asks = reason is None and not awaiting and settings.should_keep_recovering is not None
    return Assessment(incident, False, reason, asks)


_MILESTONES = (
    ui.TextStart,
    ui.ReasoningStart,
    ui.ToolInputAvailable,
    ui.ToolOutputAvailable,
    ui.ToolOutputError,
    ui.ToolOutputDenied,
)
_DELTAS = (ui.TextDelta, ui.ReasoningDelta, ui.ToolInputDelta)


def progress_of(written: Iterable[tuple[int, Iterable[ui.Chunk]]]) -> int:
    """How far a turn got, from its journal: (when, chunks) of each segment, in order.

    Starts of blocks and outcomes count always; deltas once per window, so that one very long
    block counts as progress too. Derived, never stored: what is in the journal was produced.
    """
    units = 0
    window: int | None = None
    for at, chunks in written:
        for chunk in chunks:
            if isinstance(chunk, _MILESTONES):
                units += 1
            elif isinstance(chunk, _DELTAS) and (window is None or at - window >= DELTA_WINDOW_MS):
                units += 1
                window = at
    return units
