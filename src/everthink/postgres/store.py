"""`open_postgres`: the `Store` on a PostgreSQL database."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..store.clean import storable
from ..store.error_texts import closed, only_reads
from ..store.marks import bound_query
from ..store.migrate import tables_of
from ..store.port import Commit, Migration, Rows, Search, TextIndex
from ..store.search import (
    not_indexed,
    text_indexes,
    words_of,
)
from .batch import BatchConnection
from .driver import Connection, Pool, connect, connect_readers, dial, load, rename_readers
from .failures import failures, from_server, location_of, state_of
from .migrate import migrate
from .pooler import is_pooled, pooled, refuse_pooled_transactions
from .search import answer, query
from .sql import kinds_of, numbered, present
from .vacuum import Vacuum
from .wait_for_server import patiently
from .writer import Writer

__all__ = ["PostgresStore", "open_postgres"]

_UNTOUCHED = "Nothing was changed."
_WORTH = 1.0
"""With less patience the server's own VACUUM is left to come by: ours reads every index of a table."""


async def open_postgres(
    url: str,
    migrations: Sequence[Migration],
    *,
    readers: int = 4,
    patience: float = 10.0,
    lease: float = 3.0,
) -> PostgresStore:
    """Connect to the database at `url` and bring its schema up to date.

    One connection writes and up to `readers` read. When the server goes away, reads and
    commits not sent yet wait for it for up to `patience` seconds. A commit is as durable as the server's
    `synchronous_commit` makes it. A connection pooler in front of the server must pool sessions; one that
    pools transactions is refused with `StorePooled`. `lease` is for how many seconds a process that is not
    heard of keeps its agents (see `cluster/`).
    """
    load()
    address = _Address(url, location_of(url))
    try:
        session = await address.session()
        try:
            await _migrate(address, migrations, session.connection)
            pool = await connect_readers(url, most=readers, name=address.name)
        except BaseException:
            session.connection.terminate()
            raise
    except failures() as error:
        if is_pooled(error):
            raise pooled(address.where) from error
        raise from_server(error, address.where, kept=_UNTOUCHED) from error
    writer = Writer(session, address.session, where=address.where, patience=patience)
    tables = [table.name for table in tables_of(migrations, "postgres")]
    vacuum = Vacuum(url, tables, address.where)
    indexes = text_indexes(migrations)
    return PostgresStore(address, writer, pool, indexes, vacuum, patience=patience, lease=lease)


class _Address:
    """Where the database is, and as whom we connect."""

    def __init__(self, url: str, where: str) -> None:
        self.url, self.where = url, where
        self.peer = _new_peer()

    @property
    def name(self) -> str:
        return f"everthink {self.peer}"

    async def session(self) -> BatchConnection:
        return BatchConnection(await connect(self.url, name=self.name), self.where)


def _new_peer() -> str:
    return secrets.token_hex(6)


async def _migrate(address: _Address, migrations: Sequence[Migration], other: Connection) -> None:
    # A connection of its own, because a step may take longer than a command ever should.
    connection = await connect(address.url, name=address.name, command_timeout=None)
    try:
        await refuse_pooled_transactions(connection, other, address.where)
        await migrate(connection, migrations, address.where)
    finally:
        await connection.close()


class PostgresStore:
    """A `Store` on PostgreSQL. Use it from the event loop that opened it."""

    def __init__(
        self,
        address: _Address,
        writer: Writer,
        pool: Pool,
        indexes: Mapping[str, TextIndex],
        vacuum: Vacuum,
        *,
        patience: float,
        lease: float,
    ) -> None:
        self._address, self.where = address, address.where
        self.lease = lease
        """For how many seconds a process that is not heard of keeps its agents."""
        self._vacuum = vacuum
        self._indexes = indexes
        self._writer = writer
        self._pool = pool
        self._patience = patience
        self._failures = failures()
        self._closing: asyncio.Task[None] | None = None

    def apply(self, commit: Commit, *, agent: str = "") -> asyncio.Future[list[Rows]]:
        """Write `commit` atomically; resolves once it is durable. See `Store.apply`.

        Cancelling the future gives up the answer, not the commit.
        """
        return self._writer.submit(commit, agent)

    @property
    def peer(self) -> str:
        """Who we are for the server: our connections are called `everthink {peer}` there."""
        return self._address.peer

    async def rename(self) -> str:
        """Be somebody else from now on: all connections are made anew, under another name. Returns it."""
        self._address.peer = _new_peer()
        self._writer.reconnect()
        await rename_readers(self._pool, self._address.url, name=self._address.name)
        return self._address.peer

    async def dial(self, *, command_timeout: float) -> Connection:
        """One more connection to the same database, on the event loop that runs. The caller closes it."""
        return await dial(self._address.url, name=self._address.name, command_timeout=command_timeout)

    async def fetch(self, sql: str, *params: Any, agent: str = "") -> Rows:
        """Read rows. Sees every commit whose `apply` has resolved."""
        if self._closing:
            raise closed(self.where)
        sql, params = bound_query(sql, params, agent)
        clean = storable(params)
        read = partial(self._read, sql, numbered(sql, kinds_of(clean)), present(clean))
        return await patiently(read, self.where, self._patience, kept=_UNTOUCHED)

    async def search(self, search: Search, *, agent: str) -> Rows:
        """Find texts. See `Store.search`."""
        if self._closing:
            raise closed(self.where)
        if (index := self._indexes.get(search.table)) is None:
            raise not_indexed(search.table)
        if not (words := words_of(search)):
            return []
        sql, params = query(search, agent, index, words)
        return answer(await self.fetch(sql, *params))

    async def scrub(self, *, patience: float = 0.0) -> bool:
        """Leave nothing of what was deleted, as far as a VACUUM does. See `Store.scrub`."""
        if self._closing:
            raise closed(self.where)
        return patience >= _WORTH and await self._vacuum.run()

    async def close(self) -> None:
        """Finish the commits already accepted and the reads under way, then disconnect."""
        if self._closing is None:
            self._writer.seal()
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _read(self, sql: str, query: str, args: list[Any]) -> Rows:
        async with self._pool.acquire() as connection:
            try:
                return [tuple(row) for row in await connection.fetch(query, *args)]
            except self._failures as error:
                if state_of(error) == "25006":
                    raise only_reads(sql) from error
                if connection.is_closed():
                    raise ConnectionResetError(str(error)) from error
                raise

    async def _close(self) -> None:
        try:
            await self._writer.stop()
            await self._vacuum.rest()
        finally:
            await self._pool.close()
