"""The tables `files`, `contents` and `file_changes`: definitions and statements; nobody else touches them.

A file names its bytes by their hash, so copying and moving move no bytes, and the log can name what was there
before. The root is no row. A path is compared byte by byte on every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ..clock import moment_of, ms_of
from ..messages import decode_json, encode_json
from ..store.port import Row, Statement
from .contents import Part
from .plan import Kept, Step
from .port import Change, Entry

__all__ = [
    "ANY",
    "BELOW",
    "BYTE_ORDER",
    "COUNTS",
    "COUNT_OBJECTS",
    "FIRST_OF_TURN",
    "FORGETTABLE",
    "KNOWN",
    "LISTED",
    "LOG",
    "LOG_BOUNDS",
    "OBJECTS",
    "ONE",
    "PART",
    "READ",
    "SCANNED",
    "SPILLED",
    "TABLES",
    "USAGE",
    "changed",
    "content_kept",
    "content_spilled",
    "entry_of",
    "forgotten",
    "kept_of",
    "let_go",
    "logged",
    "looked",
    "places",
    "swept",
    "unnamed",
]

TABLES = (
    """CREATE TABLE files (
        agent TEXT NOT NULL,
        path TEXT NOT NULL,
        parent TEXT NOT NULL,
        kind TEXT NOT NULL,
        size BIGINT NOT NULL,
        media_type TEXT NOT NULL,
        target TEXT,
        hash TEXT,
        created_at BIGINT NOT NULL,
        modified_at BIGINT NOT NULL,
        PRIMARY KEY (agent, path)
    ) /* clustered */""",
    "CREATE INDEX files_in_folder ON files (agent, parent, path)",
    """CREATE TABLE contents (
        agent TEXT NOT NULL,
        hash TEXT NOT NULL,
        part BIGINT NOT NULL,
        place TEXT NOT NULL,
        encoding TEXT NOT NULL,
        begins BIGINT NOT NULL,
        size BIGINT NOT NULL,
        content TEXT,
        PRIMARY KEY (agent, hash, part)
    )""",
    """CREATE TABLE file_changes (
        agent TEXT NOT NULL,
        seq BIGINT NOT NULL,
        path TEXT NOT NULL,
        change TEXT NOT NULL,
        kind TEXT NOT NULL,
        hash TEXT,
        was TEXT,
        was_hash TEXT,
        was_size BIGINT NOT NULL,
        call_id TEXT,
        turn TEXT,
        at BIGINT NOT NULL,
        PRIMARY KEY (agent, seq)
    ) /* clustered */""",
)

BYTE_ORDER = (
    'ALTER TABLE files ALTER COLUMN path TYPE TEXT COLLATE "C"',
    'ALTER TABLE files ALTER COLUMN parent TYPE TEXT COLLATE "C"',
)
"""For PostgreSQL only, where a language would decide otherwise what lies between two paths."""

T = TypeVar("T")

_ENTRY = "path, kind, size, media_type, target, hash, created_at, modified_at"
_ROWS = 50
"""Rows of one statement, when there are that many: few texts for an engine to prepare."""


# --- reading


def looked(paths: int) -> str:
    """So many paths, and in the row with no path (its size) the number of the last change."""
    marks = ", ".join("?" * paths)
    return (
        "SELECT '' AS path, 'seq' AS kind, COALESCE(MAX(seq), 0) AS size, '' AS media_type, NULL AS target,"
        " NULL AS hash, 0 AS created_at, 0 AS modified_at FROM file_changes WHERE agent = :agent UNION ALL"
        f" SELECT {_ENTRY} FROM files WHERE agent = :agent AND path IN ({marks})"
    )


ONE = f"SELECT {_ENTRY} FROM files WHERE agent = :agent AND path = ?"

PART = "SELECT place, encoding, content FROM contents WHERE agent = :agent AND hash = ? AND part = ?"

BELOW = f"SELECT {_ENTRY} FROM files WHERE agent = :agent AND path >= ? AND path < ? ORDER BY path"

LISTED = f"SELECT {_ENTRY} FROM files WHERE agent = :agent AND parent = ? AND path > ? ORDER BY path LIMIT ?"

SCANNED = f"SELECT {_ENTRY} FROM files WHERE agent = :agent AND path > ? AND path < ? ORDER BY path LIMIT ?"

READ = (
    "SELECT f.path, f.kind, f.hash, c.place, c.encoding, c.begins, c.content FROM files f"
    " LEFT JOIN contents c ON c.agent = f.agent AND c.hash = f.hash"
    " AND (c.begins < ? AND c.begins + c.size > ? OR c.place = 'object')"
    " WHERE f.agent = :agent AND f.path = ? ORDER BY c.part"
)
"""The parts of a file between two bytes: the end, the start, the path."""

KNOWN = (
    "SELECT f.path, c.place, c.encoding, c.content FROM files f"
    " JOIN contents c ON c.agent = f.agent AND c.hash = f.hash AND c.part = 0"
    " WHERE f.agent = :agent AND f.path >= ? AND f.path <= ? AND f.kind = 'file' AND f.size <= ?"
)
"""The bytes of the files from one path to another that have one part."""

USAGE = "SELECT COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM files WHERE agent = :agent"

COUNTS = (
    "SELECT kind, COUNT(*), CAST(COALESCE(SUM(size), 0) AS BIGINT) FROM files WHERE agent = :agent"
    " GROUP BY kind"
)

SPILLED = (
    "SELECT COUNT(*) FROM files f JOIN contents c ON c.agent = f.agent AND c.hash = f.hash AND c.part = 0"
    " WHERE f.agent = :agent AND c.place = 'object'"
)

ANY = "SELECT 1 FROM contents WHERE agent = :agent LIMIT 1"

COUNT_OBJECTS = "SELECT COUNT(*) FROM contents WHERE agent = :agent AND place = 'object'"

OBJECTS = "SELECT hash FROM contents WHERE agent = :agent AND place = 'object'"


def places(hashes: int) -> str:
    """Which of so many contents are kept already, and where."""
    marks = ", ".join("?" * hashes)
    return f"SELECT hash, place FROM contents WHERE agent = :agent AND part = 0 AND hash IN ({marks})"


def entry_of(row: Row) -> Entry:
    """A row of `files` as an entry."""
    path, kind, size, media_type, target, hash, created_at, modified_at = row
    return Entry(path, kind, size, media_type, moment_of(created_at), moment_of(modified_at), hash, target)


# --- writing


def changed(steps: Sequence[Step]) -> Iterator[Statement]:
    """Make the rows of `files` what a plan came to."""
    gone = [step.path for step in steps if step.after is None]
    for paths in _in_rows(gone):
        marks = ", ".join("?" * len(paths))
        yield Statement(f"DELETE FROM files WHERE agent = :agent AND path IN ({marks})", tuple(paths))
    there = [step.after for step in steps if step.after is not None]
    for entries in _in_rows(there):
        marks = ", ".join(["(:agent, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(entries))
        yield Statement(
            "INSERT INTO files (agent, path, parent, kind, size, media_type, target, hash, created_at,"
            f" modified_at) VALUES {marks} ON CONFLICT (agent, path) DO UPDATE SET kind = excluded.kind,"
            " size = excluded.size, media_type = excluded.media_type, target = excluded.target,"
            " hash = excluded.hash, created_at = excluded.created_at, modified_at = excluded.modified_at",
            tuple(value for entry in entries for value in _values(entry)),
        )


def _values(entry: Entry) -> tuple[Any, ...]:
    return (
        entry.path,
        entry.path.rpartition("/")[0] or "/",
        entry.kind,
        entry.size,
        entry.media_type,
        entry.target,
        entry.hash,
        ms_of(entry.created_at),
        ms_of(entry.modified_at),
    )


def content_kept(hash: str, part: Part) -> Statement:
    """Keep one part of some bytes."""
    return Statement(
        "INSERT INTO contents (agent, hash, part, place, encoding, begins, size, content)"
        " VALUES (:agent, ?, ?, 'row', ?, ?, ?, ?) ON CONFLICT (agent, hash, part) DO NOTHING",
        (hash, part.number, part.encoding, part.start, part.size, part.text),
    )


def content_spilled(hash: str, size: int) -> Statement:
    """Say that some bytes are in the object store."""
    return Statement(
        "INSERT INTO contents (agent, hash, part, place, encoding, begins, size, content)"
        " VALUES (:agent, ?, 0, 'object', '', 0, ?, NULL) ON CONFLICT (agent, hash, part) DO NOTHING",
        (hash, size),
    )


# --- the log


def logged(kept: Sequence[tuple[Change, Entry | None]]) -> Iterator[Statement]:
    """Write changes to the log."""
    for rows in _in_rows(kept):
        marks = ", ".join(["(:agent, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(rows))
        yield Statement(
            "INSERT INTO file_changes (agent, seq, path, change, kind, hash, was, was_hash, was_size,"
            f" call_id, turn, at) VALUES {marks}",
            tuple(value for change, before in rows for value in _log_values(change, before)),
        )


def _log_values(change: Change, before: Entry | None) -> tuple[Any, ...]:
    return (
        change.seq,
        change.path,
        change.change,
        change.kind,
        change.hash,
        None if before is None else _encoded(before),
        change.was,
        0 if before is None else before.size,
        change.call_id,
        change.turn,
        ms_of(change.at),
    )


_CHANGE = "seq, path, change, kind, hash, was_hash, at, call_id, turn, was"

LOG = f"SELECT {_CHANGE} FROM file_changes WHERE agent = :agent AND seq > ? ORDER BY seq LIMIT ?"

LOG_BOUNDS = "SELECT COALESCE(MIN(seq), 1), COALESCE(MAX(seq), 0) FROM file_changes WHERE agent = :agent"

FIRST_OF_TURN = "SELECT MIN(seq) FROM file_changes WHERE agent = :agent AND turn = ?"


def kept_of(row: Row) -> Kept:
    """A row of the log, with what was there before."""
    seq, path, change, kind, hash, was_hash, at, call_id, turn, was = row
    change = Change(seq, path, change, kind, hash, was_hash, moment_of(at), call_id, turn)
    return Kept(change, None if was is None else _decoded(path, was))


def _encoded(entry: Entry) -> str:
    return encode_json(
        [
            entry.kind,
            entry.size,
            entry.media_type,
            ms_of(entry.created_at),
            ms_of(entry.modified_at),
            entry.hash,
            entry.target,
        ]
    ).decode()


def _decoded(path: str, text: str) -> Entry:
    kind, size, media_type, created_at, modified_at, hash, target = decode_json(text)
    return Entry(path, kind, size, media_type, moment_of(created_at), moment_of(modified_at), hash, target)


# --- what is not needed any more


FORGETTABLE = (
    "SELECT MAX(seq) FROM ("
    "SELECT seq, at, ROW_NUMBER() OVER (ORDER BY seq DESC) AS place,"
    " SUM(was_size) OVER (ORDER BY seq DESC) AS held FROM file_changes WHERE agent = :agent"
    ") AS log WHERE (place > ? OR held > ? OR at < ?)"
    " AND at < (SELECT MAX(at) FROM file_changes WHERE agent = :agent)"
)
"""Up to which change the log need not be kept: so many, so many bytes and so old is enough.

