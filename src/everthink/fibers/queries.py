"""The table `fibers`: its definition and its few statements. Nobody else touches it.

A row of `run_fiber` exists while its work is not done. A row of `start_fiber` (`managed`) is a record that
stays when the work is over. `is_open` says for both that somebody still has to bring it to an end: the
process that runs it or, once that process is gone, recovery. `retry_at` is when recovery tries again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..masking import mask
from ..messages import UNSET
from ..store.port import Statement

__all__ = [
    "ANY_OPEN",
    "BY_ID",
    "BY_KEY",
    "COLUMNS",
    "LAST",
    "OPEN",
    "STILL_OPEN",
    "TABLES",
    "WAITING",
    "accepted",
    "began",
    "cancelled",
    "deleted",
    "interrupted",
    "left",
    "listed",
    "postponed",
    "removed",
    "resolved",
    "resumed",
    "settled",
    "started",
    "stashed",
]

TABLES = (
    """CREATE TABLE fibers (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        name TEXT NOT NULL,
        managed BIGINT NOT NULL,
        status TEXT NOT NULL,
        is_open BIGINT NOT NULL,
        idempotency_key TEXT,
        snapshot TEXT,
        metadata TEXT,
        error TEXT,
        attempts BIGINT NOT NULL,
        retry_at BIGINT,
        created_at BIGINT NOT NULL,
        started_at BIGINT,
        settled_at BIGINT,
        PRIMARY KEY (agent, id)
    ) /* clustered */""",
    "CREATE UNIQUE INDEX fibers_by_key ON fibers (agent, idempotency_key) WHERE idempotency_key IS NOT NULL",
    "CREATE INDEX fibers_open ON fibers (agent, retry_at) WHERE is_open = 1",
)

COLUMNS = (
    "id, name, managed, status, idempotency_key, snapshot, metadata, error, attempts, created_at, started_at,"
    " settled_at"
)
BY_ID = f"SELECT {COLUMNS} FROM fibers WHERE agent = :agent AND id = ? AND managed = 1"
BY_KEY = f"SELECT {COLUMNS} FROM fibers WHERE agent = :agent AND idempotency_key = ?"
# Those that failed least often come first, so that one that always fails cannot keep the others waiting.
OPEN = f"SELECT {COLUMNS} FROM fibers WHERE agent = :agent AND is_open = 1 ORDER BY attempts, seq"
STILL_OPEN = f"SELECT {COLUMNS} FROM fibers WHERE agent = :agent AND id = ? AND is_open = 1"
ANY_OPEN = "SELECT 1 FROM fibers WHERE agent = ? AND is_open = 1 LIMIT 1"
LAST = "SELECT MAX(COALESCE(settled_at, created_at)) FROM fibers WHERE agent = ?"
WAITING = "SELECT agent, MIN(COALESCE(retry_at, 0)) FROM fibers WHERE is_open = 1 GROUP BY agent"

# --- running

# The number of a new fiber is above those of all that are kept. No clock is asked: it may be behind
# that of the machine on which the agent ran before.
_NEXT, _OF_THE_AGENT = "COALESCE(MAX(seq), 0) + 1", "FROM fibers WHERE agent = :agent"


def began(id: str, *, name: str, snapshot: str | None, now: int) -> Statement:
    """A fiber of `run_fiber` is about to run."""
    return Statement(
        "INSERT INTO fibers (agent, id, seq, name, managed, status, is_open, snapshot, attempts, created_at,"
        f" started_at) SELECT :agent, ?, {_NEXT}, ?, 0, 'running', 1, ?, 0, ?, ? {_OF_THE_AGENT}",
        (id, name, snapshot, now, now),
    )


def removed(id: str) -> Statement:
    """A fiber of `run_fiber` is over."""
    return Statement("DELETE FROM fibers WHERE agent = :agent AND id = ? AND managed = 0", (id,))


def accepted(id: str, *, name: str, key: str | None, metadata: str | None, now: int) -> Statement:
    """A managed fiber is ours from here on."""
    return Statement(
        "INSERT INTO fibers (agent, id, seq, name, managed, status, is_open, idempotency_key, metadata,"
        f" attempts, created_at) SELECT :agent, ?, {_NEXT}, ?, 1, 'pending', 1, ?, ?, 0, ? {_OF_THE_AGENT}",
        (id, name, key, metadata, now),
    )


def started(id: str, *, now: int) -> Statement:
    """A managed fiber is about to run. Returns its id; nothing when it was cancelled before that."""
    return Statement(
        "UPDATE fibers SET status = 'running', started_at = ?"
        " WHERE agent = :agent AND id = ? AND status = 'pending' RETURNING id",
        (now, id),
    )


def stashed(id: str, snapshot: str) -> Statement:
    """The fiber's checkpoint, in place of the one before."""
    return Statement("UPDATE fibers SET snapshot = ? WHERE agent = :agent AND id = ?", (snapshot, id))


