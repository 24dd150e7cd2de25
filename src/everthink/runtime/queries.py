"""The tables of where agents live: `agents` and `kv`. Definitions and statements."""

from __future__ import annotations

from collections.abc import Sequence

from ..store.port import Statement

__all__ = [
    "AGENTS",
    "IS_KNOWN",
    "IS_TO_CONTINUE",
    "LATEST",
    "RECOVERY",
    "SEEN",
    "TABLES",
    "TO_CONTINUE",
    "VALUES",
    "note_agent",
    "note_seen",
    "remove_value",
    "set_value",
    "unseen",
    "values_of",
]

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

# Migration 2: agents that are about to go on by themselves (door/continuations.py) are found at start-up.
RECOVERY = ("CREATE INDEX kv_wishing ON kv (agent) WHERE name = 'continuation'",)

# Migration 9: when an agent was certainly in use, for those that are not kept for ever (retention.py).
SEEN = (
    "ALTER TABLE agents ADD COLUMN seen_at BIGINT NOT NULL DEFAULT 0",
    "UPDATE agents SET seen_at = created_at",
    "CREATE INDEX agents_by_seen ON agents (seen_at)",
)

TO_CONTINUE = "SELECT agent FROM kv WHERE name = 'continuation'"
IS_TO_CONTINUE = "SELECT 1 FROM kv WHERE agent = ? AND name = 'continuation'"

IS_KNOWN = "SELECT 1 FROM agents WHERE agent = ?"

AGENTS = "SELECT agent, class, name, created_at FROM agents"

LATEST = "SELECT name FROM agents WHERE class = ? ORDER BY seen_at DESC, agent LIMIT ?"

VALUES = "SELECT name, value FROM kv WHERE agent = :agent"


def values_of(agents: int) -> str:
    """One value, by its name, of so many agents: agent and value."""
    return f"SELECT agent, value FROM kv WHERE name = ? AND agent IN ({', '.join('?' * agents)})"


def note_agent(*, cls: str, name: str, now: int) -> Statement:
    """The agent exists from now on (or did already)."""
    return Statement(
        "INSERT INTO agents (agent, class, name, created_at, seen_at) VALUES (:agent, ?, ?, ?, ?)"
        " ON CONFLICT (agent) DO NOTHING",
        (cls, name, now, now),
    )


def note_seen(agents: Sequence[str], *, now: int) -> Statement:
    """These agents were in use at that time."""
    return Statement(
        f"UPDATE agents SET seen_at = ? WHERE agent IN ({', '.join('?' * len(agents))}) AND seen_at < ?",
        (now, *agents, now),
    )


def unseen(classes: Sequence[str], *, before: int, limit: int) -> Statement:
    """Agents of these classes that were last seen before a time, the longest ago first: class and name."""
    return Statement(
        f"SELECT class, name FROM agents WHERE seen_at < ? AND class IN ({', '.join('?' * len(classes))})"
        " ORDER BY seen_at, agent LIMIT ?",
        (before, *classes, limit),
    )


def set_value(name: str, value: str) -> Statement:
    """Keep a small JSON value."""
    return Statement(
        "INSERT INTO kv (agent, name, value) VALUES (:agent, ?, ?)"
        " ON CONFLICT (agent, name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def remove_value(name: str) -> Statement:
    """Forget a value."""
    return Statement("DELETE FROM kv WHERE agent = :agent AND name = ?", (name,))
