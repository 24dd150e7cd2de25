"""Keep a full-text index usable: what is derived from messages must never keep one from being stored.

    scrub --> trim: a merge gives the index one more level, and SQLite up to 3.41 reads no more than 2,000
    open, a commit that meets a broken index --> repair: the index is filled anew from its table

FTS5 keeps the list of its parts in one row of `<table>_fts_data`: a number that never changes here, how many
levels, parts and writes there are, and for each level its parts. Levels that hold none can go: what counts is
their order.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable

__all__ = ["is_broken_index", "is_usable", "repair", "trim"]

log = logging.getLogger("everthink.store")

MOST_LEVELS = 64
"""So many need no trimming. SQLite itself stops here since 3.42."""
_STRUCTURE, _TOTALS = 10, 1
"""The rows of `<table>_fts_data` that are no text: the list of parts, and what FTS5 counts."""
_NO_PARTS = bytes(7)
_NEWER = b"\xff\x00\x00\x01"
"""Begins another form of the list, written by versions that bound their levels."""


def trim(connection: sqlite3.Connection, table: str) -> None:
    """Leave out the empty levels of an index, when there are many. Outside a transaction."""
    found = connection.execute(f"SELECT block FROM {table}_fts_data WHERE id = {_STRUCTURE}").fetchall()
    trimmed = _without_empty_levels(bytes(found[0][0])) if found else None
    if trimmed is None:
        return
    connection.execute(f"UPDATE {table}_fts_data SET block = ? WHERE id = {_STRUCTURE}", (trimmed,))
    _forget(connection, table)


def is_usable(connection: sqlite3.Connection, table: str) -> bool:
    """False when FTS5 cannot even read the list of parts."""
    try:
        connection.execute(f"SELECT rowid FROM {table}_fts WHERE {table}_fts MATCH 'x' LIMIT 1").fetchall()
    except sqlite3.DatabaseError as error:
        if not is_broken_index(error):
            raise
        return False
    return True


def is_broken_index(error: BaseException) -> bool:
    """True when an error is about an index, and not about a table or the disk."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    is_broken = code == sqlite3.SQLITE_CORRUPT_VTAB
    return is_broken or "vtable constructor failed" in str(error)


def repair(connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Empty the indexes and fill them anew from their tables. Outside a transaction."""
    for table in tables:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(f"DELETE FROM {table}_fts_idx")
            connection.execute(f"DELETE FROM {table}_fts_data")
            connection.executemany(
                f"INSERT INTO {table}_fts_data (id, block) VALUES (?, ?)",
                [(_TOTALS, b""), (_STRUCTURE, _NO_PARTS)],
            )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        _forget(connection, table)
        connection.execute(
            f"INSERT INTO {table}_fts (rowid, text, scope) SELECT id, text, scope FROM {table}_text"
        )
        log.warning("the search index of %s was broken and was made anew; no row was touched", table)


def _forget(connection: sqlite3.Connection, table: str) -> None:
    """Let FTS5 read the list of parts again: it does after a transaction that was taken back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"INSERT INTO {table}_fts (rowid, text, scope) VALUES (-1, 'x', 'x')")
    except sqlite3.DatabaseError as error:
        if not is_broken_index(error):
            raise  # a broken one is not in memory either
    finally:
        connection.execute("ROLLBACK")


def _without_empty_levels(block: bytes) -> bytes | None:
    """The list of parts with fewer levels; `None` when it is fine, or in a form that needs none of this."""
    if block[4:8] == _NEWER:
        return None
    try:
        return _trimmed(block)
    except IndexError:
        return None  # no list at all: it is repaired


def _trimmed(block: bytes) -> bytes | None:
    levels, at = _number(block, 4)
    if levels <= MOST_LEVELS:
        return None
    parts, at = _number(block, at)
    writes, at = _number(block, at)
    kept: list[bytes] = []
    for _ in range(levels):
        begun = at
        _, at = _number(block, at)  # how many of the level's parts are being merged
        here, at = _number(block, at)
        for _ in range(3 * here):
            _, at = _number(block, at)
        if here:
            kept.append(block[begun:at])
    return b"".join((block[:4], *map(_varint, (len(kept), parts, writes)), *kept))


def _number(block: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a place, in SQLite's variable length, and where the next one does."""
    value = 0
    for count in range(9):
        byte = block[at + count]
        if count == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, at + count + 1
    raise AssertionError


def _varint(value: int) -> bytes:
    """A number of less than 56 bits in SQLite's variable length."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F | 0x80)
    return bytes(reversed(groups))
