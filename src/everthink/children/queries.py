"""The tables `child_runs` and `milestones`: definition and statements; nobody else touches them.

A run is one turn of a child that its parent asked for, kept with the parent: who was asked, by which call,
and how it ended. What the child said is in the child's own tables. The row, the child and its turn are
written in one commit, the child's; so its statement names the parent. A milestone is a row of the child.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

from ..masking import mask
from ..messages import decode_json, encode_json
from ..store.port import AgentStore, Row, Statement, Store

__all__ = [
    "LEFT",
    "OWED",
    "TABLES",
    "MilestoneRow",
    "RunRow",
    "Slot",
    "began",
    "claimed",
    "cleared",
    "delivered",
    "ended",
    "is_awaited",
    "kept",
    "last_milestone",
    "milestone",
    "milestones",
    "milestones_told",
    "newest",
    "of_children",
    "one",
    "open_runs",
    "owed",
    "progressed",
    "runs_among",
    "start_told",
]

Slot = Literal["finish", "give_up"]
"""What is delivered of a detached run: how it ended; before that, that it was given up. Each by itself."""

# One that somebody waits for is owed from its end on, and only to a parent that has a hook for it.
_OWED = "finish_delivered_at IS NULL AND (detached IS NOT NULL OR finish_claimed_at IS NOT NULL)"

# Migration 17. `place` is where it stands among the runs of one call.
TABLES = (
    """CREATE TABLE child_runs (
        agent TEXT NOT NULL,
        run_id TEXT NOT NULL,
        child TEXT NOT NULL,
        class TEXT NOT NULL,
        call_id TEXT,
        turn TEXT,
        status TEXT NOT NULL,
        place BIGINT NOT NULL,
        preview TEXT,
        display TEXT,
        summary TEXT,
        output TEXT,
        error TEXT,
        reason TEXT,
        is_left BIGINT NOT NULL DEFAULT 0,
        detached TEXT,
        started_at BIGINT NOT NULL,
        ended_at BIGINT,
        progress TEXT,
        progress_at BIGINT,
        finish_claimed_at BIGINT,
        finish_delivered_at BIGINT,
        give_up_claimed_at BIGINT,
        give_up_delivered_at BIGINT,
        asked TEXT,
        start_owed BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (agent, run_id)
    ) /* clustered */""",
    "CREATE INDEX child_runs_open ON child_runs (agent) WHERE ended_at IS NULL",
    "CREATE INDEX child_runs_by_child ON child_runs (child)",
    f"CREATE INDEX child_runs_owed ON child_runs (agent) WHERE {_OWED}",
    """CREATE TABLE milestones (
        agent TEXT NOT NULL,
        run_id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        name TEXT NOT NULL,
        said TEXT NOT NULL,
        at BIGINT NOT NULL,
        told_at BIGINT,
        PRIMARY KEY (agent, run_id, seq)
    ) /* clustered */""",
)

OWED = f"SELECT DISTINCT agent FROM child_runs WHERE {_OWED}"
"""The parents that wait for a detached run, or have not been told how a run ended."""


class RunRow(NamedTuple):
    """A row, in the order of its columns below."""

    run_id: str
    child: str
    cls: str
    call_id: str | None
    turn: str | None
    status: str
    place: int
    preview: str | None
    display: str | None
    summary: str | None
    output: str | None
    error: str | None
    reason: str | None
    is_left: int
    """1 when the child goes on although nobody waits for it any more."""
    detached: str | None
    """What was said of a run that nobody waits for: see `detached.py`."""
    started_at: int
    ended_at: int | None
    progress: str | None = None
    """How far the child said it was, as JSON."""
    progress_at: int | None = None
    """When it last said so, or passed a milestone."""
    finish_claimed_at: int | None = None
    finish_delivered_at: int | None = None
    give_up_claimed_at: int | None = None
    give_up_delivered_at: int | None = None
    asked: str | None = None
    """What was asked of which class, as a digest: the same id may not ask for something else."""
    start_owed: int = 0
    """1 until the parent has heard that it began."""

    @classmethod
    def of(cls, row: Row) -> RunRow:
        """A row as the store gives it."""
        return cls(*row)

    @property
    def title(self) -> str:
        """What people call who is asked: the name that was given for the run, else that of the class."""
        display: Any = self.shown
        named: Any = cast("dict[str, Any]", display).get("name") if isinstance(display, dict) else None
        return named if isinstance(named, str) and named else self.cls

    @property
    def shown(self) -> Any:
        """How the run is called and drawn, if that was said."""
        return None if self.display is None else decode_json(self.display)


_COLUMNS = (
    "run_id, child, class, call_id, turn, status, place, preview, display, summary, output, error, reason,"
    " is_left, detached, started_at, ended_at, progress, progress_at, finish_claimed_at, finish_delivered_at,"
    " give_up_claimed_at, give_up_delivered_at, asked, start_owed"
)
_ROWS = f"SELECT {_COLUMNS} FROM child_runs WHERE agent = :agent"

_OPEN_STATES = "('running', 'interrupted')"
"""States after which the child may still say how it ended."""


LEFT = "SELECT DISTINCT agent FROM child_runs WHERE ended_at IS NULL"
"""The agents that have runs to look after, whoever's turn it was."""


