"""The rows of `turns`, as values: which turns there are, and how each of them stands.

    AgentStore --TurnRow--> recovery/wake, door/submissions, whoever asks about a turn

What is written to them is in `queries.py`. Nobody else runs a SELECT over the table, or counts its columns.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Unreadable
from ..store.port import AgentStore, Row
from .states import State
from .turn import Trigger

__all__ = [
    "TurnRow",
    "all_turns",
    "last_number",
    "of_answer",
    "of_key",
    "of_request",
    "one",
    "stash_of",
    "submission",
    "submissions",
    "unfinished",
]


class TurnRow(NamedTuple):
    """A turn as it is kept. Times are milliseconds."""

    id: str
    request_id: str
    trigger: Trigger
    status: State
    continuation: bool
    input: str | None
    """What it was asked with: see `turn_input.py`. Gone once it is over."""
    metadata: str | None
    idempotency_key: str | None
    message_id: str | None
    error: str | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    seq: int
    """Its number: it grows with every turn of the agent."""
    question: str | None
    stash: str | None
    stop: str | None
    """Why somebody stopped it, empty for no reason; `None` when nobody did."""
    failing: str | None
    rewound: int
    """How many chunks it had said before it began anew; 0 when it never did."""

    @classmethod
    def of(cls, row: Row) -> TurnRow:
        """The turn of a row with these columns."""
        found = cls._make(row)
        return found._replace(continuation=bool(found.continuation))

    @property
    def answer_id(self) -> str:
        """The id of the message it answers with. Raises `Unreadable` when it names none."""
        if not isinstance(self.message_id, str):
            raise Unreadable(f"Turn {self.id!r}", "it names no message")
        return self.message_id


_TURNS = f"SELECT {', '.join(TurnRow._fields)} FROM turns WHERE agent = :agent"


async def all_turns(store: AgentStore) -> list[TurnRow]:
    """Every turn, in the order of their numbers."""
    return await _fetched(store, f"{_TURNS} ORDER BY seq")


async def unfinished(store: AgentStore) -> list[TurnRow]:
    """Turns that are not over: those that have begun, then those that wait, each in their order."""
    found = await _fetched(store, f"{_TURNS} AND ended_at IS NULL ORDER BY seq")
    return sorted(found, key=lambda row: row.status == "accepted")


async def one(store: AgentStore, id: str) -> TurnRow | None:
    """The turn with this id."""
    return next(iter(await _fetched(store, f"{_TURNS} AND id = ?", id)), None)


async def submission(store: AgentStore, id: str) -> TurnRow | None:
    """The submission with this id."""
    found = await _fetched(
        store, f"{_TURNS} AND trigger IN ('submission', 'agent-tool', 'messenger') AND id = ?", id
    )
    return next(iter(found), None)


async def of_key(store: AgentStore, key: str) -> TurnRow | None:
    """The submission that was accepted under this key."""
    return next(iter(await _fetched(store, f"{_TURNS} AND idempotency_key = ?", key)), None)


async def of_answer(store: AgentStore, message_id: str) -> TurnRow | None:
    """The last turn that answered with this message."""
    sql = f"{_TURNS} AND message_id = ? ORDER BY seq DESC LIMIT 1"
    return next(iter(await _fetched(store, sql, message_id)), None)


async def of_request(store: AgentStore, request_id: str) -> TurnRow | None:
    """The last turn of a request, once it is over."""
    sql = f"{_TURNS} AND request_id = ? AND ended_at IS NOT NULL ORDER BY seq DESC LIMIT 1"
    return next(iter(await _fetched(store, sql, request_id)), None)


async def submissions(store: AgentStore) -> list[TurnRow]:
    """Every submission, the newest first."""
    sql = f"{_TURNS} AND trigger = 'submission' ORDER BY created_at DESC, seq DESC"
    return await _fetched(store, sql)


async def last_number(store: AgentStore) -> int:
    """The greatest number of a turn that is kept; 0 when there is none."""
    [(number,)] = await store.fetch("SELECT COALESCE(MAX(seq), 0) FROM turns WHERE agent = :agent")
    return number


async def stash_of(store: AgentStore, id: str) -> str | None:
    """What the developer's code stashed in a turn, as JSON."""
    rows = await store.fetch("SELECT stash FROM turns WHERE agent = :agent AND id = ?", id)
    return rows[0][0] if rows else None


async def _fetched(store: AgentStore, sql: str, *params: str) -> list[TurnRow]:
    return [TurnRow.of(row) for row in await store.fetch(sql, *params)]
