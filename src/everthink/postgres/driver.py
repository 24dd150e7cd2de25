"""asyncpg as we use it: loaded on first use, a few methods of a connection, one way to set it up.

The protocols below are the part of asyncpg that we rely on, and give it types.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

from ..errors import MissingExtra

__all__ = ["Connection", "Pool", "connect", "connect_readers", "dial", "load", "rename_readers"]

_CONNECT_TIMEOUT = 10.0
_COMMAND_TIMEOUT = 20.0
"""A server that has gone without a word must not hold a commit for ever, nor for much longer than a lease."""
_NAME = "everthink"


class Connection(Protocol):
    """One session with the server."""

    async def execute(self, query: str, *args: Any) -> str:
        """Run a statement; the answer is its tag, such as `UPDATE 1`."""
        ...

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """The first column of the first row."""
        ...

    async def fetchmany(self, query: str, args: Iterable[Iterable[Any]]) -> list[Any]:
        """Run one statement for each of `args` in one round trip and one transaction."""
        ...

    async def set_type_codec(self, typename: str, **options: Any) -> None:
        """Say how a type is read."""
        ...

    def add_termination_listener(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` when the connection is gone."""
        ...

    def is_closed(self) -> bool:
        """True when the connection is gone."""
        ...

    def terminate(self) -> None:
        """Drop the connection without a word."""
        ...

    async def close(self) -> None:
        """Say goodbye."""
        ...


class Pool(Protocol):
    """Connections to share."""

    def acquire(self) -> AbstractAsyncContextManager[Connection]:
        """Borrow a connection."""
        ...

    async def expire_connections(self) -> None:
        """Replace each connection before it is borrowed again."""
        ...

    def set_connect_args(self, dsn: str, **settings: Any) -> None:
        """How connections are made from now on."""
        ...

    async def close(self) -> None:
        """Wait for the borrowed ones, then close all."""
        ...


def load() -> Any:
    """The asyncpg module, or `MissingExtra` with the line that installs it."""
    try:
        return importlib.import_module("asyncpg")
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise MissingExtra(
            "The PostgreSQL store needs the package asyncpg, which is not installed.",
            kept="Nothing was opened.",
            next_step='Run: pip install "everthink[postgres]"',
        ) from error


async def connect(
    url: str, *, name: str = _NAME, command_timeout: float | None = _COMMAND_TIMEOUT
) -> Connection:
    """A connection that may write. The server's administrator sees it under its `name`."""
    connection = await dial(url, name=name, command_timeout=command_timeout)
    await _set_up(connection)
    return connection


async def dial(url: str, *, name: str, command_timeout: float | None) -> Connection:
    """A connection as it comes, for those who are in a hurry."""
    connection = await load().connect(url, **_settings(command_timeout, name))
    return cast(Connection, connection)


async def connect_readers(url: str, *, most: int, name: str = _NAME) -> Pool:
    """A pool of at most `most` connections that may only read."""
    pool = load().create_pool(
        url,
        min_size=1,
        max_size=most,
        init=_set_up_reader,
        reset=_keep_as_it_is,
        max_inactive_connection_lifetime=0,
        **_settings(_COMMAND_TIMEOUT, name),
    )
    return cast(Pool, await pool)


async def rename_readers(pool: Pool, url: str, *, name: str) -> None:
    """Let the connections of a pool come back under another name."""
    pool.set_connect_args(url, **_settings(_COMMAND_TIMEOUT, name))
    await pool.expire_connections()


def _settings(command_timeout: float | None, name: str) -> dict[str, Any]:
    return {
        "timeout": _CONNECT_TIMEOUT,
        "command_timeout": command_timeout,
        "statement_cache_size": 1024,
        "max_cached_statement_lifetime": 0,
        "server_settings": {"application_name": name},
    }


async def _set_up(connection: Connection) -> None:
    # SUM of integers is numeric here; SQLite says int, so we do.
    await connection.set_type_codec(
        "numeric", schema="pg_catalog", format="text", encoder=str, decoder=_int_or_float
    )


async def _set_up_reader(connection: Connection) -> None:
    await _set_up(connection)
    await connection.execute("SET default_transaction_read_only = on")


async def _keep_as_it_is(connection: Connection) -> None:
    """A reader changes nothing in its session, so the round trip that resets it is saved."""


def _int_or_float(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
