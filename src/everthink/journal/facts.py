"""What people who look are shown of turns and calls: the newest first.

    devtools/inspector --> latest_turns, latest_calls, bad_endings, spans     of one agent, as values
    cli/journal        --> turns_among, calls_among, COUNTS                   beside the server, rows by name

Only looked at: nothing is decided from these.
"""

from __future__ import annotations

from typing import NamedTuple

from ..store.port import AgentStore
from .queries import CallState
from .states import State

__all__ = [
    "CALLS_OF",
    "COUNTS",
    "TURNS_OF",
    "BadEnding",
    "CallFacts",
    "Span",
    "TurnFacts",
    "bad_endings",
    "calls_among",
    "latest_calls",
    "latest_turns",
    "spans",
    "turns_among",
]


class TurnFacts(NamedTuple):
    """A turn, without what it was asked with."""

    id: str
    request_id: str
    trigger: str
    status: State
    continuation: int
    message_id: str
    error: str | None
    created_at: int
    started_at: int | None
    ended_at: int | None


class CallFacts(NamedTuple):
    """A call, as the ledger has it."""

    turn: str
    call_id: str
    tool: str
    step: int
    state: CallState
    on_interrupt: str
    input: str | None
    asked_at: int
    started_at: int | None
    settled_at: int | None
    words: str | None


class BadEnding(NamedTuple):
    """A turn that did not end well: for a mark beside what it said, or beside what it was to answer."""

    message_id: str | None
    question: str | None
    status: State
    error: str | None


class Span(NamedTuple):
    """The chunks of one commit."""

    first_seq: int
    written_at: int | None
    chunks: str


_TURN, _CALL = ", ".join(TurnFacts._fields), ", ".join(CallFacts._fields)

TURNS_OF = f"SELECT {_TURN} FROM turns WHERE agent = :agent ORDER BY seq DESC LIMIT ?"
CALLS_OF = (
    f"SELECT {_CALL} FROM calls WHERE agent = :agent AND tool <> ''"
    " ORDER BY asked_at DESC, call_id DESC LIMIT ?"
)
COUNTS = (
    "SELECT agent, COUNT(*) AS turns, COUNT(*) - COUNT(ended_at) AS open_turns,"
    " MAX(created_at) AS last_turn_at FROM turns GROUP BY agent"
)


def turns_among(agents: int) -> str:
    """The latest turns of so many agents; with 0 of all there are."""
    return f"SELECT agent, {_TURN} FROM turns{_among(agents)} ORDER BY created_at DESC, seq DESC LIMIT ?"


def calls_among(agents: int) -> str:
    """The latest calls of so many agents; with 0 of all there are."""
    which = f"{_among(agents)} {'AND' if agents else 'WHERE'} tool <> ''"
    return f"SELECT agent, {_CALL} FROM calls{which} ORDER BY asked_at DESC, call_id DESC LIMIT ?"


def _among(agents: int) -> str:
    return f" WHERE agent IN ({', '.join('?' * agents)})" if agents else ""


async def latest_turns(store: AgentStore, limit: int) -> list[TurnFacts]:
    """The latest turns of an agent."""
    return [TurnFacts(*row) for row in await store.fetch(TURNS_OF, limit)]


async def latest_calls(store: AgentStore, limit: int) -> list[CallFacts]:
    """The latest calls of an agent."""
    return [CallFacts(*row) for row in await store.fetch(CALLS_OF, limit)]


async def bad_endings(store: AgentStore, limit: int) -> list[BadEnding]:
    """The latest turns of an agent that did not end well."""
    sql = (
        f"SELECT {', '.join(BadEnding._fields)} FROM turns"
        " WHERE agent = :agent AND status IN ('error', 'aborted') ORDER BY seq DESC LIMIT ?"
    )
    return [BadEnding(*row) for row in await store.fetch(sql, limit)]


async def spans(store: AgentStore, turn_id: str) -> list[Span]:
    """What a turn has said, commit by commit."""
    sql = (
        f"SELECT {', '.join(Span._fields)} FROM segments WHERE agent = :agent AND turn = ? ORDER BY first_seq"
    )
    return [Span(*row) for row in await store.fetch(sql, turn_id)]
