"""The tables `blocks` and `entries`: their definitions and their few statements. Nobody else touches them."""

from __future__ import annotations

from ..store.port import Search, Statement, TextIndex

__all__ = [
    "BLOCK",
    "CATALOGUE",
    "COUNT",
    "ENTRY",
    "LAST",
    "PROMPT",
    "SHARED",
    "TABLES",
    "cleared",
    "emptied",
    "forgotten",
    "found",
    "written",
    "written_entry",
]

TABLES = (
    """CREATE TABLE blocks (
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        label TEXT NOT NULL,
        content TEXT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (agent, session, label)
    ) /* clustered */""",
    """CREATE TABLE entries (
        agent TEXT NOT NULL,
        session TEXT NOT NULL,
        label TEXT NOT NULL,
        key TEXT NOT NULL,
        content TEXT NOT NULL,
        description TEXT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (agent, session, label, key)
    )""",
    TextIndex("entries", "content"),
)

PROMPT = ""
"""The label of the row that keeps the frozen prompt. No block can have it: their labels are not empty."""

SHARED = "*"
"""Stands in place of a session for what all sessions of an agent share. No session has this id."""

BLOCK = "SELECT content FROM blocks WHERE agent = :agent AND session = ? AND label = ?"

ENTRY = "SELECT content FROM entries WHERE agent = :agent AND session = ? AND label = ? AND key = ?"

CATALOGUE = (
    "SELECT key, description FROM entries WHERE agent = :agent AND session = ? AND label = ?"
    " ORDER BY created_at, key"
)

LAST = tuple(f"SELECT MAX(updated_at) FROM {table} WHERE agent = ?" for table in ("blocks", "entries"))
"""When an agent last wrote a block, and when an entry."""

COUNT = "SELECT COUNT(*) FROM entries WHERE agent = :agent AND session = ? AND label = ?"


def written(session: str, label: str, content: str, *, now: int) -> Statement:
    """Keep the content of a block."""
    return Statement(
        "INSERT INTO blocks (agent, session, label, content, updated_at) VALUES (:agent, ?, ?, ?, ?)"
        " ON CONFLICT (agent, session, label)"
        " DO UPDATE SET content = excluded.content, updated_at = excluded.updated_at",
        (session, label, content, now),
    )


def emptied(label: str) -> list[Statement]:
    """Forget what a block holds, in all sessions of an agent."""
    return [
        Statement(f"DELETE FROM {table} WHERE agent = :agent AND label = ?", (label,))
        for table in ("blocks", "entries")
    ]


def forgotten(session: str, label: str) -> Statement:
    """Forget the content of a block."""
    return Statement(
        "DELETE FROM blocks WHERE agent = :agent AND session = ? AND label = ?", (session, label)
    )


def written_entry(
    session: str, label: str, key: str, content: str, description: str | None, *, now: int
) -> Statement:
    """Keep an entry. A known key gets the new content; its description stays unless there is a new one."""
    return Statement(
        "INSERT INTO entries (agent, session, label, key, content, description, created_at, updated_at)"
        " VALUES (:agent, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (agent, session, label, key) DO UPDATE SET content = excluded.content,"
        " description = COALESCE(excluded.description, entries.description),"
        " updated_at = excluded.updated_at",
        (session, label, key, content, description, now, now),
    )


def found(session: str, label: str, words: tuple[str, ...], *, limit: int) -> Search:
    """Look for the entries of one block that hold all of `words`. Rows: key, content, snippet."""
    return Search(
        "entries",
        ("key",),
        words,
        where="session = ? AND label = ?",
        params=(session, label),
        limit=limit,
    )


def cleared(session: str) -> list[Statement]:
    """Remove the blocks, the entries and the frozen prompt of a session."""
    return [
        Statement(f"DELETE FROM {table} WHERE agent = :agent AND session = ?", (session,))
        for table in ("blocks", "entries")
    ]
