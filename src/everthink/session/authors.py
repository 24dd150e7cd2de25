"""Who wrote which message: the `authors` table. Only people whom the application knows have rows.

A row holds a mark of the person (`identity.mark_of`), never who it is.
"""

from __future__ import annotations

from ..store.port import Statement

__all__ = ["AT_ONCE", "AUTHORS", "TABLES", "cleared", "wrote"]

TABLES = (
    """CREATE TABLE authors (
        agent TEXT NOT NULL,
        message TEXT NOT NULL,
        author TEXT NOT NULL,
        PRIMARY KEY (agent, message)
    ) /* clustered */""",
)

AT_ONCE = 50
AUTHORS = f"SELECT message, author FROM authors WHERE agent = ? AND message IN ({', '.join('?' * AT_ONCE)})"


def wrote(agent: str, message: str, *, author: str) -> Statement:
    """The person with this mark wrote a message. Whoever was first stays."""
    return Statement(
        "INSERT INTO authors (agent, message, author) VALUES (?, ?, ?)"
        " ON CONFLICT (agent, message) DO NOTHING",
        (agent, message, author),
    )


def cleared(agent: str, session: str) -> Statement:
    """Forget who wrote the messages of a session, except those that a fork of it still holds."""
    is_in = "EXISTS (SELECT 1 FROM messages m WHERE m.agent = authors.agent AND m.id = authors.message"
    return Statement(
        f"DELETE FROM authors WHERE agent = ? AND {is_in} AND m.session = ?)"
        f" AND NOT {is_in} AND m.session <> ?)",
        (agent, session, session),
    )
