"""The `incidents` table: its definition and its few statements. Nobody else touches it."""

from __future__ import annotations

from typing import cast

from ..store.port import Row, Statement
from .incident import Incident, IncidentStatus, Kind

__all__ = ["ALL", "ONE", "TABLES", "forget_incident", "forget_old_incidents", "incident_of", "save_incident"]

TABLES = (
    """CREATE TABLE incidents (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        request_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        attempt BIGINT NOT NULL,
        max_attempts BIGINT NOT NULL,
        status TEXT NOT NULL,
        first_seen_at BIGINT NOT NULL,
        last_attempt_at BIGINT NOT NULL,
        last_progress_at BIGINT NOT NULL,
        progress BIGINT NOT NULL,
        work_baseline BIGINT NOT NULL,
        reason TEXT,
        PRIMARY KEY (agent, id)
    ) /* clustered */""",
)

_COLUMNS = (
    "id, request_id, kind, attempt, max_attempts, status, first_seen_at, last_attempt_at, last_progress_at,"
    " progress, work_baseline, reason"
)
ONE = f"SELECT {_COLUMNS} FROM incidents WHERE agent = :agent AND id = ?"
ALL = f"SELECT {_COLUMNS} FROM incidents WHERE agent = :agent ORDER BY first_seen_at, id"


def incident_of(row: Row) -> Incident:
    """The incident of a row."""
    return Incident(
        id=row[0],
        request_id=row[1],
        kind=cast("Kind", row[2]),
        attempt=row[3],
        max_attempts=row[4],
        status=cast("IncidentStatus", row[5]),
        first_seen_at=row[6],
        last_attempt_at=row[7],
        last_progress_at=row[8],
        progress=row[9],
        work_baseline=row[10],
        reason=row[11],
    )


def save_incident(incident: Incident) -> Statement:
    """The incident as it stands now."""
    return Statement(
        f"INSERT INTO incidents (agent, {_COLUMNS}) VALUES (:agent, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, id) DO UPDATE SET kind = excluded.kind, attempt = excluded.attempt,"
        " max_attempts = excluded.max_attempts, status = excluded.status,"
        " last_attempt_at = excluded.last_attempt_at, last_progress_at = excluded.last_progress_at,"
        " progress = excluded.progress, reason = excluded.reason",
        (
            incident.id,
            incident.request_id,
            incident.kind,
            incident.attempt,
            incident.max_attempts,
            incident.status,
            incident.first_seen_at,
            incident.last_attempt_at,
            incident.last_progress_at,
            incident.progress,
            incident.work_baseline,
            incident.reason,
        ),
    )


def forget_incident(id: str) -> Statement:
    """The turn was recovered; the incident is closed."""
    return Statement("DELETE FROM incidents WHERE agent = :agent AND id = ?", (id,))


def forget_old_incidents(*, before: int) -> Statement:
    """Forget incidents nothing has happened to since `before`."""
    return Statement("DELETE FROM incidents WHERE agent = :agent AND last_attempt_at < ?", (before,))
