"""`open_sqlite`: the `Store` on one SQLite file, or in memory for quick tests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import StoreError
from ..store.error_texts import closed
from ..store.marks import bound_query
from ..store.port import Commit, Migration, Rows, Search, TextIndex
from ..store.search import (
    not_indexed,
    text_indexes,
    words_of,
)
from .database import Synchronous, open_database
from .files import resolved
from .reader import FileReader, MemoryReader, Reader
from .search import answer, query
from .writer import Writer

__all__ = ["SqliteStore", "open_sqlite"]


async def open_sqlite(
    path: str | os.PathLike[str],
    migrations: Sequence[Migration],
    *,
    synchronous: Synchronous = "FULL",
    busy_timeout: float = 5.0,
) -> SqliteStore:
    """Open the database at `path`, creating it and its directories, and bring its schema up to date.

    `":memory:"` keeps everything in memory. `synchronous="FULL"` survives a power cut;
    `"NORMAL"` may lose the last commits in one, though not in a crash of the process.
    `busy_timeout` is how many seconds to wait while a foreign program holds the file.
    """
    if synchronous not in ("FULL", "NORMAL"):
        raise StoreError(
            f"synchronous={synchronous!r} is not a setting of the SQLite store.",
            kept="Nothing was opened.",
            next_step='Use "FULL" (survives a power cut) or "NORMAL" (survives a crash).',
        )
    file = resolved(path)
    opens = partial(open_database, file, migrations, synchronous=synchronous, busy_timeout=busy_timeout)
    writer = Writer(opens, name=str(file or path))
    database = await writer.start()
    try:
        reader = FileReader(file, busy_timeout=busy_timeout) if file else MemoryReader(database)
    except BaseException:
        await writer.stop()
        raise
    indexes = text_indexes(migrations)
    return SqliteStore(str(file or path), writer, reader, indexes, has_index=bool(database.indexed))


class SqliteStore:
    """A `Store` on SQLite. Use it from the event loop that opened it."""

    def __init__(
        self,
        path: str,
        writer: Writer,
        reader: Reader,
        indexes: Mapping[str, TextIndex],
        *,
        has_index: bool,
    ) -> None:
        self.path = path
        self._indexes = indexes
        self._has_index = has_index
        self._writer = writer
        self._reader = reader
        self._closing: asyncio.Task[None] | None = None

    def apply(self, commit: Commit, *, agent: str = "") -> asyncio.Future[list[Rows]]:
        """Write `commit` atomically; resolves once it is durable. See `Store.apply`.

        Cancelling the future gives up the answer, not the commit.
        """
        return self._writer.submit(commit, agent)

    async def fetch(self, sql: str, *params: Any, agent: str = "") -> Rows:
        """Read rows. Sees every commit whose `apply` has resolved."""
        if self._closing:
            raise closed(self.path)
        return await self._reader.fetch(*bound_query(sql, params, agent))

    async def search(self, search: Search, *, agent: str) -> Rows:
        """Find texts. See `Store.search`."""
        if self._closing:
            raise closed(self.path)
        if search.table not in self._indexes:
            raise not_indexed(search.table)
        if not (words := words_of(search)):
            return []
        sql, params = query(search, agent, words, is_indexed=self._has_index)
        rows = await self._reader.fetch(sql, params, apart=True)
        return answer(rows, words, is_indexed=self._has_index)

    async def scrub(self, *, patience: float = 0.0) -> bool:
        """Leave nothing of what was deleted. See `Store.scrub`."""
        if self._closing:
            raise closed(self.path)
        return await self._writer.scrub(patience)

    async def close(self) -> None:
        """Finish the commits already accepted, move them into the main file, release it."""
        if self._closing is None:
            self._writer.seal()
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # Readers first: the last connection to close checkpoints, and only the writer may.
        try:
            await self._reader.close()
        finally:
            await self._writer.stop()
