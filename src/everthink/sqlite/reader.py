"""Reads, beside the writer and without waiting for it.

    fetch --> on the loop, for at most a millisecond --> otherwise on a thread

A point read takes about 5 µs where it is called and 110 µs through a thread pool, so reads start on the
loop's own connection. One that has not finished after `_PATIENCE` is broken off by SQLite's progress
handler and done again on a thread; the statement is remembered and starts there until it is quick again.
No read holds the loop, and the usual one costs next to nothing. Nor do many in a row: whoever reads page
after page goes on through a thread once `_TURN` is over, so that others have theirs.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

from ..errors import StoreError
from ..store.clean import storable
from ..store.error_texts import only_reads
from ..store.port import Rows
from .commits import FAILURES
from .database import Database, connect_reader
from .failures import from_sqlite

__all__ = ["FileReader", "MemoryReader", "Reader"]

_PATIENCE = 0.001
_TURN = 0.01
"""Seconds for which reads, and what is made of them, may follow each other on the loop."""
_OPERATIONS = 1000
"""How often the clock is read during a query: every so many steps of SQLite's machine, some 100 µs."""
_THREADS = 4


class FileReader:
    """Reads a file through connections of its own."""

    def __init__(self, path: Path, *, busy_timeout: float) -> None:
        self._path = path
        self._busy_timeout = busy_timeout
        self._near = connect_reader(path, busy_timeout=0)
        self._near.set_progress_handler(self._is_overdue, _OPERATIONS)
        self._deadline = 0.0
        self._begun = 0.0
        """When the first read of this turn of the loop began; 0 before it."""
        self._slow: set[str] = set()
        self._threads: ThreadPoolExecutor | None = None
        # Connections for the threads; pop and append are atomic.
        self._idle: list[sqlite3.Connection] = []

    async def fetch(self, sql: str, params: tuple[Any, ...], *, apart: bool = False) -> Rows:
        """The rows of `sql`. `apart` for one that may be slow in a way that cannot be broken off."""
        try:
            params = storable(params)
            loop = asyncio.get_running_loop()
            if not apart and sql not in self._slow and self._has_turn(loop):
                rows = self._read_here(sql, params)
                if rows is not None:
                    return rows
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="everthink reader")
            return await loop.run_in_executor(self._threads, self._read_apart, sql, params)
        except FAILURES as error:
            raise _unread(error, self._path, sql) from error

    async def close(self) -> None:
        """Finish the reads under way, then close the connections."""
        if self._threads:
            await asyncio.to_thread(self._threads.shutdown)
        for connection in (self._near, *self._idle):
            connection.close()

    def _has_turn(self, loop: asyncio.AbstractEventLoop) -> bool:
        """False once the loop has done nothing but this for too long."""
        if self._begun:
            return perf_counter() - self._begun < _TURN
        self._begun = perf_counter()
        loop.call_soon(self._turn_over)
        return True

    def _turn_over(self) -> None:
        self._begun = 0.0

    def _read_here(self, sql: str, params: tuple[Any, ...]) -> Rows | None:
        """On the loop. None when it takes too long or somebody holds the file."""
        self._deadline = perf_counter() + _PATIENCE
        try:
            rows = _rows(self._near, sql, params)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY):
                raise
            self._slow.add(sql)
            return None
        if perf_counter() > self._deadline:
            self._slow.add(sql)
        return rows

    def _is_overdue(self) -> bool:
        return perf_counter() > self._deadline

    def _read_apart(self, sql: str, params: tuple[Any, ...]) -> Rows:
        """On a thread of the pool."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect_reader(self._path, busy_timeout=self._busy_timeout)
        try:
            begun = perf_counter()
            rows = _rows(connection, sql, params)
            if perf_counter() - begun < _PATIENCE / 2:
                self._slow.discard(sql)
            return rows
        finally:
            self._idle.append(connection)


class MemoryReader:
    """Reads a database in memory, which has only the writer's connection, between two groups."""

    def __init__(self, database: Database) -> None:
        self._connection = database.connection
        self._mutex = database.mutex

    async def fetch(self, sql: str, params: tuple[Any, ...], *, apart: bool = False) -> Rows:
        """The rows of `sql`."""
        with self._mutex:
            self._connection.execute("PRAGMA query_only = ON")
            try:
                return _rows(self._connection, sql, storable(params))
            except FAILURES as error:
                raise _unread(error, None, sql) from error
            finally:
                self._connection.execute("PRAGMA query_only = OFF")

    async def close(self) -> None:
        """Nothing to do: the connection is the writer's."""


Reader = FileReader | MemoryReader
"""What a `SqliteStore` reads through."""


def _rows(connection: sqlite3.Connection, sql: str, params: tuple[Any, ...]) -> Rows:
    try:
        return connection.execute(sql, params).fetchall()
    except sqlite3.OperationalError as error:
        if hasattr(error, "sqlite_errorcode"):
            raise
    # Python's own complaint: a text that is not UTF-8, which somebody else wrote. One such row must not
    # keep the others from being read; whoever reads it finds that it makes no sense.
    connection.text_factory = _decoded
    try:
        return connection.execute(sql, params).fetchall()
    finally:
        connection.text_factory = str


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _unread(error: Exception, path: Path | None, sql: str) -> StoreError:
    if isinstance(error, StoreError):
        return error
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY:
        return only_reads(sql)
    return from_sqlite(error, path, kept="Nothing was changed.")
