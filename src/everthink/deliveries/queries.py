"""The tables `deliveries` and `threads`: definitions and statements; nobody else touches them.

A delivery is a message that is to be seen on a platform: one row for each. It is the conversation's, and is
written in the commit that accepts the turn whose words it shows. A thread is a row of the agent that has the
messenger: who answers there, and whether the bot listens.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from ..children.family import BELOW
from ..store.port import AgentStore, Row, Statement

__all__ = [
    "BY_MESSENGER",
    "LEFT",
    "QUESTIONS",
    "TABLES",
    "DeliveryRow",
    "State",
    "ThreadRow",
    "again",
    "among",
    "changed",
    "decided",
    "failed_rows",
    "is_known",
    "latest_of",
    "merged",
    "moved",
    "newest",
    "note_thread",
    "of_turn",
    "open_questions",
    "open_rows",
    "planned",
    "questions",
    "questions_below",
    "thread",
    "threads_moved",
    "waiting_for",
]

State = Literal["planned", "sending", "sent", "done", "failed"]
"""`planned`: to be sent, or to be edited when it has a `ref`. `sending`: on its way; if the process dies now,
nobody knows what came of it. `sent`: it is there, and more of it may follow. `done`, `failed`: it is over."""

QUESTIONS = 1000
"""From this part on rows are questions with buttons."""

# Migration 26.
TABLES = (
    """CREATE TABLE deliveries (
        agent TEXT NOT NULL,
        turn TEXT NOT NULL,
        part BIGINT NOT NULL,
        root TEXT NOT NULL,
        messenger TEXT NOT NULL,
        target TEXT NOT NULL,
        state TEXT NOT NULL,
        ref TEXT,
        shown BIGINT NOT NULL,
        body TEXT,
        call_id TEXT,
        attempts BIGINT NOT NULL,
        not_before BIGINT,
        error TEXT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (agent, turn, part)
    ) /* clustered */""",
    "CREATE INDEX deliveries_open ON deliveries (agent) WHERE state NOT IN ('done', 'failed')",
    """CREATE TABLE threads (
        agent TEXT NOT NULL,
        messenger TEXT NOT NULL,
        thread TEXT NOT NULL,
        conversation TEXT NOT NULL,
        subscribed BIGINT NOT NULL,
        title TEXT,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (agent, messenger, thread)
    ) /* clustered */""",
)

LEFT = (
    "SELECT agent, MIN(COALESCE(not_before, 0)) FROM deliveries"
    " WHERE state NOT IN ('done', 'failed') GROUP BY agent"
)
"""The conversations that have something to show, and when."""


BY_MESSENGER = (
    "SELECT root, messenger, SUM(CASE WHEN state NOT IN ('done', 'failed') THEN 1 ELSE 0 END) AS waiting,"
    f" SUM(CASE WHEN part >= {QUESTIONS} AND call_id IS NOT NULL AND body IS NULL AND state <> 'failed'"
    " THEN 1 ELSE 0 END) AS asked FROM deliveries GROUP BY root, messenger ORDER BY root, messenger"
)
"""How many messages each messenger of each agent is to deliver, and how many of its questions are open."""


class DeliveryRow(NamedTuple):
    """A message that is to be seen, or was. Times are milliseconds."""

    turn: str
    """Whose words it shows; a notice has an id of its own."""
    part: int
    """0: the message that is streamed; 1…: what did not fit into it; 1000…: questions with buttons."""
    root: str
    """The id of the agent that has the messenger."""
    messenger: str
    target: str
    """Where it is shown: a `Target` as JSON."""
    state: State
    ref: str | None
    """The platform's id of it."""
    shown: int
    """How many characters of it are shown."""
    body: str | None
    """What it says; `None` for what follows the turn's words."""
    call_id: str | None
    """The call that a question is about."""
    attempts: int
    """How often it was tried in vain."""
    not_before: int | None
    error: str | None
    created_at: int
    updated_at: int

    @property
    def is_open(self) -> bool:
        """True while something of it is to be sent."""
        return self.state not in ("done", "failed")

    def anew(self, *, now: int, **changes: Any) -> DeliveryRow:
        """Another message to the same people, of which nothing was sent yet."""
        unsent = self._replace(state="planned", ref=None, shown=0, body=None, call_id=None, attempts=0)
        fresh = unsent._replace(not_before=None, error=None, created_at=now, updated_at=now)
        return fresh._replace(**changes)

    @classmethod
    def of(cls, row: Row) -> DeliveryRow:
        """A row as the store gives it."""
        return cls._make(row)