def runs_among(agents: int) -> str:
    """The latest runs that so many agents asked for, for people who look; with 0 of all there are."""
    which = f" WHERE agent IN ({', '.join('?' * agents)})" if agents else ""
    columns = (
        "run_id, child, class AS child_class, call_id, status, preview, error, reason, started_at, ended_at"
    )
    return f"SELECT agent, {columns} FROM child_runs{which} ORDER BY started_at DESC, run_id DESC LIMIT ?"


async def one(store: AgentStore, run_id: str) -> RunRow | None:
    """A run of an agent."""
    rows = await store.fetch(f"{_ROWS} AND run_id = ?", run_id)
    return RunRow.of(rows[0]) if rows else None


async def open_runs(store: AgentStore) -> list[RunRow]:
    """The runs that are not over, the oldest first."""
    return _all(await store.fetch(f"{_ROWS} AND ended_at IS NULL ORDER BY started_at, run_id"))


async def owed(store: AgentStore) -> list[RunRow]:
    """The runs whose end was not delivered yet, the oldest first: those that are detached, under way or not,
    and those whose parent has not heard of their end."""
    return _all(await store.fetch(f"{_ROWS} AND {_OWED} ORDER BY started_at, run_id"))


async def is_awaited(database: Store, child: str) -> bool:
    """True when the parent of an agent waits for a run of it, or has not been told how it ended."""
    owed = "detached IS NOT NULL AND finish_delivered_at IS NULL"
    sql = f"SELECT 1 FROM child_runs WHERE child = ? AND (ended_at IS NULL OR ({owed})) LIMIT 1"
    return bool(await database.fetch(sql, child))


async def newest(store: AgentStore, limit: int) -> list[RunRow]:
    """So many of the latest runs, the oldest of them first."""
    return _all(await store.fetch(f"{_ROWS} ORDER BY started_at DESC, run_id DESC LIMIT ?", limit))[::-1]


async def kept(store: AgentStore, *, before: int | None = None) -> list[RunRow]:
    """All runs that began before a time, or all."""
    if before is None:
        return _all(await store.fetch(f"{_ROWS} ORDER BY started_at, run_id"))
    return _all(await store.fetch(f"{_ROWS} AND started_at < ? ORDER BY started_at, run_id", before))


async def of_children(database: Store, children: Sequence[str]) -> dict[str, RunRow]:
    """The latest run of each of these children, by the id of the child. Whoever its parent is."""
    if not children:
        return {}
    marks = ", ".join("?" * len(children))
    sql = f"SELECT {_COLUMNS} FROM child_runs WHERE child IN ({marks}) ORDER BY started_at, run_id"
    return {row.child: row for row in _all(await database.fetch(sql, *children))}


def _all(rows: list[Row]) -> list[RunRow]:
    return [RunRow.of(row) for row in rows]


def began(agent: str, row: RunRow) -> Statement:
    """A run of this agent begins, or could not. In a commit of the child, or of the agent itself."""
    marks = ", ".join("?" * (1 + len(row)))
    return Statement(
        f"INSERT INTO child_runs (agent, {_COLUMNS}) VALUES ({marks}) ON CONFLICT (agent, run_id) DO NOTHING",
        (agent, *row),
    )


