"""What SQLite and the file system say, as our errors.

    sqlite3.Error, OSError --> StoreLocked, StoreFull, StoreReadOnly, StoreUnreadable, StoreError

Each names the file, what was kept and what to do. Who holds a lock is read from the kernel's
list: opening the database file to ask would drop this process's own POSIX locks on it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from ..errors import StoreError, StoreFull, StoreLocked, StoreReadOnly, StoreUnreadable
from ..store.error_texts import rejected

__all__ = ["from_os", "from_sqlite"]

_UNREADABLE = {
    sqlite3.SQLITE_NOTADB: "is not a SQLite database",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_PERM: "may not be read by this user",
    sqlite3.SQLITE_AUTH: "may not be read by this user",
}
_INTACT = "What was stored before is intact."


def from_sqlite(error: Exception, path: Path | None, *, kept: str) -> StoreError:
    """`error` as one of ours, with `error` as its cause. `path` is None in memory."""
    where = f"The database {path}" if path else "The database in memory"
    translated = _store_error(error, path, where, kept)
    translated.__cause__ = error
    return translated


def _store_error(error: Exception, path: Path | None, where: str, kept: str) -> StoreError:
    extended: int = getattr(error, "sqlite_errorcode", 0)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_IOERR and _has_no_space(path):
        code = sqlite3.SQLITE_FULL
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreLocked(
            f"{where} is locked by {_holder(path)}.",
            kept=kept,
            next_step="Let that program finish, or stop it: nobody else may write while everthink runs.",
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(
            f"There is no space left for {where[0].lower()}{where[1:]} ({error}).",
            kept=kept,
            next_step="Free some space and try again; a running store needs no restart.",
        )
    if code == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(
            f"{where} may not be written ({error}).",
            kept=kept,
            next_step="Give this user write access to the file and its directory, or use another file.",
        )
    if code in _UNREADABLE:
        return StoreUnreadable(
            f"{where} {_UNREADABLE[code]} ({error}).",
            kept="The file was left as it is.",
            next_step="Check the path and the permissions; restore a backup, or name another file.",
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(
            f"{where} could not be read or written: {error} ({getattr(error, 'sqlite_errorname', '?')}).",
            kept=kept,
            next_step="Check the disk. The store tries again with the next commit.",
        )
    return rejected(where, error)


def from_os(error: OSError, path: Path, *, doing: str) -> StoreError:
    """A file system's refusal to let us do what `doing` says with `path`."""
    what = f"Cannot {doing} {path}: {error.strerror}."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreReadOnly(
            what,
            kept="Nothing was changed.",
            next_step="Give this user write access to the directory, or use a database file elsewhere.",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(what, kept=_INTACT, next_step="Free some space and start again.")
    return StoreUnreadable(
        what,
        kept="Nothing was changed.",
        next_step="Check the path; the database needs a local file system that knows flock.",
    )


def _has_no_space(path: Path | None) -> bool:
    if path is None:
        return False
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 65_536


def _holder(path: Path | None) -> str:
    """Which process holds a POSIX lock on the database, as far as Linux tells."""
    if path is None:
        return "another connection"
    inodes: set[str] = set()
    for suffix in ("", "-wal", "-shm"):
        try:
            inodes.add(str(os.stat(f"{path}{suffix}").st_ino))
        except OSError:
            continue
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another program"
    ours = str(os.getpid())
    pids: set[str] = set()
    for line in lines:
        # "1: POSIX  ADVISORY  WRITE 4711 fe:00:1234567 120 120"
        fields = line.split()
        if len(fields) > 5 and fields[1] == "POSIX" and fields[5].rsplit(":", 1)[-1] in inodes:
            pids.add(fields[4])
    others = sorted(pids - {ours}, key=int)
    if others:
        return f"another program (pid {', '.join(others)})"
    return "another connection of this process" if ours in pids else "another program"
