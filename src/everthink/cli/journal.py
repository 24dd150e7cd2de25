"""Read a database beside the server that owns it. Nothing is ever written, locked or migrated.

store URL --> open_journal --> rows of agents, turns and calls
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from ..errors import AgentError, StoreUnavailable, StoreUnreadable

__all__ = ["Journal", "Row", "agents", "calls", "open_journal", "sqlite_path", "turns"]

Row = dict[str, Any]


class Journal(Protocol):
    """A database, for reading."""

    def rows(self, sql: str, *params: Any) -> list[Row]:
        """The rows of a query."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


def open_journal(store: str) -> Journal:
    """Open a database for reading. Raises a letter when that is not possible."""
    if store.startswith(("postgresql://", "postgres://")):
        return _Postgres(store)
    return _Sqlite(sqlite_path(store))


def sqlite_path(store: str) -> Path:
    """The file of a SQLite URL or a path."""
    if store in (":memory:", "sqlite://:memory:", "sqlite:///:memory:"):
        raise AgentError("A database in memory can only be seen by the process it is in.")
    scheme, separator, rest = store.partition("://")
    if separator and (scheme != "sqlite" or not rest.startswith("/")):
        raise AgentError(
            f"{store!r} is no store.",
            next_step="Write sqlite:///path/to/file.db, a path, or postgresql://user:password@host/database",
        )
    return Path(os.path.expanduser(rest[1:] if separator else store))


# --- questions


def agents(journal: Journal, only: str | None = None) -> list[Row]:
    """The agents with their messages and turns counted, the busiest of late first."""
    where, params = _only(only)
    return journal.rows(
        f"""SELECT a.class, a.name, a.created_at,
            (SELECT COUNT(*) FROM messages m WHERE m.agent = a.agent) AS messages,
            (SELECT COUNT(*) FROM turns t WHERE t.agent = a.agent) AS turns,
            (SELECT COUNT(*) FROM turns t WHERE t.agent = a.agent AND t.ended_at IS NULL) AS open_turns,
            (SELECT MAX(t.created_at) FROM turns t WHERE t.agent = a.agent) AS last_turn_at
        FROM agents a {where} ORDER BY COALESCE((SELECT MAX(t.created_at) FROM turns t
            WHERE t.agent = a.agent), a.created_at) DESC, a.class, a.name""",
        *params,
    )


def turns(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest turns."""
    where, params = _only(only)
    return journal.rows(
        f"""SELECT a.class, a.name, t.id, t.request_id, t.trigger, t.status, t.error, t.created_at,
            t.started_at, t.ended_at
        FROM turns t JOIN agents a ON a.agent = t.agent {where}
        ORDER BY t.created_at DESC, t.seq DESC LIMIT ?""",
        *params,
        limit,
    )


def calls(journal: Journal, only: str | None = None, *, limit: int = 20) -> list[Row]:
    """The latest tool calls."""
    where, params = _only(only)
    return journal.rows(
        f"""SELECT a.class, a.name, c.turn, c.call_id, c.tool, c.step, c.state, c.on_interrupt, c.input,
            c.asked_at, c.started_at, c.settled_at
        FROM calls c JOIN agents a ON a.agent = c.agent {where}
        ORDER BY c.asked_at DESC, c.call_id DESC LIMIT ?""",
        *params,
        limit,
    )


def _only(agent: str | None) -> tuple[str, list[str]]:
    """`Assistant`, `assistant`, or with a name: `assistant/room-1`."""
    if not agent:
        return "", []
    cls, slash, name = agent.partition("/")
    where = "WHERE LOWER(a.class) = ?" + (" AND a.name = ?" if slash else "")
    return where, [cls.replace("-", "").lower(), *([name] if slash else [])]


# --- engines


class _Sqlite:
    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            raise StoreUnreadable(
                f"There is no database at {path}.",
                next_step="Name it: --store sqlite:///path/to/everthink.db. `everthink dev` makes one "
                "in the folder where it runs.",
            )
        # A read-only connection cannot make the WAL's index. Without a WAL there is nothing to miss.
        has_wal = path.with_name(path.name + "-wal").exists()
        mode = "mode=ro" if has_wal else "mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(
                f"file:{quote(str(path.resolve()))}?{mode}", uri=True, timeout=5
            )
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("SELECT 1 FROM agents LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise StoreUnreadable(
                f"{path} cannot be read as a database of everthink: {error}.", kept="Nothing was changed."
            ) from error

    def rows(self, sql: str, *params: Any) -> list[Row]:
        try:
            return [dict(row) for row in self._connection.execute(sql, params)]
        except sqlite3.Error as error:
            raise StoreUnreadable(f"{self._path} cannot be read: {error}.") from error

    def close(self) -> None:
        self._connection.close()


class _Postgres:
    def __init__(self, url: str) -> None:
        from ..store.postgres.driver import load

        self._asyncpg = load()
        self._runner = asyncio.Runner()
        try:
            self._connection: Any = self._runner.run(self._asyncpg.connect(url, timeout=10))
            self._runner.run(self._connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
        except (OSError, TimeoutError, self._asyncpg.PostgresError, ValueError) as error:
            self._runner.close()
            raise StoreUnavailable(
                f"The PostgreSQL server cannot be used: {error or type(error).__name__}.",
                next_step="Check the address, the user and that the server runs.",
            ) from error

    def rows(self, sql: str, *params: Any) -> list[Row]:
        from ..store.postgres.sql import kinds_of, numbered

        try:
            found = self._runner.run(self._connection.fetch(numbered(sql, kinds_of(params)), *params))
        except self._asyncpg.PostgresError as error:
            raise StoreUnreadable(f"The database cannot be read: {error}.") from error
        return [dict(row) for row in found]

    def close(self) -> None:
        self._runner.run(self._connection.close())
        self._runner.close()