def ended(
    run_id: str,
    *,
    status: str,
    summary: str | None = None,
    output: Any = None,
    error: str | None = None,
    reason: str | None = None,
    is_left: bool = False,
    is_owed: bool = False,
    now: int,
) -> Statement:
    """How a run ended. One that is over for good stays as it is; one that was only left may be put right.

    Returns its id when that is so. `is_owed`: the parent is to hear of it, until `delivered` says so.
    """
    claim = ", finish_claimed_at = ?, finish_delivered_at = NULL" if is_owed else ""
    return Statement(
        "UPDATE child_runs SET status = ?, summary = ?, output = ?, error = ?, reason = ?, is_left = ?,"
        f" ended_at = ?{claim} WHERE agent = :agent AND run_id = ? AND status IN {_OPEN_STATES}"
        " RETURNING run_id",
        (
            status,
            summary,
            None if output is None else encode_json(output).decode(),
            error and mask(error),
            reason,
            int(is_left),
            now,
            *([now] if is_owed else []),
            run_id,
        ),
    )


def cleared(run_id: str) -> Statement:
    """Forget a run."""
    return Statement("DELETE FROM child_runs WHERE agent = :agent AND run_id = ?", (run_id,))


# --- what is delivered of detached runs


def claimed(run_id: str, slot: Slot, *, now: int) -> Statement:
    """It is about to be delivered. Returns the run's id unless it was already, or there is no such run."""
    return Statement(
        f"UPDATE child_runs SET {slot}_claimed_at = ? WHERE agent = :agent AND run_id = ?"
        f" AND detached IS NOT NULL AND {slot}_delivered_at IS NULL RETURNING run_id",
        (now, run_id),
    )


def delivered(run_id: str, slot: Slot, *, now: int) -> Statement:
    """It was."""
    return Statement(
        f"UPDATE child_runs SET {slot}_delivered_at = ? WHERE agent = :agent AND run_id = ?", (now, run_id)
    )


def start_told(run_id: str) -> Statement:
    """The parent has heard that a run began."""
    return Statement("UPDATE child_runs SET start_owed = 0 WHERE agent = :agent AND run_id = ?", (run_id,))


# --- how far a child is


def progressed(agent: str, run_id: str, *, progress: str | None, now: int) -> Statement:
    """How far a run of this agent is. In a commit of the child; `None` keeps what was said before."""
    return Statement(
        "UPDATE child_runs SET progress = COALESCE(?, progress), progress_at = ?"
        " WHERE agent = ? AND run_id = ?",
        (progress, now, agent, run_id),
    )


class MilestoneRow(NamedTuple):
    """A milestone that a child has passed."""

    seq: int
    name: str
    said: str
    at: int
    told_at: int | None
    """When the parent's conversation was told of it."""


async def last_milestone(child: AgentStore, run_id: str) -> int:
    """The number of the last one; 0 when there is none."""
    rows = await child.fetch("SELECT MAX(seq) FROM milestones WHERE agent = :agent AND run_id = ?", run_id)
    return rows[0][0] or 0


async def milestones(child: AgentStore, run_id: str) -> list[MilestoneRow]:
    """Those of a run, in order."""
    rows = await child.fetch(
        "SELECT seq, name, said, at, told_at FROM milestones WHERE agent = :agent AND run_id = ?"
        " ORDER BY seq",
        run_id,
    )
    return [MilestoneRow(*row) for row in rows]


def milestone(run_id: str, seq: int, name: str, said: str, *, now: int) -> Statement:
    """A child passes a milestone."""
    return Statement(
        "INSERT INTO milestones (agent, run_id, seq, name, said, at) VALUES (:agent, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, run_id, seq) DO NOTHING",
        (run_id, seq, name, said, now),
    )


def milestones_told(child: str, run_id: str, name: str, *, now: int) -> Statement:
    """The parent's conversation was told of those of this name. In a commit of the parent."""
    return Statement(
        "UPDATE milestones SET told_at = ? WHERE agent = ? AND run_id = ? AND name = ?",
        (now, child, run_id, name),
    )
