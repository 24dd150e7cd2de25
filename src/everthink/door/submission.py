"""How a submission stands: the value that `submit_messages` gives and `inspect_submission` asks for.

A value of its own, so that who only names it does not load what runs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

__all__ = ["Status", "Submission"]

Status = Literal["pending", "running", "completed", "error", "aborted", "skipped"]


@dataclass(frozen=True, slots=True)
class Submission:
    """How a submission stands. `accepted` is False when the id or key was known already."""

    submission_id: str
    status: Status
    created_at: datetime
    request_id: str | None = None
    """The turn's id."""
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None
    error: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    accepted: bool = False
    cut: tuple[str, ...] = ()
    """When it was just accepted: the ids of its messages that are too large for a row, and stored in part."""
