"""The table `mcp_servers`: the servers that agents were given. Definition and statements.

    McpServers --what changed--> Statement --> a commit of the agent's store

One row is one server of one agent. `secrets` is sealed when there is a key for it (sealing.py). The servers
of an app itself keep what they offer here too, under no agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..store.port import AgentStore, Statement, Store

__all__ = [
    "SECRETS",
    "TABLES",
    "ServerRow",
    "SharedRow",
    "added",
    "callback_of",
    "changed",
    "offered",
    "removed",
    "renamed",
    "secrets_of",
    "server_of",
    "servers_of",
    "shared_offered",
    "shared_servers",
]

TABLES = (
    """CREATE TABLE mcp_servers (
        agent TEXT NOT NULL,
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        prefix TEXT NOT NULL,
        address TEXT NOT NULL,
        options TEXT NOT NULL,
        secrets TEXT,
        callback_url TEXT,
        catalogue TEXT,
        catalogue_at BIGINT,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (agent, id)
    ) /* clustered */""",
)

SECRETS = "SELECT secrets FROM mcp_servers WHERE secrets IS NOT NULL"
"""What is stored of the secrets of all servers: for those who look after a database."""

_COLUMNS = "id, name, prefix, address, options, secrets, callback_url, catalogue"


class ServerRow(NamedTuple):
    """A server as it is stored."""

    id: str
    name: str
    prefix: str
    address: str
    options: str
    secrets: str | None
    callback_url: str | None
    catalogue: str | None


async def servers_of(store: AgentStore) -> list[ServerRow]:
    """The servers of an agent, the oldest first."""
    sql = f"SELECT {_COLUMNS} FROM mcp_servers WHERE agent = :agent ORDER BY created_at, id"
    return [ServerRow(*row) for row in await store.fetch(sql)]


async def server_of(store: AgentStore, id: str) -> ServerRow | None:
    """One server of an agent."""
    sql = f"SELECT {_COLUMNS} FROM mcp_servers WHERE agent = :agent AND id = ?"
    rows = await store.fetch(sql, id)
    return ServerRow(*rows[0]) if rows else None


async def secrets_of(store: AgentStore, id: str) -> str | None:
    """What is secret about a server, as it is stored."""
    rows = await store.fetch("SELECT secrets FROM mcp_servers WHERE agent = :agent AND id = ?", id)
    return rows[0][0] if rows else None


async def callback_of(store: Store, agent: str, id: str) -> tuple[str | None, str | None] | None:
    """Where people come back to for a server, and its secrets. `None`: the agent has no such server."""
    sql = "SELECT callback_url, secrets FROM mcp_servers WHERE agent = ? AND id = ?"
    rows = await store.fetch(sql, agent, id)
    return (rows[0][0], rows[0][1]) if rows else None


def added(row: ServerRow, *, now: int) -> Statement:
    """A server is kept."""
    return Statement(
        f"INSERT INTO mcp_servers (agent, {_COLUMNS}, created_at) VALUES (:agent, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, now),
    )


def changed(id: str, **columns: Any) -> Statement:
    """Some columns of a server have other values."""
    assert columns.keys() <= {*ServerRow._fields}
    names = ", ".join(f"{name} = ?" for name in columns)
    return Statement(
        f"UPDATE mcp_servers SET {names} WHERE agent = :agent AND id = ?", (*columns.values(), id)
    )


def renamed(id: str, to: str) -> Statement:
    """A server is known by another id."""
    return Statement("UPDATE mcp_servers SET id = ? WHERE agent = :agent AND id = ?", (to, id))


def offered(id: str, *, catalogue: str, now: int) -> Statement:
    """What a server offers has changed."""
    return Statement(
        "UPDATE mcp_servers SET catalogue = ?, catalogue_at = ? WHERE agent = :agent AND id = ?",
        (catalogue, now, id),
    )


def removed(id: str) -> Statement:
    """A server is not kept any more."""
    return Statement("DELETE FROM mcp_servers WHERE agent = :agent AND id = ?", (id,))


# --- the servers of the app

_NOBODY = ""
"""Who has the servers that every agent of the app may use."""


class SharedRow(NamedTuple):
    """What is kept of one of the app's own servers; where it is, the application says."""

    options: str
    catalogue: str | None


async def shared_servers(store: Store) -> dict[str, SharedRow]:
    """What the app's own servers offered when they were last asked, by their names."""
    rows = await store.fetch("SELECT id, options, catalogue FROM mcp_servers WHERE agent = ?", _NOBODY)
    return {id: SharedRow(options, catalogue) for id, options, catalogue in rows}


def shared_offered(name: str, row: SharedRow, *, now: int) -> Statement:
    """What one of the app's own servers offers."""
    return Statement(
        "INSERT INTO mcp_servers"
        " (agent, id, name, prefix, address, options, catalogue, catalogue_at, created_at)"
        " VALUES (?, ?, ?, ?, '', ?, ?, ?, ?)"
        " ON CONFLICT (agent, id) DO UPDATE SET options = excluded.options,"
        " catalogue = excluded.catalogue, catalogue_at = excluded.catalogue_at",
        (_NOBODY, name, name, name, *row, now, now),
    )
