"""Who wrote which message: the `authors` table. Only people whom the application knows have rows.

A row holds a mark of the person (`identity.mark_of`), never who it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..store.port import AgentStore, Statement

__all__ = ["TABLES", "authors_of", "cleared", "wrote"]

TABLES = (
    """CREATE TABLE authors (
        agent TEXT NOT NULL,
        message TEXT NOT NULL,
        author TEXT NOT NULL,
        PRIMARY KEY (agent, message)
    ) /* clustered */""",
)

_AT_ONCE = 50
_AUTHORS = (
    f"SELECT message, author FROM authors WHERE agent = :agent AND message IN ({', '.join('?' * _AT_ONCE)})"
)


async def authors_of(store: AgentStore, messages: Sequence[str]) -> list[str | None]:
    """The mark of who wrote each of these messages; `None` where nobody in particular is known."""
    found: dict[str, str] = {}
    for start in range(0, len(messages), _AT_ONCE):
        asked = list(messages[start : start + _AT_ONCE])
        asked += asked[-1:] * (_AT_ONCE - len(asked))  # one text, however many are asked for
        found |= {row[0]: row[1] for row in await store.fetch(_AUTHORS, *asked)}
    return [found.get(message) for message in messages]


def wrote(message: str, *, author: str) -> Statement:
    """The person with this mark wrote a message. Whoever was first stays."""
    return Statement(
        "INSERT INTO authors (agent, message, author) VALUES (:agent, ?, ?)"
        " ON CONFLICT (agent, message) DO NOTHING",
        (message, author),
    )


def cleared(session: str) -> Statement:
    """Forget who wrote the messages of a session, except those that a fork of it still holds."""
    is_in = "EXISTS (SELECT 1 FROM messages m WHERE m.agent = authors.agent AND m.id = authors.message"
    return Statement(
        f"DELETE FROM authors WHERE agent = :agent AND {is_in} AND m.session = ?)"
        f" AND NOT {is_in} AND m.session <> ?)",
        (session, session),
    )
