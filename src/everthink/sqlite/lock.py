"""One process owns a database: a lock file beside it, `<database>.lock`.

    open --> LockFile.acquire … LockFile.release <-- close

The kernel holds the lock (`flock`) and drops it when the process ends, however it ends: a lock
file that was left behind means nothing. The text in it only serves the error of whoever comes second.
"""

from __future__ import annotations

import fcntl
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from ..errors import StoreLocked
from .failures import from_os
from .files import private

__all__ = ["LockFile"]


class LockFile:
    """Held from `acquire` to `release`, or to the end of the process."""

    def __init__(self, path: Path, descriptor: int, *, was_left: bool = False) -> None:
        self.path = path
        self.was_left = was_left
        """True when the process that held it before never released it."""
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, database: Path) -> LockFile:
        """Own `database`, or raise `StoreLocked` naming who does."""
        path = database.with_name(database.name + ".lock")
        descriptor = private(path, doing="create the lock file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode(errors="replace")
            os.close(descriptor)
            raise _locked(database, path, holder) from None
        except OSError as error:
            os.close(descriptor)
            raise from_os(error, path, doing="lock the file") from error
        was_left = bool(os.pread(descriptor, 1, 0))
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = f"pid {os.getpid()}\nhost {socket.gethostname()}\nsince {since}\n".encode()
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)
        except OSError:
            pass  # A full disk: the lock holds without its text.
        return cls(path, descriptor, was_left=was_left)

    def release(self, *, is_left: bool = False) -> None:
        """Let somebody else own the database. `is_left`: and have them finish what we did not.

        The file stays: removing it would let two processes lock two files of the same name.
        """
        try:
            if not is_left:
                os.ftruncate(self._descriptor, 0)
        except OSError:
            pass
        os.close(self._descriptor)


def _locked(database: Path, path: Path, holder: str) -> StoreLocked:
    facts = dict(line.split(" ", 1) for line in holder.splitlines() if " " in line)
    pid = facts.get("pid", "")
    if pid == str(os.getpid()):
        return StoreLocked(
            f"The database {database} is already open in this process (pid {pid}); its lock file is {path}.",
            kept="Nothing was changed.",
            next_step="It is another App, or store, of this very process: use that one, or close it first"
            " (`await app.close()`, or `async with App(…) as app`). In a notebook, make the App in a cell of"
            " its own and do not run that cell twice; if nothing refers to the old one any more, restart the"
            " kernel.",
        )
    who = f"process {pid} on {facts.get('host', 'this machine')}" if pid else "another process"
    since = f" since {facts['since']}" if "since" in facts else ""
    return StoreLocked(
        f"The database {database} is held by {who}{since}; its lock file is {path}.",
        kept="Nothing was changed.",
        next_step=f"Stop that process{f' (kill {pid})' if pid else ''}, or use another database file. "
        "Removing the lock file does not help.",
    )
