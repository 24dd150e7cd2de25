"""The tables of where agents live: `agents` and `kv`. Definitions and statements."""

from __future__ import annotations

from ..store.port import Statement

__all__ = ["AGENTS", "IS_KNOWN", "RECOVERY", "TABLES", "VALUES", "WISHING", "known", "put", "removed"]

TABLES = (
    """CREATE TABLE agents (
        agent TEXT NOT NULL,
        class TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (agent)
    ) /* clustered */""",
    """CREATE TABLE kv (
        agent TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (agent, name)
    ) /* clustered */""",
)

# Migration 2: agents that are about to go on by themselves (turn/continuation.py) are found at start-up.
RECOVERY = ("CREATE INDEX kv_wishing ON kv (agent) WHERE name = 'continuation'",)

WISHING = "SELECT agent FROM kv WHERE name = 'continuation'"

IS_KNOWN = "SELECT 1 FROM agents WHERE agent = ?"

AGENTS = "SELECT agent, class, name, created_at FROM agents"

VALUES = "SELECT name, value FROM kv WHERE agent = ?"


def known(agent: str, *, cls: str, name: str, now: int) -> Statement:
    """The agent exists from now on (or did already)."""
    return Statement(
        "INSERT INTO agents (agent, class, name, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (agent) DO NOTHING",
        (agent, cls, name, now),
    )


def put(agent: str, name: str, value: str) -> Statement:
    """Keep a small JSON value."""
    return Statement(
        "INSERT INTO kv (agent, name, value) VALUES (?, ?, ?)"
        " ON CONFLICT (agent, name) DO UPDATE SET value = excluded.value",
        (agent, name, value),
    )


def removed(agent: str, name: str) -> Statement:
    """Forget a value."""
    return Statement("DELETE FROM kv WHERE agent = ? AND name = ?", (agent, name))
