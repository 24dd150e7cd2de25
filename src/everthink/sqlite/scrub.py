"""Leave nothing of what was deleted: not in the search index, not in the slack of pages, not in the WAL.

    Store.scrub --patience--> Scrubber, on the writer's thread: slice, commits, slice, … --> the WAL is empty

`secure_delete` (database.py) overwrites what a deletion frees, from the first commit on. It does not reach
three places. FTS5 deletes a text by writing its words once more, with a mark: both go when all its parts are
merged into one. A page whose rows moved to a neighbour keeps them in its slack: they go when the file is
rewritten. The WAL holds pages as they were: it is emptied into the file and cut.

Merging is done in slices of a few milliseconds with commits in between. Rewriting cannot be interrupted,
so it is done only when it takes less than the caller's patience.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Generator
from time import monotonic
from typing import Any

from .database import Database
from .index_repair import trim

__all__ = ["Asked", "Scrubber"]

log = logging.getLogger("everthink.store")

Asked = tuple[float, "asyncio.Future[bool] | None"]
"""Somebody's patience in seconds, and their future."""

_PAGES = 16
"""How much of an index is merged in one slice: some milliseconds."""
_SPEED = 40 * 1024 * 1024
"""Bytes of a file that are rewritten in a second, on a slow machine."""
_URGENT = 1.0
"""Those who wait so long do not wait for a rest. Everybody else's work gets nine tenths of the time."""
_TRIES, _PAUSE = 100, 0.05
"""How often, and after how many seconds each, the WAL is tried again while somebody reads old pages."""
_STRANGER = -1
"""A row of the index that no table has."""


class Scrubber:
    """What is to be scrubbed, and how far that has come. Lives on the writer's thread."""

    def __init__(
        self, database: Database, asked: deque[Asked], tell: Callable[[asyncio.Future[bool], bool], None]
    ) -> None:
        self._database, self._asked, self._tell = database, asked, tell
        self._work: Generator[float, None, bool] | None = None
        self._waiting: list[asyncio.Future[bool]] = []
        self._next = self._spent = self._rests_until = 0.0
        self._is_owing = False

    @property
    def is_asked(self) -> bool:
        """True when there is something to do, now or soon."""
        return self._work is not None or bool(self._asked)

    def leave(self) -> bool:
        """Stop here. True when the next process has to see to it."""
        is_owing = self._is_owing or self.is_asked
        self._end(False)
        return is_owing

    def wait(self) -> float | None:
        """Seconds until there is something to do; `None` when nothing is asked for."""
        if self._work is not None:
            return max(0.0, self._next - monotonic())
        if not self._asked:
            return None
        if any(patience >= _URGENT for patience, _ in tuple(self._asked)):
            return 0.0
        return max(0.0, self._rests_until - monotonic())

    def go_on(self) -> None:
        """Do a slice, if it is time for one."""
        if self.wait() != 0.0:
            return
        begun = monotonic()
        work = self._work = self._work or self._begin()
        try:
            pause = next(work)
        except StopIteration as done:
            self._end(bool(done.value))
        except sqlite3.Error as error:  # a full disk, a foreign program: the data is as it was
            log.warning("what was deleted could not be scrubbed out of the file yet: %s", error)
            self._end(False)
        else:
            self._next = monotonic() + pause
        self._spent += monotonic() - begun
        self._rests_until = monotonic() + 9 * self._spent

    def _begin(self) -> Generator[float, None, bool]:
        patience = self._spent = 0.0
        while self._asked:
            theirs, future = self._asked.popleft()
            patience = max(patience, theirs)
            if future is not None:
                self._waiting.append(future)
        return _scrubbing(self._database, patience)

    def _end(self, is_clean: bool) -> None:
        self._work, self._is_owing = None, not is_clean
        for future in self._waiting:
            self._tell(future, is_clean)
        self._waiting.clear()


def _scrubbing(database: Database, patience: float) -> Generator[float, None, bool]:
    """The work, a slice at a time; what it yields is a pause in seconds. True when nothing is left."""
    connection = database.connection
    if database.path is None:
        return True  # in memory: there is no file to look into
    for table in database.indexed:
        yield from _merging(connection, table)
        trim(connection, table)
    [(pages,)] = connection.execute("PRAGMA page_count").fetchall()
    [(size,)] = connection.execute("PRAGMA page_size").fetchall()
    is_rewritten = pages * size / _SPEED > patience or _is_rewritten(connection, database)
    for _ in range(_TRIES):
        if _is_emptied(connection):
            return is_rewritten
        yield _PAUSE
    log.warning("%s: somebody reads old pages, so the WAL keeps deleted rows for now", database.path)
    return False


def _merging(connection: sqlite3.Connection, table: str) -> Generator[float, None, None]:
    """Merge all parts of an index into one, which holds no deleted words."""
    # Of a single part nothing would be merged, and it may hold them too: here is a second one.
    said: tuple[Any, ...] = (_STRANGER, "x", "x")
    connection.execute(f"INSERT INTO {table}_fts (rowid, text, scope) VALUES (?, ?, ?)", said)
    connection.execute(
        f"INSERT INTO {table}_fts ({table}_fts, rowid, text, scope) VALUES ('delete', ?, ?, ?)", said
    )
    merge = f"INSERT INTO {table}_fts ({table}_fts, rank) VALUES ('merge', ?)"
    pages = -_PAGES  # below zero: all parts, from now on
    while True:
        before = connection.total_changes
        connection.execute(merge, (pages,))
        if connection.total_changes - before < 2:
            return
        pages = _PAGES
        yield 0.0


def _is_rewritten(connection: sqlite3.Connection, database: Database) -> bool:
    """Write the file anew. False when there is no room for that: the rest is done all the same."""
    try:
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        log.warning("%s could not be rewritten, and may hold what was deleted: %s", database.path, error)
        return False
    return True


def _is_emptied(connection: sqlite3.Connection) -> bool:
    """Move the WAL into the file and cut it. False while somebody reads from it."""
    [(patience,)] = connection.execute("PRAGMA busy_timeout").fetchall()
    connection.execute("PRAGMA busy_timeout = 0").fetchall()  # commits wait behind us
    try:
        [(is_busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}").fetchall()
    return not is_busy
