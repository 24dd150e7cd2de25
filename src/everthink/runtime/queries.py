"""The tables of where agents live: `agents` and `kv`. Definitions and statements."""

from __future__ import annotations

from collections.abc import Sequence

from ..address import Address
from ..messages import decode_json, encode_json
from ..store.port import Statement

__all__ = [
    "ADDRESS",
    "AGENTS",
    "AGENTS_IN_FAMILIES",
    "BELOW",
    "FAMILIES",
    "FAMILY",
    "IS_KNOWN",
    "IS_TO_CONTINUE",
    "LATEST",
    "MEMBERS",
    "SEEN",
    "TABLES",
    "TO_CONTINUE",
    "TO_POLL",
    "TO_SWEEP",
    "VALUES",
    "WAITING",
    "address_of",
    "below",
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

# Migration 9: when an agent was certainly in use, for those that are not kept for ever (retention.py).
SEEN = (
    "ALTER TABLE agents ADD COLUMN seen_at BIGINT NOT NULL DEFAULT 0",
    "UPDATE agents SET seen_at = created_at",
    "CREATE INDEX agents_by_seen ON agents (seen_at)",
)

# Migration 17: children. `path` is class and name of those above, outermost first: nobody takes an id apart.
FAMILIES = (
    "ALTER TABLE agents ADD COLUMN parent TEXT",
    "ALTER TABLE agents ADD COLUMN root TEXT",
    "ALTER TABLE agents ADD COLUMN path TEXT",
    "CREATE INDEX agents_by_parent ON agents (parent, class, name) WHERE parent IS NOT NULL",
    "CREATE INDEX agents_by_root ON agents (root) WHERE root IS NOT NULL",
)

# Migration 26: a start finds agents that are about to go on by themselves (door/continuations.py), whose
# cleared conversations left bytes (keeping/sweeping.py), and that poll (deliveries/polling.py).
WAITING = (
    "DROP INDEX IF EXISTS kv_wishing",
    "DROP INDEX IF EXISTS kv_sweeping",
    "CREATE INDEX kv_waiting ON kv (name, agent)"
    " WHERE name = 'continuation' OR name = 'sweep' OR name = 'polled'",
)

TO_POLL = "SELECT agent FROM kv WHERE name = 'polled'"
TO_SWEEP = "SELECT agent FROM kv WHERE name = 'sweep'"

TO_CONTINUE = "SELECT agent FROM kv WHERE name = 'continuation'"
IS_TO_CONTINUE = "SELECT 1 FROM kv WHERE agent = ? AND name = 'continuation'"

IS_KNOWN = "SELECT 1 FROM agents WHERE agent = ?"
ADDRESS = "SELECT class, name, path FROM agents WHERE agent = ?"

FAMILY = (
    "WITH RECURSIVE family (agent) AS (SELECT CAST(? AS TEXT) UNION ALL"
    " SELECT a.agent FROM agents a JOIN family f ON a.parent = f.agent)"
)
"""An agent and all below it."""
MEMBERS = f"{FAMILY} SELECT agent FROM family"
BELOW = (
    f"{FAMILY} SELECT a.agent, a.class, a.name, a.path FROM agents a JOIN family f ON a.agent = f.agent"
    " WHERE a.parent IS NOT NULL ORDER BY a.created_at, a.agent"
)
"""An agent, if it is a child, and all below it."""

AGENTS = "SELECT agent, class, name, created_at FROM agents"
AGENTS_IN_FAMILIES = "SELECT agent, class, name, created_at, parent, path FROM agents"

LATEST = "SELECT name FROM agents WHERE class = ? AND parent IS NULL ORDER BY seen_at DESC, agent LIMIT ?"

VALUES = "SELECT name, value FROM kv WHERE agent = :agent"


def values_of(agents: int) -> str:
    """One value, by its name, of so many agents: agent and value."""
    return f"SELECT agent, value FROM kv WHERE name = ? AND agent IN ({', '.join('?' * agents)})"


def below(agents: int) -> str:
    """All that are below so many outermost agents, the newest first: with their paths and when they came."""
    return (
        "SELECT agent, class, name, path, root, created_at FROM agents"
        f" WHERE root IN ({', '.join('?' * agents)}) ORDER BY created_at DESC, agent DESC LIMIT ?"
    )


def note_agent(address: Address, *, now: int) -> Statement:
    """The agent exists from now on (or did already)."""
    parent = address.parent
    above = (None, None, None)
    if parent is not None:
        above = (parent.id, address.root.id, encode_json(address.parents).decode())
    return Statement(
        "INSERT INTO agents (agent, class, name, created_at, seen_at, parent, root, path)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (agent) DO NOTHING",
        (address.id, address.cls_name, address.name, now, now, *above),
    )


def address_of(cls: str, name: str, path: str | None) -> Address:
    """The address that a row says."""
    return Address(cls, name, () if path is None else tuple((one[0], one[1]) for one in decode_json(path)))


def note_seen(agents: Sequence[str], *, now: int) -> Statement:
    """These agents were in use at that time."""
    return Statement(
        f"UPDATE agents SET seen_at = ? WHERE agent IN ({', '.join('?' * len(agents))}) AND seen_at < ?",
        (now, *agents, now),
    )


def unseen(classes: Sequence[str], *, before: int, limit: int) -> Statement:
    """Agents of these classes that were last seen before a time, the longest ago first: class and name.

    Children go with the outermost of their family."""
    return Statement(
        f"SELECT class, name FROM agents WHERE seen_at < ? AND parent IS NULL"
        f" AND class IN ({', '.join('?' * len(classes))})"
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
