"""The `sessions` table: what an agent knows about its sessions besides what was said in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..clock import moment_of, ms_of
from ..store.port import Row, Statement

__all__ = ["ALL", "ONE", "TABLES", "SessionInfo", "created", "ended", "info_of", "removed", "renamed", "used"]

TABLES = (
    """CREATE TABLE sessions (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        parent_session TEXT,
        model TEXT,
        source TEXT,
        input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL,
        estimated_cost DOUBLE PRECISION NOT NULL,
        end_reason TEXT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (agent, id)
    ) /* clustered */""",
)

_COLUMNS = (
    "id, name, parent_session, model, source, input_tokens, output_tokens, estimated_cost, end_reason,"
    " created_at, updated_at"
)
ONE = f"SELECT {_COLUMNS} FROM sessions WHERE agent = :agent AND id = ?"
ALL = (
    f"SELECT {_COLUMNS} FROM sessions WHERE agent = :agent ORDER BY updated_at DESC, created_at DESC, id DESC"
)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """What is known about a session besides what was said in it."""

    id: str
    name: str
    parent_session_id: str | None
    """The session it was forked from."""
    model: str | None
    source: str | None
    input_tokens: int
    output_tokens: int
    estimated_cost: float
    end_reason: str | None
    """`"compaction"` when it went on in another session."""
    created_at: datetime
    updated_at: datetime


def info_of(row: Row) -> SessionInfo:
    """A row of `ONE` or `ALL`."""
    *about, created, updated = row
    return SessionInfo(*about, created_at=moment_of(created), updated_at=moment_of(updated))


def created(info: SessionInfo) -> Statement:
    """Note a new session. One that exists stays as it is."""
    return Statement(
        f"INSERT INTO sessions (agent, {_COLUMNS}) VALUES (:agent, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, id) DO NOTHING",
        (
            info.id,
            info.name,
            info.parent_session_id,
            info.model,
            info.source,
            info.input_tokens,
            info.output_tokens,
            info.estimated_cost,
            info.end_reason,
            ms_of(info.created_at),
            ms_of(info.updated_at),
        ),
    )


def used(id: str, *, input: int, output: int, cost: float, now: int, name: str = "") -> Statement:
    """Add to a session's totals, and say that it was used now. Notes the session when it is not yet."""
    return Statement(
        f"INSERT INTO sessions (agent, {_COLUMNS})"
        " VALUES (:agent, ?, ?, NULL, NULL, NULL, ?, ?, ?, NULL, ?, ?)"
        " ON CONFLICT (agent, id) DO UPDATE SET input_tokens = sessions.input_tokens + excluded.input_tokens,"
        " output_tokens = sessions.output_tokens + excluded.output_tokens,"
        " estimated_cost = sessions.estimated_cost + excluded.estimated_cost,"
        " updated_at = excluded.updated_at",
        (id, name, input, output, cost, now, now),
    )


def renamed(id: str, name: str, *, now: int) -> Statement:
    """Give a session another name. Returns its id; nothing when there is none."""
    return Statement(
        "UPDATE sessions SET name = ?, updated_at = ? WHERE agent = :agent AND id = ? RETURNING id",
        (name, now, id),
    )


def ended(id: str, *, reason: str, now: int) -> Statement:
    """Say why a session does not go on."""
    return Statement(
        "UPDATE sessions SET end_reason = ?, updated_at = ? WHERE agent = :agent AND id = ?",
        (reason, now, id),
    )


def removed(id: str) -> Statement:
    """Forget a session. Returns its id; nothing when there is none."""
    return Statement("DELETE FROM sessions WHERE agent = :agent AND id = ? RETURNING id", (id,))