class ThreadRow(NamedTuple):
    """A thread in which somebody has talked to us."""

    thread: str
    conversation: str
    """The name of the child or agent that answers there; `""`: the agent that has the messenger."""
    subscribed: int
    title: str | None


_COLUMNS = ", ".join(DeliveryRow._fields)
_ROWS = f"SELECT {_COLUMNS} FROM deliveries WHERE agent = :agent"
_THREAD = "SELECT thread, conversation, subscribed, title FROM threads WHERE agent = :agent"


def planned(row: DeliveryRow) -> Statement:
    """A message is to be shown. What is planned already stays as it is; one that is new is returned."""
    return Statement(
        f"INSERT INTO deliveries (agent, {_COLUMNS}) VALUES (:agent, {', '.join('?' * len(row))})"
        " ON CONFLICT (agent, turn, part) DO NOTHING RETURNING 1",
        tuple(row),
    )


def changed(row: DeliveryRow) -> Statement:
    """How a message stands now. A question that was decided while it was sent is to be edited."""
    return Statement(
        "UPDATE deliveries SET target = ?, state = CASE WHEN CAST(? AS TEXT) = 'done' AND body IS NOT NULL"
        " AND CAST(? AS TEXT) IS NULL THEN 'planned' ELSE CAST(? AS TEXT) END, ref = ?, shown = ?,"
        " attempts = ?, not_before = ?, error = ?, updated_at = ?"
        " WHERE agent = :agent AND turn = ? AND part = ?",
        (
            row.target,
            row.state,
            row.body,
            row.state,
            row.ref,
            row.shown,
            row.attempts,
            row.not_before,
            row.error,
            row.updated_at,
            row.turn,
            row.part,
        ),
    )


def merged(turn: str, *, now: int) -> Statement:
    """A turn is answered by the one that follows it: it has nothing to show."""
    return Statement(
        "UPDATE deliveries SET state = 'done', error = 'answered together with what followed', updated_at = ?"
        " WHERE agent = :agent AND turn = ? AND state = 'planned'",
        (now, turn),
    )


def decided(row: DeliveryRow, body: str, *, now: int, ref: str | None = None) -> Statement:
    """A question was decided, if it was not: what it says from now on. One that is just being sent is edited
    afterwards. `ref`: the platform's id of the message whose button was pressed; nobody may have kept it."""
    return Statement(
        "UPDATE deliveries SET body = ?, ref = COALESCE(ref, CAST(? AS TEXT)), attempts = 0,"
        " not_before = NULL, updated_at = ?, state = CASE WHEN COALESCE(ref, CAST(? AS TEXT)) IS NOT NULL"
        " THEN 'planned' ELSE state END"
        " WHERE agent = :agent AND turn = ? AND part = ? AND body IS NULL RETURNING 1",
        (body, ref, now, ref, row.turn, row.part),
    )


def again(row: DeliveryRow, *, now: int) -> Statement:
    """A message that could not be shown, or edited, is to be all the same."""
    return Statement(
        "UPDATE deliveries SET state = 'planned', attempts = 0, not_before = NULL, error = NULL,"
        " updated_at = ? WHERE agent = :agent AND turn = ? AND part = ? AND state = 'failed'",
        (now, row.turn, row.part),
    )


def moved(messenger: str, before: str, after: str) -> Statement:
    """What is to be shown in one place is shown in another, from its beginning."""
    return Statement(
        "UPDATE deliveries SET target = ?, state = CASE WHEN ref IS NULL THEN state ELSE 'planned' END,"
        " ref = NULL, shown = 0 WHERE agent = :agent AND messenger = ? AND target = ?"
        " AND state NOT IN ('done', 'failed')",
        (after, messenger, before),
    )


async def open_rows(store: AgentStore) -> list[DeliveryRow]:
    """What is to be shown, the oldest first."""
    rows = await store.fetch(f"{_ROWS} AND state NOT IN ('done', 'failed') ORDER BY created_at, turn, part")
    return [DeliveryRow.of(row) for row in rows]


async def failed_rows(store: AgentStore) -> list[DeliveryRow]:
    """What could not be shown, the oldest first."""
    rows = await store.fetch(f"{_ROWS} AND state = 'failed' ORDER BY created_at, turn, part")
    return [DeliveryRow.of(row) for row in rows]


async def of_turn(store: AgentStore, turn: str) -> list[DeliveryRow]:
    """The messages of a turn, in their order."""
    return [DeliveryRow.of(row) for row in await store.fetch(f"{_ROWS} AND turn = ? ORDER BY part", turn)]


