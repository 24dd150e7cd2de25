"""The tables `executions` and `execution_calls`: definition and statements; nobody else touches them.

An execution is a piece of code that a model had run, under the id of the call that brought it. A row of the
other table is one call that the code made: `pending` while a person is asked, `approved` by one, `started`
before its body runs, then `done`, `failed`, `unknown` or `denied`. `settled` is its place among the answers
that the code was given.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

from ..store.port import AgentStore, Row, Statement

__all__ = [
    "MADE",
    "OPEN",
    "TABLES",
    "CallRow",
    "CallState",
    "ExecutionRow",
    "ExecutionState",
    "among",
    "began",
    "begun",
    "calls_of",
    "closed",
    "cut_off",
    "ended",
    "executions",
    "forgotten",
    "found",
    "grown_old",
    "kept",
    "made",
    "numbered",
    "paused",
    "pruned",
    "settled",
    "told_words",
    "untold",
    "went_on",
]

ExecutionState = Literal["running", "paused", "completed", "error", "rejected"]
CallState = Literal["pending", "approved", "started", "done", "failed", "unknown", "denied"]
OPEN = ("running", "paused")

# Migration 20.
TABLES = (
    """CREATE TABLE executions (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        runtime TEXT NOT NULL,
        language TEXT NOT NULL,
        turn TEXT NOT NULL,
        code TEXT NOT NULL,
        state TEXT NOT NULL,
        outcome TEXT,
        began_at BIGINT NOT NULL,
        changed_at BIGINT NOT NULL,
        PRIMARY KEY (agent, id)
    ) /* clustered */""",
    """CREATE TABLE execution_calls (
        agent TEXT NOT NULL,
        execution TEXT NOT NULL,
        seq BIGINT NOT NULL,
        tool TEXT NOT NULL,
        input TEXT NOT NULL,
        state TEXT NOT NULL,
        settled BIGINT,
        outcome TEXT,
        began_at BIGINT NOT NULL,
        settled_at BIGINT,
        PRIMARY KEY (agent, execution, seq)
    ) /* clustered */""",
)


class ExecutionRow(NamedTuple):
    """An execution."""

    id: str
    runtime: str
    language: str
    turn: str
    code: str
    state: ExecutionState
    outcome: str | None
    began_at: int
    changed_at: int


class CallRow(NamedTuple):
    """A call that an execution made."""

    seq: int
    tool: str
    input: str
    """JSON, its keys in order."""
    state: CallState
    settled: int | None = None
    outcome: str | None = None
    """JSON: the result; of a call that failed, the words, which may be `untold`."""
    began_at: int = 0
    settled_at: int | None = None


def untold(words: str) -> dict[str, str]:
    """Words that neither code nor people read: an exception may hold anything."""
    return {"untold": words}


def told_words(row: CallRow, instead: str | None = None) -> str:
    """The words of a call that failed; `instead` of those that nobody but the model reads."""
    value = json.loads(row.outcome or "null")
    if not isinstance(value, dict):
        return str(value)
    return instead or str(cast("dict[str, Any]", value).get("untold"))


_EXECUTION = "id, runtime, language, turn, code, state, outcome, began_at, changed_at"
_ONE = f"SELECT {_EXECUTION} FROM executions WHERE agent = :agent AND id = ?"
_CALLS = (
    "SELECT seq, tool, input, state, settled, outcome, began_at, settled_at FROM execution_calls"
    " WHERE agent = :agent AND execution = ? ORDER BY seq"
)


async def found(store: AgentStore, id: str) -> ExecutionRow | None:
    """One execution."""
    rows = await store.fetch(_ONE, id)
    return ExecutionRow(*rows[0]) if rows else None


async def calls_of(store: AgentStore, id: str) -> list[CallRow]:
    """The calls of an execution, in the order in which they were made."""
    return [CallRow(*row) for row in await store.fetch(_CALLS, id)]


async def executions(
    store: AgentStore, *, states: Sequence[str] = (), runtime: str | None = None, limit: int = 50
) -> list[ExecutionRow]:
    """The latest executions, the newest first."""
    where, params = "", list[Any]()
    if states:
        where += f" AND state IN ({', '.join('?' for _ in states)})"
        params += states
    if runtime is not None:
        where += " AND runtime = ?"
        params.append(runtime)
    rows: Sequence[Row] = await store.fetch(
        f"SELECT {_EXECUTION} FROM executions WHERE agent = :agent{where}"
        " ORDER BY began_at DESC, id DESC LIMIT ?",
        *params,
        limit,
    )
    return [ExecutionRow(*row) for row in rows]


def among(agents: int) -> str:
    """The latest executions of so many agents, for people who look; with 0 of all there are."""
    which = f" WHERE agent IN ({', '.join('?' * agents)})" if agents else ""
    # Of one that went well the outcome may be long, and is in the conversation.
    ended = "CASE WHEN state IN ('error', 'rejected') THEN outcome END AS outcome"
    return (
        "SELECT agent, agent AS whose, id, runtime AS tool, language, turn, state, began_at, changed_at,"
        f" substr(code, 1, 2000) AS code, {ended} FROM executions{which}"
        " ORDER BY began_at DESC, id DESC LIMIT ?"
    )


MADE = (
    "SELECT seq + 1 AS seq, tool, state, began_at, settled_at, substr(input, 1, 2000) AS input,"
    " CASE WHEN state <> 'done' THEN substr(outcome, 1, 20000) END AS outcome FROM execution_calls"
    " WHERE agent = ? AND execution = ? ORDER BY execution_calls.seq LIMIT 1000"
)
"""The first thousand calls of an execution, for people who look."""


def began(id: str, *, runtime: str, language: str, turn: str, code: str, now: int) -> Statement:
    """An execution begins."""
    return Statement(
        "INSERT INTO executions (agent, id, runtime, language, turn, code, state, began_at, changed_at)"
        " VALUES (:agent, ?, ?, ?, ?, ?, 'running', ?, ?)",
        (id, runtime, language, turn, code, now, now),
    )


def ended(id: str, state: ExecutionState, *, outcome: str, now: int) -> Statement:
    """It has ended; one that was closed meanwhile stays as it is."""
    return Statement(
        "UPDATE executions SET state = ?, outcome = ?, changed_at = ?"
        " WHERE agent = :agent AND id = ? AND state IN ('running', 'paused')",
        (state, outcome, now, id),
    )


def paused(id: str, *, now: int) -> Statement:
    """It waits for a person."""
    return Statement(
        "UPDATE executions SET state = 'paused', changed_at = ?"
        " WHERE agent = :agent AND id = ? AND state IN ('running', 'paused')",
        (now, id),
    )


def went_on(id: str, seq: int, *, now: int) -> list[Statement]:
    """A person has said yes to one of its calls."""
    return [
        Statement(
            "UPDATE execution_calls SET state = 'approved'"
            " WHERE agent = :agent AND execution = ? AND seq = ? AND state = 'pending'",
            (id, seq),
        ),
        Statement(
            "UPDATE executions SET state = 'running', changed_at = ?"
            " WHERE agent = :agent AND id = ? AND state = 'paused'",
            (now, id),
        ),
    ]


def closed(id: str, state: ExecutionState, *, outcome: str, now: int) -> list[Statement]:
    """It ends without an end of its own, and so does what it asked."""
    return [
        Statement(
            "UPDATE execution_calls SET state = 'denied', settled_at = ?"
            " WHERE agent = :agent AND execution = ? AND state IN ('pending', 'approved')",
            (now, id),
        ),
        ended(id, state, outcome=outcome, now=now),
    ]


def made(id: str, row: CallRow) -> Statement:
    """A call is made."""
    return Statement(
        "INSERT INTO execution_calls"
        " (agent, execution, seq, tool, input, state, settled, outcome, began_at, settled_at)"
        " VALUES (:agent, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (id, *row),
    )


def begun(id: str, seq: int) -> Statement:
    """A call that a person had to agree to begins."""
    return Statement(
        "UPDATE execution_calls SET state = 'started' WHERE agent = :agent AND execution = ? AND seq = ?",
        (id, seq),
    )


def settled(id: str, seq: int, *, state: CallState, settled: int | None, outcome: str, now: int) -> Statement:
    """A call has ended."""
    return Statement(
        "UPDATE execution_calls SET state = ?, settled = ?, outcome = ?, settled_at = ?"
        " WHERE agent = :agent AND execution = ? AND seq = ?",
        (state, settled, outcome, now, id, seq),
    )


def cut_off(id: str, *, outcome: str, now: int) -> Statement:
    """The calls that still run are not waited for: nobody knows how they ended."""
    return Statement(
        "UPDATE execution_calls SET state = 'unknown', outcome = ?, settled_at = ?"
        " WHERE agent = :agent AND execution = ? AND state = 'started'",
        (outcome, now, id),
    )


def numbered(id: str, seq: int, *, settled: int) -> Statement:
    """The code is given the answer."""
    return Statement(
        "UPDATE execution_calls SET settled = ? WHERE agent = :agent AND execution = ? AND seq = ?",
        (settled, id, seq),
    )


async def kept(store: AgentStore, most: int) -> list[str]:
    """Executions that are over, beyond the newest so many."""
    rows = await store.fetch(
        "SELECT id FROM executions WHERE agent = :agent AND state NOT IN ('running', 'paused')"
        " ORDER BY began_at DESC, id DESC LIMIT 1000 OFFSET ?",
        most,
    )
    return [row[0] for row in rows]


async def grown_old(store: AgentStore, before: int) -> list[tuple[str, ExecutionState]]:
    """Executions that run or wait since then."""
    rows = await store.fetch(
        "SELECT id, state FROM executions WHERE agent = :agent AND state IN ('running', 'paused')"
        " AND changed_at < ? ORDER BY began_at",
        before,
    )
    return [(row[0], row[1]) for row in rows]


def forgotten(id: str) -> list[Statement]:
    """Nothing of an execution stays."""
    return [
        Statement("DELETE FROM execution_calls WHERE agent = :agent AND execution = ?", (id,)),
        Statement("DELETE FROM executions WHERE agent = :agent AND id = ?", (id,)),
    ]


def pruned(ids: Sequence[str]) -> list[Statement]:
    """The same for several."""
    return [statement for id in ids for statement in forgotten(id)]
