"""Files that left their messages: the `attachments` table and its few statements.

They are kept beside the conversation, so that history stays light and nothing is lost.
"""

from __future__ import annotations

import base64

from ..store.port import AgentStore, Statement
from .media import Blob

__all__ = ["TABLES", "cleared", "kept", "read_attachment"]

TABLES = (
    """CREATE TABLE attachments (
        agent TEXT NOT NULL,
        path TEXT NOT NULL,
        session TEXT NOT NULL,
        media_type TEXT NOT NULL,
        size BIGINT NOT NULL,
        content TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (agent, path)
    )""",
)

_ONE = "SELECT content FROM attachments WHERE agent = :agent AND path = ?"


def kept(session: str, blob: Blob, *, now: int) -> Statement:
    """Keep a file that a message of `session` held."""
    content = base64.b64encode(blob.data).decode()
    return Statement(
        "INSERT INTO attachments (agent, path, session, media_type, size, content, created_at)"
        " VALUES (:agent, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent, path) DO NOTHING",
        (blob.path, session, blob.media_type, len(blob.data), content, now),
    )


def cleared(session: str) -> Statement:
    """Forget the files of a session, except those that a fork of it still names.

    Anybody can type a path. What we copied into a fork is as old as the fork itself; what was typed is not.
    """
    return Statement(
        "DELETE FROM attachments WHERE agent = :agent AND session = ?"
        " AND NOT EXISTS (SELECT 1 FROM messages m"
        " JOIN sessions s ON s.agent = m.agent AND s.id = m.session"
        " WHERE m.agent = attachments.agent AND m.session <> attachments.session"
        " AND s.parent_session IS NOT NULL AND m.created_at <= s.created_at"
        " AND m.content LIKE '%preserved at ' || attachments.path || ']%')",
        (session,),
    )


async def read_attachment(store: AgentStore, path: str) -> bytes | None:
    """The bytes of a file, or `None` when there is none at that path."""
    rows = await store.fetch(_ONE, path)
    return base64.b64decode(rows[0][0]) if rows else None
