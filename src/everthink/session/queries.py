"""The `messages` table: its definition and its few statements. Nobody else touches it."""

from __future__ import annotations

from collections.abc import Sequence

from ..messages import Message, stored_content
from ..store.port import Statement

__all__ = [
    "BEFORE",
    "BRANCHES",
    "COUNTS",
    "DEEPEST",
    "LEAF",
    "ONE",
    "PLACE",
    "TABLES",
    "TREE",
    "appended",
    "cleared",
    "deleted",
    "reparented",
    "selected",
    "updated",
]

TABLES = (
    """CREATE TABLE messages (
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        parent TEXT,
        role TEXT NOT NULL,
        content TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (agent, session, id)
    )""",
    "CREATE UNIQUE INDEX messages_by_seq ON messages (agent, session, seq)",
)

# A child is always stored after its parent, so the newest row has no children: it is the tip.
LEAF = "SELECT id, seq FROM messages WHERE agent = ? AND session = ? ORDER BY seq DESC LIMIT 1"

ONE = "SELECT role, content, parent FROM messages WHERE agent = ? AND session = ? AND id = ?"

BRANCHES = (
    "SELECT id, role, content FROM messages WHERE agent = ? AND session = ? AND parent = ?"
    " ORDER BY created_at, seq"
)

# The newest messages of a session, without what they say.
TREE = (
    "SELECT id, parent, role, created_at, seq FROM messages WHERE agent = ? AND session = ?"
    " ORDER BY seq DESC LIMIT ?"
)

COUNTS = "SELECT agent, COUNT(*) AS messages FROM messages GROUP BY agent"

PLACE = "SELECT seq FROM messages WHERE agent = ? AND session = ? AND id = ?"

# A parent is older than its children, so a path is found by going back. A recursive query would follow
# the parents directly, but PostgreSQL plans one badly for as long as a table has no statistics.
BEFORE = (
    "SELECT id, parent, role, content, seq FROM messages WHERE agent = ? AND session = ? AND seq < ?"
    " ORDER BY seq DESC LIMIT 200"
)

DEEPEST = 10_000
"""So many ancestors of a message are read."""


def appended(
    agent: str, session: str, message: Message, *, seq: int, parent: str | None, now: int
) -> Statement:
    """Store a new message. Returns its id; nothing when the id is known, whose row stays as it is."""
    return Statement(
        "INSERT INTO messages (agent, session, id, seq, parent, role, content, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent, session, id) DO NOTHING RETURNING id",
        (agent, session, message.id, seq, parent, message.role, stored_content(message), now),
    )


def updated(agent: str, session: str, message: Message) -> Statement:
    """Replace a message's content. Returns its id; nothing when there is no such message."""
    return Statement(
        "UPDATE messages SET content = ? WHERE agent = ? AND session = ? AND id = ? RETURNING id",
        (stored_content(message), agent, session, message.id),
    )


def reparented(agent: str, session: str, *, old: str, new: str | None) -> Statement:
    """Hang the children of `old` under `new`."""
    return Statement(
        "UPDATE messages SET parent = ? WHERE agent = ? AND session = ? AND parent = ?",
        (new, agent, session, old),
    )


def selected(agent: str, session: str, id: str, *, seq: int) -> Statement:
    """Make a message the newest. Returns its id; nothing when something hangs below it: a child is newer."""
    return Statement(
        "UPDATE messages SET seq = ? WHERE agent = ? AND session = ? AND id = ? AND NOT EXISTS"
        " (SELECT 1 FROM messages c WHERE c.agent = ? AND c.session = ? AND c.parent = ?) RETURNING id",
        (seq, agent, session, id, agent, session, id),
    )


def deleted(agent: str, session: str, ids: Sequence[str]) -> list[Statement]:
    """Remove messages by id."""
    sql = "DELETE FROM messages WHERE agent = ? AND session = ? AND id = ?"
    return [Statement(sql, (agent, session, id)) for id in ids]


def cleared(agent: str, session: str) -> Statement:
    """Remove every message of the session."""
    return Statement("DELETE FROM messages WHERE agent = ? AND session = ?", (agent, session))
