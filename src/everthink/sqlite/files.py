"""The files of a database belong to one user: nobody else reads them, and no link leads elsewhere.

    open_database --> make_folder, claim, private --> the database, its log, its lock          0700, 0600

Whatever the umask is, what we make is private from its first moment; what is ours and can be read by
others is made private. A link in the place of one of the files is refused, a hard link as well: following
it would let whoever may write to the folder choose what we write to.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ..errors import StoreError, StoreUnreadable
from .failures import from_os

__all__ = ["BESIDE", "check_beside", "claim", "file_at", "make_folder", "private", "resolved"]

BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside the database, by how their names end."""
_FILE, _FOLDER, _OTHERS = 0o600, 0o700, 0o077
_MAGIC = b"SQLite format 3\0"
"""How a database of SQLite begins."""


def resolved(path: str | os.PathLike[str]) -> Path | None:
    """The one name of the file, so that whoever names it shares a lock. None for `:memory:`."""
    if path == ":memory:":
        return None
    given = Path(os.path.abspath(os.path.expanduser(path)))
    for place in given.parents:
        # An operator may put the data on another disk; somebody else may not put it anywhere.
        if place.is_symlink() and place.lstat().st_uid not in (0, os.geteuid()):
            raise _link(given, f"its folder {place} is a link that another user made")
    if given.is_symlink():
        raise _link(given, "it is a link")
    return Path(os.path.realpath(given.parent)) / given.name


def make_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, for us alone. One that is there stays as it is."""
    missing: list[Path] = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    for place in reversed(missing):
        try:
            place.mkdir(_FOLDER)
            place.chmod(_FOLDER)  # the umask may have taken our own rights
        except FileExistsError:
            if not place.is_dir():
                raise


def private(path: Path, *, doing: str, is_database: bool = False) -> int:
    """Open the file at `path` for reading and writing, made if need be, as nobody's but ours."""
    try:
        descriptor = _opened(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _link(path, "it is a link") from error
        raise from_os(error, path, doing=doing) from error
    try:
        if is_database:
            _check_begins(path, descriptor)
        _check(path, descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, _FILE)
    except FileExistsError:
        return os.open(path, flags)
    os.fchmod(descriptor, _FILE)
    return descriptor


def _check_begins(path: Path, descriptor: int) -> None:
    begins = os.pread(descriptor, len(_MAGIC), 0)
    if begins and begins != _MAGIC:
        # Somebody named a file of another kind, which keeps its rights as well.
        raise StoreUnreadable(
            f"The file {path} is not a SQLite database.",
            kept="Nothing was changed.",
            next_step="Name a file that does not exist yet, or a database of everthink.",
        )


def _check(path: Path, descriptor: int) -> None:
    facts = os.fstat(descriptor)
    _check_facts(path, facts)
    if facts.st_uid == os.geteuid() and facts.st_mode & _OTHERS:
        os.fchmod(descriptor, stat.S_IMODE(facts.st_mode) & ~_OTHERS)


def _check_facts(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode):
        raise _link(path, "it is no file")
    if facts.st_nlink > 1:
        raise StoreUnreadable(
            f"The file {path} is not used: it has another name as well (a hard link), and what we write would"
            " be written there too.",
            kept="Nothing was changed.",
            next_step="If the other name is a backup of yours, copy the database, and its -wal if there is"
            " one, to a new name with `cp`, and use that. A .lock or -shm that is not yours can be removed."
            " Keep the database in a folder that only this user may write to.",
        )


def claim(path: Path) -> tuple[int, int]:
    """Make sure that the database at `path` is a file and ours alone; make it if need be. Which file it is.

    A file that is as it should be is not opened: closing it would drop the locks that another connection of
    this process has on it.
    """
    if not os.path.lexists(path):
        os.close(private(path, doing="create the database"))
    _tighten(path, is_database=True)
    for ending in BESIDE:
        beside = path.with_name(path.name + ending)
        if os.path.lexists(beside):
            _tighten(beside)
    return file_at(path)


def check_beside(path: Path) -> None:
    """Raise when what SQLite would open beside the database at `path` is a link. Nothing is changed."""
    for ending in BESIDE:
        beside = path.with_name(path.name + ending)
        if os.path.lexists(beside):
            _checked(beside)


def _tighten(path: Path, *, is_database: bool = False) -> None:
    facts = _checked(path)
    if facts.st_uid == os.geteuid() and facts.st_mode & _OTHERS:
        os.close(private(path, doing="make private", is_database=is_database))


def _checked(path: Path) -> os.stat_result:
    facts = path.lstat()
    if stat.S_ISLNK(facts.st_mode):
        raise _link(path, "it is a link")
    _check_facts(path, facts)
    return facts


def file_at(path: Path) -> tuple[int, int]:
    """Which file has this name now."""
    facts = path.lstat()
    return facts.st_dev, facts.st_ino


def _link(path: Path, why: str) -> StoreError:
    return StoreUnreadable(
        f"The file {path} is not used: {why}.",
        kept="Nothing was changed.",
        next_step="Name the file itself, in a folder that only this user may write to.",
    )
