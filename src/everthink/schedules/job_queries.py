"""The table `jobs`: definition and statements; nobody else touches it.

One row is a callback that waits for its turn, or runs: then it has `started_at`, written before the
callback is called. `starts` counts how often that happened.
"""

from __future__ import annotations

from typing import NamedTuple

from ..store.port import Row, Statement

__all__ = [
    "ALL",
    "ANY",
    "BY_ID",
    "LEFT",
    "TABLES",
    "JobRow",
    "claimed",
    "dropped",
    "dropped_all",
    "dropped_by_callback",
    "queued",
]

TABLES = (
    """CREATE TABLE jobs (
        agent TEXT NOT NULL,
        seq BIGINT NOT NULL,
        id TEXT NOT NULL,
        callback TEXT NOT NULL,
        payload TEXT NOT NULL,
        retry TEXT,
        created_at BIGINT NOT NULL,
        started_at BIGINT,
        starts BIGINT NOT NULL,
        PRIMARY KEY (agent, seq)
    ) /* clustered */""",
    "CREATE UNIQUE INDEX jobs_by_id ON jobs (agent, id)",
)


class JobRow(NamedTuple):
    """A row, in the order of its columns below."""

    id: str
    callback: str
    payload: str
    retry: str | None
    created_at: int
    started_at: int | None
    starts: int

    @classmethod
    def of(cls, row: Row) -> JobRow:
        """A row as the store gives it."""
        return cls(*row)


_COLUMNS = ", ".join(JobRow._fields)

BY_ID = f"SELECT {_COLUMNS} FROM jobs WHERE agent = :agent AND id = ?"
ALL = f"SELECT {_COLUMNS} FROM jobs WHERE agent = :agent ORDER BY seq"
ANY = "SELECT 1 FROM jobs WHERE agent = ? LIMIT 1"

LEFT = "SELECT DISTINCT agent FROM jobs"
"""The agents that have something to do."""


def queued(row: JobRow) -> Statement:
    """A job at the end of the queue."""
    return Statement(
        f"INSERT INTO jobs (agent, seq, {_COLUMNS})"
        f" SELECT :agent, COALESCE(MAX(seq), 0) + 1{', ?' * len(JobRow._fields)} FROM jobs"
        " WHERE agent = :agent",
        row,
    )


def claimed(*, now: int) -> Statement:
    """The first job of the queue is about to run; gives its row."""
    return Statement(
        "UPDATE jobs SET started_at = ?, starts = starts + 1"
        " WHERE agent = :agent AND seq = (SELECT MIN(seq) FROM jobs WHERE agent = :agent)"
        f" RETURNING {_COLUMNS}",
        (now,),
    )


def dropped(id: str) -> Statement:
    """A job is over, or taken back; gives its id if it was there."""
    return Statement("DELETE FROM jobs WHERE agent = :agent AND id = ? RETURNING id", (id,))


def dropped_all() -> Statement:
    """Every job is taken back; gives their ids."""
    return Statement("DELETE FROM jobs WHERE agent = :agent RETURNING id", ())


def dropped_by_callback(callback: str) -> Statement:
    """The jobs of one callback are taken back; gives their ids."""
    return Statement("DELETE FROM jobs WHERE agent = :agent AND callback = ? RETURNING id", (callback,))