async def open_questions(store: AgentStore) -> list[DeliveryRow]:
    """The questions that were asked and not decided."""
    sql = f"{_ROWS} AND part >= ? AND call_id IS NOT NULL AND body IS NULL ORDER BY created_at, part"
    return [DeliveryRow.of(row) for row in await store.fetch(sql, QUESTIONS)]


async def questions(store: AgentStore, messenger: str) -> list[DeliveryRow]:
    """The questions that were asked by a messenger, decided or not, the newest first."""
    sql = f"{_ROWS} AND part >= ? AND call_id IS NOT NULL AND messenger = ? ORDER BY created_at DESC, part"
    return [DeliveryRow.of(row) for row in await store.fetch(sql, QUESTIONS, messenger)]


async def questions_below(store: AgentStore, messenger: str) -> list[tuple[str, DeliveryRow]]:
    """The same of all agents below this one: each with who asks, by the id of its rows."""
    sql = (
        f"SELECT agent, {_COLUMNS} FROM deliveries WHERE agent IN ({BELOW}) AND agent <> ?"
        " AND part >= ? AND call_id IS NOT NULL AND messenger = ? ORDER BY created_at DESC, agent, part"
    )
    rows = await store.fetch(sql, store.agent, store.agent, QUESTIONS, messenger)
    return [(row[0], DeliveryRow.of(row[1:])) for row in rows]


async def is_known(store: AgentStore, turn: str) -> bool:
    """True when something was planned under this id."""
    return bool(await store.fetch("SELECT 1 FROM deliveries WHERE agent = :agent AND turn = ? LIMIT 1", turn))


async def latest_of(store: AgentStore, messenger: str) -> DeliveryRow | None:
    """The message of a messenger that was planned last."""
    sql = f"{_ROWS} AND messenger = ? ORDER BY created_at DESC LIMIT 1"
    return next((DeliveryRow.of(row) for row in await store.fetch(sql, messenger)), None)


def among(agents: int) -> str:
    """The latest messages of so many agents, for people who look; with 0 of all there are."""
    which = f" WHERE agent IN ({', '.join('?' * agents)})" if agents else ""
    return (
        f"SELECT agent, {_COLUMNS} FROM deliveries{which}"
        " ORDER BY created_at DESC, turn DESC, part DESC LIMIT ?"
    )


async def waiting_for(store: AgentStore) -> dict[str, int]:
    """How many messages are to be delivered by each messenger of this agent, in whichever conversation."""
    sql = "SELECT messenger, COUNT(*) FROM deliveries WHERE root = :agent"
    rows = await store.fetch(f"{sql} AND state NOT IN ('done', 'failed') GROUP BY messenger")
    return {messenger: int(count) for messenger, count in rows}


async def newest(store: AgentStore, *, limit: int) -> list[DeliveryRow]:
    """The latest messages, the newest first."""
    rows = await store.fetch(f"{_ROWS} ORDER BY created_at DESC, turn DESC, part DESC LIMIT ?", limit)
    return [DeliveryRow.of(row) for row in rows]


# --- threads


async def thread(store: AgentStore, messenger: str, id: str) -> ThreadRow | None:
    """What is known of a thread."""
    rows = await store.fetch(f"{_THREAD} AND messenger = ? AND thread = ?", messenger, id)
    return ThreadRow(*rows[0]) if rows else None


def note_thread(messenger: str, row: ThreadRow, *, now: int) -> Statement:
    """A thread in which somebody talks to us; one that is subscribed stays so."""
    return Statement(
        "INSERT INTO threads (agent, messenger, thread, conversation, subscribed, title, created_at)"
        " VALUES (:agent, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent, messenger, thread) DO UPDATE SET"
        " subscribed = CASE WHEN excluded.subscribed > threads.subscribed THEN excluded.subscribed"
        " ELSE threads.subscribed END, title = excluded.title",
        (messenger, row.thread, row.conversation, row.subscribed, row.title, now),
    )


def threads_moved(messenger: str, before: str, after: str) -> Statement:
    """A chat has another id from now on: those who talk there talk with the same conversation as before."""
    return Statement(
        "INSERT INTO threads (agent, messenger, thread, conversation, subscribed, title, created_at)"
        " SELECT agent, messenger, ?, conversation, subscribed, title, created_at FROM threads"
        " WHERE agent = :agent AND messenger = ? AND thread = ?"
        " ON CONFLICT (agent, messenger, thread) DO UPDATE SET conversation = excluded.conversation",
        (after, messenger, before),
    )