def settled(id: str, *, status: str, error: str | None, now: int) -> Statement:
    """A managed fiber is over. One that was over already (it was cancelled) stays as it is."""
    return Statement(
        "UPDATE fibers SET status = ?, error = ?, settled_at = ?, is_open = 0"
        " WHERE agent = :agent AND id = ? AND managed = 1 AND status IN ('pending', 'running') RETURNING id",
        (status, error and mask(error), now, id),
    )


def cancelled(id: str, *, reason: str | None, now: int) -> Statement:
    """A managed fiber is not wanted any more. Returns its id; nothing when it is over."""
    return settled(id, status="aborted", error=reason, now=now)


# --- recovery


def interrupted(id: str, *, now: int) -> Statement:
    """The process of a managed fiber is gone. Returns the row; nothing when somebody ended it."""
    return Statement(
        "UPDATE fibers SET status = 'interrupted', settled_at = ?"
        " WHERE agent = :agent AND id = ? AND managed = 1 AND is_open = 1"
        f" AND status IN ('pending', 'running', 'interrupted') RETURNING {COLUMNS}",
        (now, id),
    )


def left(id: str) -> Statement:
    """Recovery of a managed fiber is over and changed nothing: it stays interrupted."""
    return Statement(
        "UPDATE fibers SET is_open = 0, retry_at = NULL WHERE agent = :agent AND id = ? AND managed = 1",
        (id,),
    )


def resolved(
    id: str,
    *,
    status: str,
    error: str | None,
    snapshot: Any = UNSET,
    metadata: Any = UNSET,
    now: int,
    by_recovery: bool,
) -> Statement:
    """What became of an interrupted fiber. `UNSET` keeps what is stored. Returns its id; nothing when it is
    not interrupted, or (for recovery) when somebody else resolved it first.
    """
    changes: dict[str, Any] = {"status": status, "error": error and mask(error), "settled_at": now}
    if snapshot is not UNSET:
        changes["snapshot"] = snapshot
    if metadata is not UNSET:
        changes["metadata"] = metadata
    return Statement(
        f"UPDATE fibers SET {', '.join(f'{column} = ?' for column in changes)}, is_open = 0, retry_at = NULL"
        " WHERE agent = :agent AND id = ? AND managed = 1 AND status = 'interrupted'"
        f"{' AND is_open = 1' if by_recovery else ''} RETURNING id",
        (*changes.values(), id),
    )


def resumed(id: str, *, now: int) -> Statement:
    """A fiber that nobody runs goes on. Returns the row; nothing when there is none to resume."""
    return Statement(
        "UPDATE fibers SET status = 'running', is_open = 1, error = NULL, started_at = ?, settled_at = NULL,"
        " attempts = 0, retry_at = NULL WHERE agent = :agent AND id = ?"
        f" AND (is_open = 1 OR status = 'interrupted') RETURNING {COLUMNS}",
        (now, id),
    )


def postponed(id: str, *, attempts: int, at: int) -> Statement:
    """Recovery tries again later."""
    return Statement(
        "UPDATE fibers SET attempts = ?, retry_at = ? WHERE agent = :agent AND id = ? AND is_open = 1",
        (attempts, at, id),
    )


# --- records


def listed(*, status: Collection[str] | None, name: str | None, limit: int) -> Statement:
    """The managed fibers, newest first."""
    wanted, params = _wanted(status)
    if name is not None:
        wanted, params = f"{wanted} AND name = ?", (*params, name)
    return Statement(
        f"SELECT {COLUMNS} FROM fibers WHERE agent = :agent AND managed = 1{wanted}"
        " ORDER BY seq DESC LIMIT ?",
        (*params, limit),
    )


def deleted(*, status: Collection[str], before: int | None, limit: int) -> Statement:
    """Forget records that are over, those settled first first. Returns their ids."""
    wanted, params = _wanted(status)
    if before is not None:
        wanted, params = f"{wanted} AND settled_at < ?", (*params, before)
    return Statement(
        "DELETE FROM fibers WHERE agent = :agent AND id IN (SELECT id FROM fibers"
        f" WHERE agent = :agent AND managed = 1 AND is_open = 0{wanted} ORDER BY settled_at, seq LIMIT ?)"
        " RETURNING id",
        (*params, limit),
    )


def _wanted(status: Collection[str] | None) -> tuple[str, tuple[Any, ...]]:
    if status is None:
        return "", ()
    if not status:
        return " AND 1 = 0", ()
    return f" AND status IN ({', '.join('?' * len(status))})", tuple(sorted(status))
