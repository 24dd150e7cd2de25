"""Files that left their messages: the `attachments` table, which says whose they are.

The files themselves are in the agent's workspace. A row says which session a file belongs to: when that is
cleared, the file is `gone`, and is removed right after, or in the next process. Rows of an earlier release
have the bytes themselves, and are read as they are.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence

from ..store.port import AgentStore, Statement
from .media import Blob

__all__ = ["GONE", "LEFT", "PLACES", "TABLES", "cleared", "forgotten", "noted", "read_attachment"]

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

# Migration 20: `place` is NULL for bytes that are in the row, else `workspace`, and `gone` when it is to go.
PLACES = (
    "ALTER TABLE attachments ADD COLUMN place TEXT",
    "CREATE INDEX attachments_gone ON attachments (agent) WHERE place = 'gone'",
)

_ONE = "SELECT content, place FROM attachments WHERE agent = :agent AND path = ?"

GONE = "SELECT path FROM attachments WHERE agent = :agent AND place = 'gone' ORDER BY path LIMIT 200"

LEFT = "SELECT DISTINCT agent FROM attachments WHERE place = 'gone'"
"""Agents with files that are still to be removed."""


def noted(session: str, blob: Blob, *, now: int) -> Statement:
    """Note that a file of the workspace is what a message of `session` held."""
    return Statement(
        "INSERT INTO attachments (agent, path, session, media_type, size, content, created_at, place)"
        " VALUES (:agent, ?, ?, ?, ?, '', ?, 'workspace') ON CONFLICT (agent, path) DO UPDATE SET"
        " session = excluded.session, media_type = excluded.media_type, size = excluded.size, content = '',"
        " created_at = excluded.created_at, place = excluded.place",
        (blob.path, session, blob.media_type, len(blob.data), now),
    )


def cleared(session: str) -> list[Statement]:
    """Forget the files of a session, except those that a fork of it still names.

    Anybody can type a path. What we copied into a fork is as old as the fork itself; what was typed is not.
    """
    whose = (
        " WHERE agent = :agent AND session = ?"
        " AND NOT EXISTS (SELECT 1 FROM messages m"
        " JOIN sessions s ON s.agent = m.agent AND s.id = m.session"
        " WHERE m.agent = attachments.agent AND m.session <> attachments.session"
        " AND s.parent_session IS NOT NULL AND m.created_at <= s.created_at"
        " AND m.content LIKE '%preserved at ' || attachments.path || ']%')"
    )
    return [
        Statement(f"UPDATE attachments SET place = 'gone'{whose} AND place = 'workspace'", (session,)),
        Statement(f"DELETE FROM attachments{whose} AND place IS NULL", (session,)),
    ]


def forgotten(paths: Sequence[str]) -> Statement:
    """These files are removed."""
    marks = ", ".join("?" * len(paths))
    return Statement(
        f"DELETE FROM attachments WHERE agent = :agent AND place = 'gone' AND path IN ({marks})", tuple(paths)
    )


async def read_attachment(
    store: AgentStore, path: str, read: Callable[[str], Awaitable[bytes | None]]
) -> bytes | None:
    """The bytes of a file, or `None` when there is none at that path. `read` reads one of the workspace."""
    rows = await store.fetch(_ONE, path)
    if not rows or rows[0][1] == "gone":
        return None
    content, place = rows[0]
    return base64.b64decode(content) if place is None else await read(path)
