"""Apply a group of commits in one transaction, each of them whole or not at all.

    writer thread --[Commit, …]--> Commits.write --[rows or error, …]--> back

A statement is atomic by itself, so a commit of one statement needs no savepoint, and alone not
even a BEGIN: that is the path of a streamed chunk. SQLite may give up the whole transaction on
its own (disk full, I/O error); the group is then applied again one commit at a time, so that
one that cannot be stored takes none of its neighbours with it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ..errors import StoreError
from ..store.clean import storable
from ..store.error_texts import NOTHING_WRITTEN, refused
from ..store.outcomes import Outcome
from ..store.port import Commit, Rows, Statement
from .failures import from_sqlite
from .index_repair import is_broken_index, is_usable, repair

__all__ = ["FAILURES", "Commits"]

log = logging.getLogger("everthink.store")

FAILURES = (sqlite3.Error, sqlite3.Warning, ArithmeticError, ValueError, TypeError, MemoryError, StoreError)
"""What a statement may raise: the engine's refusals, and parameters that do not fit."""


class _Undone(Exception):
    """The transaction of a group is gone; nothing of the group was written."""


class Commits:
    """Writes commits through one connection. One thread at a time."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, *, indexed: Sequence[str] = ()
    ) -> None:
        self._connection = connection
        self._indexed = indexed
        self._cursor = connection.cursor()
        self._path = path

    def write(self, group: Sequence[Commit]) -> list[Outcome]:
        """Apply the commits in order. When this returns, those without an error are durable."""
        if len(group) == 1:
            return [self._alone(group[0])]
        try:
            return self._together(group)
        except _Undone:
            return [self._alone(commit) for commit in group]

    def _alone(self, commit: Commit, *, is_again: bool = False) -> Outcome:
        try:
            if len(commit) == 1:
                return [self._run(commit[0])]
            self._cursor.execute("BEGIN IMMEDIATE")
            rows = [self._run(statement) for statement in commit]
            self._cursor.execute("COMMIT")
        except FAILURES as error:
            self._roll_back()
            if is_broken_index(error) and not is_again and self._repaired():
                return self._alone(commit, is_again=True)
            return self._translated(error)
        return rows

    def _repaired(self) -> bool:
        """Make broken indexes anew: they are made from the rows, and must not keep one from being stored."""
        broken = [table for table in self._indexed if not is_usable(self._connection, table)]
        try:
            repair(self._connection, broken or self._indexed)
        except FAILURES:
            log.exception("a broken search index could not be made anew")
            return False
        return bool(self._indexed)

    def _together(self, group: Sequence[Commit]) -> list[Outcome]:
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            # Somebody holds the file: trying one by one would only wait as often.
            return [self._translated(error) for _ in group]
        outcomes = [self._inside(commit) for commit in group]
        try:
            self._cursor.execute("COMMIT")
        except sqlite3.Error:
            self._roll_back()
            raise _Undone from None
        return outcomes

    def _inside(self, commit: Commit) -> Outcome:
        """One commit of a group, in the group's transaction."""
        needs_savepoint = len(commit) > 1
        try:
            if needs_savepoint:
                self._cursor.execute("SAVEPOINT one")
            rows = [self._run(statement) for statement in commit]
            if needs_savepoint:
                self._cursor.execute("RELEASE one")
        except FAILURES as error:
            if not self._connection.in_transaction or is_broken_index(error):
                self._roll_back()
                raise _Undone from None
            if needs_savepoint:
                self._cursor.execute("ROLLBACK TO one")
                self._cursor.execute("RELEASE one")
            return self._translated(error)
        return rows

    def _run(self, statement: Statement) -> Rows:
        sql, params, guard, name = statement
        cursor = self._cursor
        cursor.execute(sql, storable(params))
        rows: Rows = cursor.fetchall() if cursor.description is not None else []
        if guard and not rows and not self._is_touched():
            raise refused(sql, name)
        return rows

    def _is_touched(self) -> bool:
        """Did the last statement, which returned no rows, change any?

        `total_changes` would not tell: a text index may write, during one statement, what those before it
        left it to write.
        """
        if self._cursor.description is not None or self._cursor.rowcount >= 0:
            return self._cursor.rowcount > 0
        # WITH … UPDATE: Python does not count its rows.
        [(changed,)] = self._cursor.execute("SELECT changes()").fetchall()
        return bool(changed)

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _translated(self, error: Exception) -> StoreError:
        if isinstance(error, StoreError):
            return error
        return from_sqlite(error, self._path, kept=NOTHING_WRITTEN)
