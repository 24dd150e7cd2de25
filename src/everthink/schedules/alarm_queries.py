"""The table `alarms`: definition and statements; nobody else touches it.

One row is a callback and when it is due. `time` is the moment it is meant for, `due_at` the one to
wake for it (later than `time` when it was put off). `started_at` and `starts` are written before the
callback runs: a row that has them and does not run was cut off.
"""

from __future__ import annotations

from typing import NamedTuple

from ..store.port import Row, Statement

__all__ = [
    "ANY",
    "BY_ID",
    "DUE",
    "NEXT",
    "NEXT_CLASS",
    "TABLES",
    "AlarmRow",
    "cancelled",
    "created",
    "ended",
    "listed",
    "moved",
    "put_off",
    "released",
    "similar",
    "started",
]

TABLES = (
    """CREATE TABLE alarms (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        class TEXT NOT NULL,
        callback TEXT NOT NULL,
        payload TEXT NOT NULL,
        type TEXT NOT NULL,
        time BIGINT NOT NULL,
        due_at BIGINT NOT NULL,
        delay_ms BIGINT,
        cron TEXT,
        interval_ms BIGINT,
        retry TEXT,
        created_at BIGINT NOT NULL,
        started_at BIGINT,
        starts BIGINT NOT NULL,
        strikes BIGINT NOT NULL,
        PRIMARY KEY (agent, id)
    ) /* clustered */""",
    "CREATE INDEX alarms_due ON alarms (class, due_at, agent, id)",
)


class AlarmRow(NamedTuple):
    """A row, in the order of its columns below."""

    id: str
    callback: str
    payload: str
    type: str
    time: int
    due_at: int
    delay_ms: int | None
    cron: str | None
    interval_ms: int | None
    retry: str | None
    started_at: int | None
    starts: int
    strikes: int

    @classmethod
    def of(cls, row: Row) -> AlarmRow:
        """A row as the store gives it."""
        return cls(*row)


_COLUMNS = ", ".join(AlarmRow._fields)

BY_ID = f"SELECT {_COLUMNS} FROM alarms WHERE agent = :agent AND id = ?"

DUE = f"SELECT {_COLUMNS} FROM alarms WHERE agent = :agent AND due_at <= ? ORDER BY due_at, id LIMIT ?"

NEXT = (
    "SELECT due_at, agent, id FROM alarms WHERE class = ? AND (due_at, agent, id) > (?, ?, ?)"
    " ORDER BY due_at, agent, id LIMIT ?"
)
"""The alarms of all agents of a class, the earliest first, from a given one on: read from the index alone."""

ANY = "SELECT 1 FROM alarms WHERE agent = ? LIMIT 1"

NEXT_CLASS = "SELECT MIN(class) FROM alarms WHERE class > ?"


def listed(*, id: str | None, type: str | None, start: int | None, end: int | None) -> Statement:
    """The alarms of an agent, those that fit what is given, the earliest first."""
    sql = f"SELECT {_COLUMNS} FROM alarms WHERE agent = :agent"
    params: list[str | int] = []
    for column, value in (("id = ?", id), ("type = ?", type), ("time >= ?", start), ("time <= ?", end)):
        if value is not None:
            sql += f" AND {column}"
            params.append(value)
    return Statement(f"{sql} ORDER BY time, id", tuple(params))


def similar(
    *, type: str, callback: str, payload: str, cron: str | None, interval_ms: int | None
) -> Statement:
    """An alarm of the same type for the same callback and payload, and the same rhythm if there is one."""
    sql = f"SELECT {_COLUMNS} FROM alarms WHERE agent = :agent AND type = ? AND callback = ? AND payload = ?"
    params: list[str | int] = [type, callback, payload]
    for column, value in (("cron", cron), ("interval_ms", interval_ms)):
        if value is not None:
            sql += f" AND {column} = ?"
            params.append(value)
    return Statement(f"{sql} ORDER BY created_at, id LIMIT 1", tuple(params))


def created(cls: str, row: AlarmRow, *, now: int) -> Statement:
    """A new alarm."""
    return Statement(
        f"INSERT INTO alarms (agent, class, created_at, {_COLUMNS})"
        f" VALUES (:agent, ?, ?{', ?' * len(AlarmRow._fields)})",
        (cls, now, *row),
    )


def cancelled(id: str) -> Statement:
    """The alarm is taken back; gives its callback, if it was there."""
    return Statement("DELETE FROM alarms WHERE agent = :agent AND id = ? RETURNING callback", (id,))


def started(id: str, *, now: int) -> Statement:
    """Its callback is about to run; gives how often that was said. Nothing when it was cancelled."""
    return Statement(
        "UPDATE alarms SET started_at = ?, starts = starts + 1"
        " WHERE agent = :agent AND id = ? RETURNING starts",
        (now, id),
    )


def ended(id: str) -> Statement:
    """A one-shot is over."""
    return Statement("DELETE FROM alarms WHERE agent = :agent AND id = ?", (id,))


def moved(id: str, *, time: int) -> Statement:
    """What comes again is over for now, and due again at `time`."""
    return Statement(
        "UPDATE alarms SET time = ?, due_at = ?, started_at = NULL, starts = 0, strikes = 0"
        " WHERE agent = :agent AND id = ?",
        (time, time, id),
    )


def released(id: str) -> Statement:
    """It was stopped on the way and does not run any more."""
    return Statement("UPDATE alarms SET started_at = NULL WHERE agent = :agent AND id = ?", (id,))


def put_off(id: str, *, until: int, strikes: int) -> Statement:
    """It stays what it is, but nobody wakes for it before `until`."""
    return Statement(
        "UPDATE alarms SET due_at = ?, strikes = ? WHERE agent = :agent AND id = ?", (until, strikes, id)
    )
