"""`open_postgres`: the `Store` on a PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..migrate import tables_of
from ..params import storable
from ..port import Commit, Migration, Rows, Search, TextIndex
from ..texts import not_indexed, text_indexes, words_of
from ..wording import closed, only_reads
from .calls import Session
from .driver import Pool, connect, connect_readers, load
from .failures import failures, from_server, place, state_of
from .migrate import migrate
from .patience import patiently
from .sql import kinds_of, numbered, present
from .texts import answer, query
from .vacuum import Vacuum
from .writer import Writer

__all__ = ["PostgresStore", "open_postgres"]

_UNTOUCHED = "Nothing was changed."
_WORTH = 1.0
"""With less patience the server's own VACUUM is left to come by: ours reads every index of a table."""


async def open_postgres(
    url: str, migrations: Sequence[Migration], *, readers: int = 4, patience: float = 10.0
) -> PostgresStore:
    """Connect to the database at `url` and bring its schema up to date.

    One connection writes and up to `readers` read. When the server goes away, reads and
    commits not sent yet wait for it for up to `patience` seconds. A commit is as durable as the server's
    `synchronous_commit` makes it. A connection pooler in front of the server must pool sessions.
    """
    load()
    where = place(url)
    try:
        await _migrate(url, migrations, where)
        session = await _connect(url, where)
        try:
            pool = await connect_readers(url, most=readers)
        except BaseException:
            session.connection.terminate()
            raise
    except failures() as error:
        raise from_server(error, where, kept=_UNTOUCHED) from error
    writer = Writer(session, partial(_connect, url, where), where=where, patience=patience)
    vacuum = Vacuum(url, [table.name for table in tables_of(migrations)], where)
    return PostgresStore(where, writer, pool, text_indexes(migrations), vacuum, patience=patience)


async def _connect(url: str, where: str) -> Session:
    return Session(await connect(url), where)


async def _migrate(url: str, migrations: Sequence[Migration], where: str) -> None:
    # A connection of its own, because a step may take longer than a command ever should.
    connection = await connect(url, command_timeout=None)
    try:
        await migrate(connection, migrations, where)
    finally:
        await connection.close()


class PostgresStore:
    """A `Store` on PostgreSQL. Use it from the event loop that opened it."""

    def __init__(
        self,
        where: str,
        writer: Writer,
        pool: Pool,
        indexes: Mapping[str, TextIndex],
        vacuum: Vacuum,
        *,
        patience: float,
    ) -> None:
        self.where = where
        self._vacuum = vacuum
        self._indexes = indexes
        self._writer = writer
        self._pool = pool
        self._patience = patience
        self._failures = failures()
        self._closing: asyncio.Task[None] | None = None

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        """Write `commit` atomically; resolves once it is durable. See `Store.apply`.

        Cancelling the future gives up the answer, not the commit.
        """
        return self._writer.submit(commit)

    async def fetch(self, sql: str, *params: Any) -> Rows:
        """Read rows. Sees every commit whose `apply` has resolved."""
        if self._closing:
            raise closed(self.where)
        clean = storable(params)
        read = partial(self._read, sql, numbered(sql, kinds_of(clean)), present(clean))
        return await patiently(read, self.where, self._patience, kept=_UNTOUCHED)

    async def search(self, search: Search) -> Rows:
        """Find texts. See `Store.search`."""
        if self._closing:
            raise closed(self.where)
        if (index := self._indexes.get(search.table)) is None:
            raise not_indexed(search.table)
        if not (words := words_of(search)):
            return []
        sql, params = query(search, index, words)
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
