"""The table `scheduled_tasks`, one row per declared task: its definition and its few statements."""

from __future__ import annotations

from typing import NamedTuple

from ..store.port import Row, Statement

__all__ = ["ALL", "ONE", "TABLES", "TaskRow", "advanced", "declared", "forgotten", "renamed"]

TABLES = (
    """CREATE TABLE scheduled_tasks (
        agent TEXT NOT NULL,
        task_id TEXT NOT NULL,
        schedule_hash TEXT NOT NULL,
        task_hash TEXT NOT NULL,
        alarm_id TEXT,
        next_run_at BIGINT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (agent, task_id)
    ) /* clustered */""",
)

_COLUMNS = "task_id, schedule_hash, task_hash, alarm_id, next_run_at"
ALL = f"SELECT {_COLUMNS} FROM scheduled_tasks WHERE agent = :agent ORDER BY task_id"
ONE = f"SELECT {_COLUMNS} FROM scheduled_tasks WHERE agent = :agent AND task_id = ?"


class TaskRow(NamedTuple):
    """A row, in the order of its columns above."""

    task_id: str
    schedule_hash: str
    task_hash: str
    alarm_id: str | None
    next_run_at: int | None

    @classmethod
    def of(cls, row: Row) -> TaskRow:
        """The row as the store gave it."""
        return cls(*row)


def declared(id: str, *, schedule_hash: str, task_hash: str, now: int) -> Statement:
    """A task that is new, or has another schedule than before: it has no timer yet."""
    return Statement(
        "INSERT INTO scheduled_tasks"
        " (agent, task_id, schedule_hash, task_hash, alarm_id, next_run_at, created_at, updated_at)"
        " VALUES (:agent, ?, ?, ?, NULL, NULL, ?, ?) ON CONFLICT (agent, task_id) DO UPDATE SET"
        " schedule_hash = excluded.schedule_hash, task_hash = excluded.task_hash, alarm_id = NULL,"
        " next_run_at = NULL, updated_at = excluded.updated_at",
        (id, schedule_hash, task_hash, now, now),
    )


def renamed(id: str, *, task_hash: str, now: int) -> Statement:
    """What the task does has changed; when it runs has not."""
    return Statement(
        "UPDATE scheduled_tasks SET task_hash = ?, updated_at = ? WHERE agent = :agent AND task_id = ?",
        (task_hash, now, id),
    )


def advanced(id: str, *, schedule_hash: str, alarm_id: str, next_run_at: int, now: int) -> Statement:
    """The timer of the next occurrence, unless the schedule has changed meanwhile."""
    return Statement(
        "UPDATE scheduled_tasks SET alarm_id = ?, next_run_at = ?, updated_at = ?"
        " WHERE agent = :agent AND task_id = ? AND schedule_hash = ?",
        (alarm_id, next_run_at, now, id, schedule_hash),
    )


def forgotten(id: str) -> Statement:
    """The task is not declared any more."""
    return Statement("DELETE FROM scheduled_tasks WHERE agent = :agent AND task_id = ?", (id,))
