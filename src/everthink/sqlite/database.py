"""Open the file, bring its schema up to date, close it: the writer's side of the database.

    writer thread --> open_database --> Database (connection and lock) --> close

Only this connection writes and checkpoints. SQLite up to 3.51.2 can damage a WAL when two
connections write or checkpoint at the same moment, so readers do neither (`connect_reader`),
and the writer is the last to close.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..errors import StoreError, StoreUnreadable
from ..store.migrate import CREATE_SCHEMA_TABLE, READ_APPLIED, RECORD_APPLIED, failed_step, outstanding
from ..store.port import Migration, TextIndex
from ..store.search import text_indexes
from .failures import from_os, from_sqlite
from .files import claim, file_at, make_folder
from .lock import LockFile
from .search import install, keep

__all__ = ["Database", "Synchronous", "connect_reader", "open_database"]

Synchronous = Literal["FULL", "NORMAL"]

_OLDEST = (3, 35, 0)
_LAYOUT = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*|\s+""")
_STATEMENTS = 512
"""How many prepared statements a connection keeps; more than the framework has."""


class Database:
    """An open database as its writer sees it. Lives on the writer's thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path | None,
        lock: LockFile | None,
        *,
        indexed: Sequence[str],
    ) -> None:
        self.connection = connection
        self.path = path
        # The tables that have an index; none when texts have to be searched one by one.
        self.indexed = indexed
        # True when something of what was deleted may still be in the file: its last process was cut off.
        self.owes_scrub = lock is not None and lock.was_left
        # Held while a group is written; whoever reads through this same connection takes it too.
        self.mutex = threading.Lock()
        self._lock = lock

    def close(self) -> None:
        """Empty the WAL into the file, then let go of both."""
        try:
            # execute() would stop after one page.
            self.connection.executescript("PRAGMA incremental_vacuum")
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error:
            pass  # A full disk or a foreign reader: the WAL keeps what the file has not got yet.
        try:
            self.connection.close()
        finally:
            if self._lock:
                self._lock.release(is_left=self.owes_scrub)


def open_database(
    path: Path | None, migrations: Sequence[Migration], *, synchronous: Synchronous, busy_timeout: float
) -> Database:
    """Own the file, open it for writing and run the outstanding migrations."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise StoreError(
            f"This Python comes with SQLite {sqlite3.sqlite_version}, and the store needs 3.35 or newer.",
            kept="Nothing was opened.",
            next_step="Use a newer Python or a newer libsqlite3.",
        )
    lock = _own(path) if path else None
    connection: sqlite3.Connection | None = None
    try:
        connection = _connect_private(path, busy_timeout) if path else _connect(None, busy_timeout)
        _prepare(connection, path, synchronous)
        _migrate(connection, migrations, path)
        indexes = text_indexes(migrations)
        has_index = keep(connection, indexes)
        return Database(connection, path, lock, indexed=tuple(indexes) if has_index else ())
    except BaseException as error:
        if connection:
            connection.close()
        if lock:
            lock.release()
        if isinstance(error, sqlite3.Error):
            raise from_sqlite(error, path, kept="Nothing was changed.") from error
        raise


def connect_reader(path: Path, *, busy_timeout: float) -> sqlite3.Connection:
    """A connection that neither writes nor checkpoints. May be used by one thread after another."""
    connection = _connect(path, busy_timeout)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
    return connection


def _own(path: Path) -> LockFile:
    if path.is_dir():
        raise StoreUnreadable(
            f"The database {path} is a directory.",
            kept="Nothing was changed.",
            next_step=f"Name a file, for example {path / 'everthink.db'}.",
        )
    try:
        make_folder(path.parent)
    except OSError as error:
        raise from_os(error, path.parent, doing="create the directory") from error
    return LockFile.acquire(path)


def _connect_private(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """SQLite opens by name, and gives its own files the rights of the database: ours come first."""
    claimed = claim(path)
    connection = _connect(path, busy_timeout)
    if file_at(path) != claimed:
        connection.close()
        raise StoreUnreadable(
            f"Another file took the place of {path} while it was opened.", kept="Nothing was changed."
        )
    return connection


def _connect(path: Path | None, busy_timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(
        path or ":memory:",
        timeout=busy_timeout,
        isolation_level=None,  # We say BEGIN ourselves.
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )


def _prepare(connection: sqlite3.Connection, path: Path | None, synchronous: Synchronous) -> None:
    # Must come before the first table: lets close() give back the pages that pruning freed.
    connection.execute("PRAGMA page_size = 2048")  # many small tables: half of what they would take
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    [(mode,)] = connection.execute("PRAGMA journal_mode = WAL").fetchall()
    if path and mode != "wal":
        raise StoreError(
            f"The file system of {path} does not support SQLite's write-ahead log (it offers {mode!r}).",
            kept="Nothing was changed.",
            next_step="Use a local disk instead of a network share.",
        )
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA foreign_keys = ON")  # As PostgreSQL always does.
    # What is deleted is overwritten, whenever it is: pruned chunks hold a conversation too (see scrub.py).
    connection.execute("PRAGMA secure_delete = ON").fetchall()
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA journal_size_limit = 67108864").fetchall()


def _migrate(connection: sqlite3.Connection, migrations: Sequence[Migration], path: Path | None) -> None:
    where = f"The database {path}" if path else "The database in memory"
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'everthink_schema'").fetchall()
    applied: int = connection.execute(READ_APPLIED).fetchone()[0] if known else 0
    steps = outstanding(migrations, applied, where=where, engine="sqlite")
    if known and not steps:
        return
    connection.create_function("sha256_of_base64", 1, _sha256_of_base64, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_native(CREATE_SCHEMA_TABLE))
        for step in steps:
            _run_step(connection, step, where)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _sha256_of_base64(text: str) -> str:
    """For migrations: what PostgreSQL knows by itself."""
    return hashlib.sha256(base64.b64decode(text)).hexdigest()


def _native(sql: str) -> str:
    """A `/* clustered */` table keeps its rows in the tree of its key. SQLite keeps the words of a
    definition as they are, so indentation is taken out first: it would be a tenth of a small file."""
    return _LAYOUT.sub(_single, sql.replace("/* clustered */", "WITHOUT ROWID"))


def _single(match: re.Match[str]) -> str:
    """A space for layout; what is quoted stays."""
    return match[0] if match[0][0] in "'\"" else " "


def _run_step(connection: sqlite3.Connection, step: Migration, where: str) -> None:
    for sql in step.statements:
        try:
            if isinstance(sql, TextIndex):
                install(connection, sql)
            else:
                connection.execute(_native(sql)).fetchall()
        except (sqlite3.Error, sqlite3.Warning) as error:
            code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
            if code & 0xFF not in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISUSE):
                raise  # The disk or a lock, not the step.
            raise failed_step(step, sql, error, where=where) from error
    connection.execute(RECORD_APPLIED, (step.number, step.name, int(time.time() * 1000)))
