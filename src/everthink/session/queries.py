"""The `messages` and `compactions` tables: their definitions and their few statements."""

from __future__ import annotations

from collections.abc import Sequence

from ..clock import moment_of, ms_of
from ..messages import Message, stored_content
from ..store.port import Row, Statement, TextIndex
from .overlay import Overlay

__all__ = [
    "BEFORE",
    "BEFORE_WITH_CONTENTS",
    "BETWEEN",
    "BRANCHES",
    "COMPACTION",
    "COMPACTIONS",
    "COMPACTIONS_ENDING",
    "CONTENTS",
    "COUNTS",
    "DEEPEST",
    "IS_KEPT",
    "KNOWN",
    "KNOWN_AT_ONCE",
    "LAST",
    "LAST_ASKED",
    "LAST_COMPACTION",
    "MEMORY",
    "ONE",
    "PAGE",
    "PLACE",
    "ROWS",
    "SMALL_PAGE",
    "TABLES",
    "TREE",
    "appended",
    "bytes_of",
    "cleared",
    "compacted",
    "deleted",
    "first_asked",
    "latest_of",
    "overlay_of",
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

MEMORY = (
    "ALTER TABLE messages ADD COLUMN bytes BIGINT",
    """CREATE TABLE compactions (
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        from_message TEXT NOT NULL,
        to_message TEXT NOT NULL,
        summary TEXT NOT NULL,
        reason TEXT NOT NULL,
        tokens_before BIGINT NOT NULL,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (agent, session, id)
    ) /* clustered */""",
    TextIndex("messages", "content", parts=True, size="bytes"),
)

ONE = "SELECT role, content, parent, created_at FROM messages WHERE agent = :agent AND session = ? AND id = ?"

BRANCHES = (
    "SELECT id, role, content, created_at FROM messages WHERE agent = :agent AND session = ? AND parent = ?"
    " ORDER BY created_at, seq"
)

# The newest messages of a session, without what they say.
TREE = (
    "SELECT id, parent, role, created_at, seq FROM messages WHERE agent = :agent AND session = ?"
    " ORDER BY seq DESC LIMIT ?"
)

COUNTS = "SELECT agent, COUNT(*) AS messages FROM messages GROUP BY agent"

LAST = "SELECT MAX(created_at) FROM messages WHERE agent = ?"

IS_KEPT = "SELECT 1 FROM messages WHERE agent = :agent AND id = ? LIMIT 1"
CONTENTS = (
    "SELECT session, seq, content FROM messages WHERE agent = :agent AND (session, seq) > (?, ?)"
    " ORDER BY session, seq LIMIT 16"
)
"""What is said in all sessions, a few messages at a time."""

PLACE = "SELECT seq FROM messages WHERE agent = :agent AND session = ? AND id = ?"

# A child is always stored after its parent, so the newest row is the tip, and a path is found by going
# back. A recursive query would follow the parents directly, but PostgreSQL plans one badly for as long as
# a table has no statistics. Contents are read apart, when it is known how much they weigh.
PAGE = 500
BEFORE = (
    "SELECT id, parent, role, seq, COALESCE(bytes, LENGTH(content)), created_at FROM messages"
    " WHERE agent = :agent AND session = ? AND seq < ? ORDER BY seq DESC LIMIT 500"
)

# The same with the contents of small rows: at most 4 MiB, and mostly all there is to read.
SMALL_PAGE = 250
BEFORE_WITH_CONTENTS = (
    "SELECT id, parent, role, seq, COALESCE(bytes, LENGTH(content)), created_at,"
    " CASE WHEN COALESCE(bytes, LENGTH(content)) <= 16384 THEN content END FROM messages"
    " WHERE agent = :agent AND session = ? AND seq < ? ORDER BY seq DESC LIMIT 250"
)

ROWS = (
    "SELECT id, parent, role, content, seq FROM messages WHERE agent = :agent AND session = ? AND seq < ?"
    " ORDER BY seq DESC LIMIT 200"
)

BETWEEN = (
    "SELECT id, role, content FROM messages WHERE agent = :agent AND session = ? AND seq >= ? AND seq <= ?"
    " ORDER BY seq"
)

KNOWN_AT_ONCE = 50
KNOWN = (
    "SELECT id FROM messages WHERE agent = :agent AND session = ?"
    f" AND id IN ({', '.join('?' * KNOWN_AT_ONCE)})"
)

# An overlay that lost one of its ends covers nothing any more.
COMPACTIONS = (
    "SELECT c.id, c.from_message, c.to_message, c.summary, c.reason, c.tokens_before, c.created_at, c.seq,"
    " f.seq, f.parent FROM compactions c"
    " JOIN messages f ON f.agent = c.agent AND f.session = c.session AND f.id = c.from_message"
    " JOIN messages t ON t.agent = c.agent AND t.session = c.session AND t.id = c.to_message"
    " WHERE c.agent = :agent AND c.session = ? ORDER BY c.seq"
)
COMPACTION = COMPACTIONS.replace(" ORDER BY", " AND c.id = ? ORDER BY")
COMPACTIONS_ENDING = COMPACTIONS.replace(" ORDER BY", " AND t.seq >= ? AND t.seq <= ? ORDER BY")
LAST_COMPACTION = "SELECT COALESCE(MAX(seq), 0) FROM compactions WHERE agent = :agent AND session = ?"

DEEPEST = 10_000
"""So many ancestors of a message are read."""


def latest_of(agents: int) -> str:
    """When something was said last to so many agents: agent and time, if anything was."""
    some = ", ".join("?" * agents)
    return f"SELECT agent, MAX(created_at) FROM messages WHERE agent IN ({some}) GROUP BY agent"


LAST_ASKED = (
    "SELECT id, role, content FROM messages WHERE agent = :agent AND session = ? AND role = 'user'"
    " ORDER BY seq DESC LIMIT 1"
)
"""What a person said last in a session."""


def first_asked(agents: int) -> str:
    """What a person said first in the main session of so many agents: agent, id, role, content."""
    return (
        "SELECT m.agent, m.id, m.role, m.content FROM messages m JOIN ("
        "SELECT agent, session, MIN(seq) AS seq FROM messages"
        f" WHERE agent IN ({', '.join('?' * agents)}) AND session = '' AND role = 'user'"
        " GROUP BY agent, session) f ON f.agent = m.agent AND f.session = m.session AND f.seq = m.seq"
    )


def appended(
    session: str, message: Message, *, seq: int, parent: str | None, now: int, guard: bool = False
) -> Statement:
    """Store a new message. Returns its id; nothing when the id is known, whose row stays as it is.

    With `guard` a known id refuses the whole commit.
    """
    content, size = _sized(message)
    return Statement(
        "INSERT INTO messages (agent, session, id, seq, parent, role, content, created_at, bytes)"
        " VALUES (:agent, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent, session, id) DO NOTHING RETURNING id",
        (session, message.id, seq, parent, message.role, content, now, size),
        guard=guard,
    )


def bytes_of(statement: Statement) -> int:
    """What a message weighs that `appended` stores."""
    return statement.params[-1]


def _sized(message: Message) -> tuple[str, int]:
    content = stored_content(message)
    return content, len(content) if content.isascii() else len(content.encode())


def updated(session: str, message: Message) -> Statement:
    """Replace a message's content. Returns its id; nothing when there is no such message."""
    content, size = _sized(message)
    return Statement(
        "UPDATE messages SET content = ?, bytes = ?"
        " WHERE agent = :agent AND session = ? AND id = ? RETURNING id",
        (content, size, session, message.id),
    )


def reparented(session: str, *, old: str, new: str | None) -> Statement:
    """Hang the children of `old` under `new`."""
    return Statement(
        "UPDATE messages SET parent = ? WHERE agent = :agent AND session = ? AND parent = ?",
        (new, session, old),
    )


def moved(session: str, id: str, *, below: str | None, seq: int) -> list[Statement]:
    """Hang a message under another, as the newest. What hung below it hangs below its parent."""
    return [
        Statement(
            "UPDATE messages SET parent ="
            " (SELECT m.parent FROM messages m WHERE m.agent = :agent AND m.session = ? AND m.id = ?)"
            " WHERE agent = :agent AND session = ? AND parent = ?",
            (session, id, session, id),
        ),
        Statement(
            "UPDATE messages SET parent = ?, seq = ? WHERE agent = :agent AND session = ? AND id = ?",
            (below, seq, session, id),
        ),
    ]


def selected(session: str, id: str, *, seq: int) -> Statement:
    """Make a message the newest. Returns its id; nothing when something hangs below it: a child is newer."""
    return Statement(
        "UPDATE messages SET seq = ? WHERE agent = :agent AND session = ? AND id = ? AND NOT EXISTS"
        " (SELECT 1 FROM messages c WHERE c.agent = :agent AND c.session = ? AND c.parent = ?) RETURNING id",
        (seq, session, id, session, id),
    )


def deleted(session: str, ids: Sequence[str]) -> list[Statement]:
    """Remove messages by id, and the overlays that end at one of them: its id may come again."""
    row = "DELETE FROM messages WHERE agent = :agent AND session = ? AND id = ?"
    ends = (
        "DELETE FROM compactions WHERE agent = :agent AND session = ?"
        " AND (from_message = ? OR to_message = ?)"
    )
    return [
        statement
        for id in ids
        for statement in (Statement(row, (session, id)), Statement(ends, (session, id, id)))
    ]


def cleared(session: str) -> list[Statement]:
    """Remove every message of the session, and what stands for them."""
    return [
        Statement("DELETE FROM messages WHERE agent = :agent AND session = ?", (session,)),
        Statement("DELETE FROM compactions WHERE agent = :agent AND session = ?", (session,)),
    ]


def compacted(session: str, overlay: Overlay) -> Statement:
    """Keep an overlay. Returns its id; nothing when one of its ends is gone."""
    there = "EXISTS (SELECT 1 FROM messages WHERE agent = :agent AND session = ? AND id = ?)"
    return Statement(
        "INSERT INTO compactions (agent, session, id, seq, from_message, to_message, summary, reason,"
        " tokens_before, created_at) SELECT :agent, ?, ?, ?, ?, ?, ?, ?, ?, ?"
        f" WHERE {there} AND {there} RETURNING id",
        (
            session,
            overlay.id,
            overlay.seq,
            overlay.from_message_id,
            overlay.to_message_id,
            overlay.summary,
            overlay.reason,
            overlay.tokens_before,
            ms_of(overlay.created_at),
            *(session, overlay.from_message_id),
            *(session, overlay.to_message_id),
        ),
    )


def overlay_of(row: Row) -> Overlay:
    """A row of `COMPACTIONS`."""
    id, first, last, summary, reason, tokens, created, *place = row
    return Overlay(id, first, last, summary, reason, tokens, moment_of(created), *place)