The last one stays, since the next is numbered after it, and so does what was changed together with it.
"""


def forgotten(seq: int) -> Statement:
    """Take the changes up to `seq` out of the log."""
    return Statement("DELETE FROM file_changes WHERE agent = :agent AND seq <= ?", (seq,))


def let_go(folder: str, upper: str, but: Statement) -> Iterator[Statement]:
    """Remove the files of a folder, but those that a condition holds for, and what the log knows of them.

    No change is noted: what was here is not to be brought back. The bytes stay until the next sweep, since
    somebody may be copying a file. `upper` is the folder above, which goes as well when it is empty.
    """
    whose = f"agent = :agent AND parent = ? AND kind = 'file' AND NOT ({but.sql})"
    params = (folder, *but.params)
    yield Statement(
        "UPDATE file_changes SET hash = NULL, was = NULL, was_hash = NULL, was_size = 0 WHERE agent = :agent"
        f" AND path IN (SELECT path FROM files WHERE {whose})",
        params,
    )
    yield Statement(f"DELETE FROM files WHERE {whose}", params)
    for path in (folder, upper):
        yield Statement(
            "DELETE FROM files WHERE agent = :agent AND path = ? AND kind = 'directory' AND NOT EXISTS"
            " (SELECT 1 FROM files inside WHERE inside.agent = files.agent AND inside.parent = files.path)",
            (path,),
        )


_NAMED = (
    "SELECT hash FROM files WHERE agent = :agent AND hash IS NOT NULL"
    " UNION SELECT hash FROM file_changes WHERE agent = :agent AND hash IS NOT NULL"
    " UNION SELECT was_hash FROM file_changes WHERE agent = :agent AND was_hash IS NOT NULL"
)


def unnamed(after: str, limit: int) -> Statement:
    """So many hashes of bytes that no file and no change names, in their order, from behind one on."""
    return Statement(
        "SELECT DISTINCT hash FROM contents WHERE agent = :agent AND hash > ?"
        f" AND hash NOT IN ({_NAMED}) ORDER BY hash LIMIT ?",
        (after, limit),
    )


def swept(hashes: Sequence[str]) -> Statement:
    """Delete those of these bytes that no file and no change names. Returns their hashes and places."""
    marks = ", ".join("?" * len(hashes))
    return Statement(
        f"DELETE FROM contents WHERE agent = :agent AND hash IN ({marks}) AND hash NOT IN ({_NAMED})"
        " RETURNING hash, place",
        tuple(hashes),
    )


def _in_rows(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Many at a time while there are many, then one by one."""
    whole = len(rows) - len(rows) % _ROWS
    yield from (rows[start : start + _ROWS] for start in range(0, whole, _ROWS))
    yield from (rows[place : place + 1] for place in range(whole, len(rows)))
