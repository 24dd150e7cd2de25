"""The `suspects` table: attempts that were begun and have not been seen to end. Nobody else touches it.

A row is written before an attempt begins, and removed when it ends: one that is still there at the next
start tells that the process died in the middle, or had to be killed. `turn` is empty for the start of
the agent itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..clock import EPOCH, moment_of, ms_of
from ..store.port import AgentStore, Row, Statement, Store

__all__ = [
    "ALL",
    "ALL_OF_AGENT",
    "ASIDE",
    "ONE",
    "STRIKES",
    "TABLES",
    "Suspect",
    "all_aside",
    "aside_of",
    "cleared",
    "counted",
    "counted_start",
    "dropped",
    "put_aside",
    "released",
    "suspect_of",
]

STRIKES = 3
"""So many attempts may end with the process; then it is not tried any more."""

TABLES = (
    """CREATE TABLE suspects (
        agent TEXT NOT NULL,
        turn TEXT NOT NULL,
        strikes BIGINT NOT NULL,
        said BIGINT NOT NULL,
        first_at BIGINT NOT NULL,
        last_at BIGINT NOT NULL,
        what TEXT NOT NULL,
        is_aside BIGINT NOT NULL,
        PRIMARY KEY (agent, turn)
    ) /* clustered */""",
)

_COLUMNS = "agent, turn, strikes, said, first_at, last_at, what, is_aside"
ALL = f"SELECT {_COLUMNS} FROM suspects ORDER BY agent, turn"
ALL_OF_AGENT = f"SELECT {_COLUMNS} FROM suspects WHERE agent = :agent"
ONE = f"SELECT {_COLUMNS} FROM suspects WHERE agent = :agent AND turn = ?"
_IS_ASIDE = f"(is_aside = 1 OR strikes >= {STRIKES})"
ASIDE = f"SELECT {_COLUMNS} FROM suspects WHERE {_IS_ASIDE} ORDER BY last_at, agent, turn"
_ASIDE_OF_AGENT = (
    f"SELECT {_COLUMNS} FROM suspects WHERE agent = :agent AND {_IS_ASIDE} ORDER BY last_at, turn"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A turn, or an agent, whose attempts ended with the process."""

    agent: str
    """Class and name: `Assistant/room-1`."""
    turn: str = ""
    """The turn's id; empty when it is the start of the agent."""
    strikes: int = 1
    """How many attempts in a row the process did not survive, without anything new in between."""
    said: int = -1
    """The number of the turn's last chunk when the last attempt began."""
    first_at: datetime = EPOCH
    last_at: datetime = EPOCH
    what: str = ""
    """What was being tried, or what stands in the way."""
    is_aside: bool = False
    """True when it is not tried any more until somebody releases it."""


def suspect_of(row: Row) -> Suspect:
    """The suspect of a row."""
    return Suspect(
        agent=row[0],
        turn=row[1],
        strikes=row[2],
        said=row[3],
        first_at=moment_of(row[4]),
        last_at=moment_of(row[5]),
        what=row[6],
        is_aside=bool(row[7]),
    )


async def all_aside(store: Store) -> list[Suspect]:
    """What is not tried any more until it is released, of all agents."""
    return [suspect_of(row) for row in await store.fetch(ASIDE)]


async def aside_of(store: AgentStore) -> list[Suspect]:
    """The same of one agent."""
    return [suspect_of(row) for row in await store.fetch(_ASIDE_OF_AGENT)]


def counted(suspect: Suspect) -> Statement:
    """An attempt begins, or the count of it is put right. In a commit of its agent."""
    return Statement(
        f"INSERT INTO suspects ({_COLUMNS}) VALUES (:agent, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, turn) DO UPDATE SET strikes = excluded.strikes, said = excluded.said,"
        " last_at = excluded.last_at, what = excluded.what, is_aside = excluded.is_aside",
        (
            suspect.turn,
            suspect.strikes,
            suspect.said,
            ms_of(suspect.first_at),
            ms_of(suspect.last_at),
            suspect.what,
            int(suspect.is_aside),
        ),
    )


def counted_start(*, now: int, what: str) -> Statement:
    """An agent that exists and is not suspected is started. Returns its id; nothing when it is a new one.

    Of the row of the agent it asks no more than that it is there.
    """
    return Statement(
        f"INSERT INTO suspects ({_COLUMNS})"
        " SELECT agent, '', 1, -1, ?, ?, ?, 0 FROM agents WHERE agent = :agent"
        " ON CONFLICT (agent, turn) DO UPDATE SET strikes = suspects.strikes + 1, last_at = excluded.last_at"
        " RETURNING agent",
        (now, now, what),
    )


def cleared(turn: str = "") -> Statement:
    """The attempt ended, and the process lives."""
    return Statement("DELETE FROM suspects WHERE agent = :agent AND turn = ? AND is_aside = 0", (turn,))


def put_aside(suspect: Suspect) -> Statement:
    """It is not tried any more."""
    return counted(suspect)


def dropped() -> Statement:
    """The conversation was cleared: there is nothing of its turns left to try again."""
    return Statement("DELETE FROM suspects WHERE agent = :agent AND turn <> '' AND is_aside = 1")


def released(turn: str | None = None) -> Statement:
    """It may be tried again: one turn (empty: the start of the agent), or all there is. Returns the turns."""
    one, params = ("", ()) if turn is None else (" AND turn = ?", (turn,))
    return Statement(
        f"DELETE FROM suspects WHERE agent = :agent{one} AND {_IS_ASIDE} RETURNING turn",
        params,
    )
