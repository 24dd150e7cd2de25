"""Files in a real directory, which other programs may use as well.

    Workspace --edits--> DiskFiles --Plan--> temporary files, then renames --> the directory

Nothing outside the directory can be reached (`Confined`). A reader sees a file as it was or as it is, and
never half of it. When an edit fails in the middle, what was done of it is taken back. A crash while there are
several edits leaves some of them done; one alone is done or not, unless it copies a folder. What was is gone.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import secrets
import stat as modes
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar, assert_never

from ..clock import Clock, SystemClock, moment_of
from ..confined import Confined
from ..errors import InvalidSettings, WorkspaceCode, WorkspaceError
from ..media_types import media_type_of
from ..settings import check_call
from . import refusals
from .contents import Ready, gathered
from .paths import ancestors, name_of, normal, parent_of
from .plan import ROOT, Plan, Usage, followed
from .port import (
    MIB,
    UNLIMITED,
    Changes,
    CommitEdit,
    Copy,
    Edit,
    Entries,
    Entry,
    Kind,
    Link,
    MakeFolder,
    Move,
    Put,
    Remove,
    WorkspaceLimits,
)

__all__ = ["DiskFiles"]

_OURS = ".~everthink-"
"""How names begin that we use on the way. They are nobody's files, and not shown."""
_PIECE = 1 << 20
_PAGE = 500
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_CODES: dict[int, WorkspaceCode] = {
    errno.ENOENT: "ENOENT",
    errno.EISDIR: "EISDIR",
    errno.ENOTDIR: "ENOTDIR",
    errno.EEXIST: "EEXIST",
    errno.ENOTEMPTY: "ENOTEMPTY",
    errno.EPERM: "EPERM",
    errno.EACCES: "EPERM",
    errno.ELOOP: "ELOOP",
    errno.ENAMETOOLONG: "ENAMETOOLONG",
    errno.EFBIG: "EFBIG",
    errno.EDQUOT: "EDQUOT",
    errno.ENOSPC: "EDQUOT",
    errno.EROFS: "EROFS",
    errno.EXDEV: "EXDEV",
}

_log = logging.getLogger("everthink.workspace")

T = TypeVar("T")
_Stat = Callable[[str], "Entry | None"]


class DiskFiles:
    """The files below a directory: `DiskFiles("/srv/shared")`. It is made when it is not there.

    Pipes, devices and sockets are not shown, nor names that no path of a workspace can have. A file of more
    than `most_bytes` is read in parts.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        most_bytes: int = 100 * MIB,
        clock: Clock | None = None,
        openat2: bool | None = None,
    ) -> None:
        check_call("DiskFiles", root=root, most_bytes=most_bytes)
        if os.path.exists(root) and not os.path.isdir(root):
            raise InvalidSettings(
                f"DiskFiles({os.fspath(root)!r}): this is a file.",
                next_step="Name a directory, or a new one.",
            )
        self._confined = Confined(root, openat2=openat2)
        self._most_bytes, self._clock = most_bytes, clock or SystemClock()
        self._lock = threading.Lock()  # held in a thread, from the look to the last rename
        self._seq = 0
        self._usage: Usage | None = None

    def close(self) -> None:
        """Let go of the directory. The next use opens it again."""
        self._confined.close()

    # --- reading

    async def stat(self, path: str, *, follow: bool = True) -> Entry | None:
        """What is at a path, or `None`."""
        return await asyncio.to_thread(self._stat, path, follow)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes of a file, all or some."""
        return await asyncio.to_thread(self._read, path, start, length)

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file, in pieces of 1 MiB."""
        fd = await asyncio.to_thread(self._opened, path)
        if fd is None:
            raise refusals.not_found(path)
        try:
            while piece := await asyncio.to_thread(os.read, fd, _PIECE):
                yield piece
        finally:
            os.close(fd)

    async def list(self, folder: str, *, limit: int = 1000, after: str = "") -> Entries:
        """What is directly in a folder, by name."""
        return await asyncio.to_thread(self._list, folder, limit, after)

    async def scan(
        self, prefix: str = "/", *, contents: bool = False, most_bytes: int = 1 << 20
    ) -> AsyncIterator[tuple[Entry, bytes | None]]:
        """Everything below a folder in the order of paths."""
        walk = self._walk(prefix)
        while page := await asyncio.to_thread(lambda: list(islice(walk, _PAGE))):
            for entry in page:
                is_wanted = contents and entry.kind == "file" and entry.size <= most_bytes
                yield entry, await self.read(entry.path) if is_wanted else None

    def _stat(self, path: str, follow: bool = False) -> Entry | None:
        return self._followed(path)[1] if follow else self._one(path)

    def _followed(self, path: str) -> tuple[str, Entry | None]:
        async def at(path: str) -> Entry | None:
            return self._one(path)

        return _driven(followed(path, at))

    def _one(self, path: str) -> Entry | None:
        if path == "/":
            return ROOT
        with _told(path):
            try:
                folder = self._confined.folder(parent_of(path))
            except OSError as error:
                if error.errno in _GONE:
                    return None
                raise
            try:
                return _entry(folder, path)
            finally:
                os.close(folder)

    def _read(self, path: str, start: int, length: int | None) -> bytes | None:
        fd = self._opened(path)
        if fd is None:
            return None
        with _told(path), os.fdopen(fd, "rb") as file:
            size = os.fstat(fd).st_size
            end = size if length is None else min(start + length, size)
            if end - start > self._most_bytes:
                raise WorkspaceError(
                    f"{path!r} has {size:,} bytes, and {self._most_bytes:,} are read at once.",
                    code="EFBIG",
                    path=path,
                    next_step="Read a part of it, or use read_file_stream().",
                )
            file.seek(start)
            return file.read(max(end - start, 0)) if length is not None else file.read()

    def _opened(self, path: str) -> int | None:
        entry = self._stat(path, follow=True)
        if entry is None:
            return None
        if entry.kind == "directory":
            raise refusals.is_folder(entry.path)
        with _told(path):
            try:
                fd = self._confined.open(entry.path, os.O_RDONLY)
            except OSError as error:
                if error.errno in _GONE:  # since the look
                    return None
                raise
            if not modes.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                return None
            return fd

    def _list(self, folder: str, limit: int, after: str) -> Entries:
        with _told(folder):
            try:
                fd = self._confined.folder(folder)
            except OSError as error:
                if error.errno in _GONE:
                    return []
                raise
            try:
                names = sorted(name for name in os.listdir(fd) if name > after and _is_name(name))
                base = folder.rstrip("/")
                found = (_entry(fd, f"{base}/{name}") for name in names)
                return list(islice((entry for entry in found if entry is not None), limit))
            finally:
                os.close(fd)

    def _walk(self, folder: str) -> Iterator[Entry]:
        """Everything below a folder. `/a.txt` comes before `/a/b`: the order is that of whole paths."""
        inside = self._list(folder, 1 << 62, "")
        order = [(entry.path, entry, False) for entry in inside]
        order += [(f"{entry.path}/", entry, True) for entry in inside if entry.kind == "directory"]
        for _, entry, goes_in in sorted(order, key=lambda one: one[0]):
            if goes_in:
                yield from self._walk(entry.path)
            else:
                yield entry

    # --- writing

    async def apply(
        self,
        edits: Sequence[Edit],
        *,
        conclude: CommitEdit | None = None,
        limits: WorkspaceLimits = UNLIMITED,
    ) -> Changes:
        """Do all of the edits, or none."""
        ready = await gathered(edits, most_bytes=limits.file_bytes)
        work = asyncio.ensure_future(asyncio.to_thread(self._apply, ready, limits))
        try:
            changes = await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])  # a thread cannot be stopped; whoever comes next waits for its lock
            raise
        if conclude is not None:
            await conclude(())
        return changes

    def _apply(self, ready: Sequence[Ready], limits: WorkspaceLimits) -> Changes:
        with self._lock:
            now = moment_of(self._clock.now_ms())
            hashed = {
                edit.path for edit, _ in ready if isinstance(edit, Put | Remove) and edit.if_hash is not None
            }

            async def look(paths: Sequence[str]) -> Mapping[str, Entry]:
                found = {path: self._one(path) for path in paths}
                return {
                    path: self._hashed(entry) if hashed else entry
                    for path, entry in found.items()
                    if entry is not None
                }

            async def below(folder: str) -> Sequence[Entry]:
                return list(self._walk(folder))

            plan = Plan(look, below, now=now, limits=limits)
            _driven(plan.edit(ready))
            for step in plan.steps:
                if step.after is not None and f"/{_OURS}" in step.path:
                    raise refusals.unfit(
                        f"Names that begin with {_OURS} are our own.",
                        step.path,
                        next_step="Use another name.",
                    )
            after = self._checked(plan, limits)
            _Effects(self._confined, self._followed, self._one).carry_out(ready)
            self._usage = after
            changes = [step.told(self._seq + n, at=now) for n, step in enumerate(plan.steps, 1)]
            self._seq += len(changes)
            return changes

    def _checked(self, plan: Plan, limits: WorkspaceLimits) -> Usage | None:
        """How much there is afterwards. Others write here, too: before a refusal it is counted again."""
        if limits.entries == UNLIMITED.entries and limits.files_bytes == UNLIMITED.files_bytes:
            return None
        if self._usage is not None:
            with suppress(WorkspaceError):
                return plan.usage(self._usage)
        entries = [entry.size for entry in self._walk("/")]
        return plan.usage(Usage(len(entries), sum(entries)))

    def _hashed(self, entry: Entry) -> Entry:
        if entry.kind != "file":
            return entry
        fd = self._opened(entry.path)
        if fd is None:
            return entry
        with os.fdopen(fd, "rb") as file:
            hash = hashlib.file_digest(file, "sha256").hexdigest()
        return Entry(
            entry.path, "file", entry.size, entry.media_type, entry.created_at, entry.modified_at, hash
        )


class _Effects:
    """Edits that are being carried out, and how to take back what was done of them."""

    def __init__(
        self, confined: Confined, followed: Callable[[str], tuple[str, Entry | None]], one: _Stat
    ) -> None:
        self._confined, self._followed, self._stat = confined, followed, one
        self._back: list[Callable[[], None]] = []
        self._trash: list[str] = []
        self._is_alone = False
        self._touched: set[str] = set()

    def carry_out(self, ready: Sequence[Ready]) -> None:
        """All of them, or none."""
        self._is_alone = len(ready) == 1
        with _told(""):
            try:
                for edit, content in ready:
                    self._one(edit, b"" if content is None else content.data)
                for folder in self._touched:
                    self._settle(folder)
            except BaseException:
                for undo in reversed(self._back):
                    with suppress(OSError):
                        undo()
                raise
        for path in self._trash:
            try:
                self._delete(path)
            except OSError as error:  # the edit is made; nobody sees what is left of the old
                _log.warning("What was replaced or removed is still at %s: %s", path, error)

    def _one(self, edit: Edit, data: bytes) -> None:
        match edit:
            case Put(path):
                there, _ = self._followed(path)
                self._folders_above(there)
                self._write(there, data)
            case MakeFolder(path):
                self._folders_above(path)
                self._make_folder(path)
            case Remove(path):
                self._put_away(path)
            case Move(source, path):
                if source != path:
                    self._folders_above(path)
                    self._put_away(path)
                    self._rename(source, path)
                    self._back.append(lambda: self._rename(path, source))
            case Copy(source, path):
                self._copy(source, path)
            case Link(path, target):
                self._folders_above(path)
                self._link(path, target)
            case _:
                assert_never(edit)

    def _folders_above(self, path: str) -> None:
        for folder in ancestors(path):
            self._make_folder(folder)

    def _make_folder(self, path: str) -> None:
        if path == "/":
            return
        with self._at(path) as (fd, name):
            try:
                os.mkdir(name, 0o755, dir_fd=fd)
            except FileExistsError:
                return
        self._back.append(lambda: self._remove_folder(path))

    def _remove_folder(self, path: str) -> None:
        with self._at(path) as (fd, name):
            os.rmdir(name, dir_fd=fd)

    def _write(self, path: str, data: bytes) -> None:
        """A new file takes the place of the old one, also for a reader and after a power cut."""
        with self._at(path) as (fd, name):
            fresh = _fresh_name()
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=fd)
            try:
                with os.fdopen(file, "wb") as opened:
                    opened.write(data)
                    opened.flush()
                    os.fsync(opened.fileno())
                if not self._is_alone:
                    self._keep_old(fd, path, name)
                os.rename(fresh, name, src_dir_fd=fd, dst_dir_fd=fd)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(fresh, dir_fd=fd)
                raise

    def _keep_old(self, fd: int, path: str, name: str) -> None:
        """A second name for the file that is about to be replaced, until all is done."""
        kept = f"/{_fresh_name()}"
        try:
            with self._at(kept) as (root, old):
                os.link(name, old, src_dir_fd=fd, dst_dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            self._back.append(lambda: self._unlink(path))
            return
        self._trash.append(kept)
        self._back.append(lambda: self._rename(kept, path))

    def _unlink(self, path: str) -> None:
        with self._at(path) as (fd, name):
            os.unlink(name, dir_fd=fd)

    def _put_away(self, path: str) -> None:
        """Out of sight at once, whole; gone when all is done. In the root, which no later edit moves."""
        kept = f"/{_fresh_name()}"
        try:
            self._rename(path, kept)
        except FileNotFoundError:
            return
        self._trash.append(kept)
        self._back.append(lambda: self._rename(kept, path))

    def _rename(self, source: str, path: str) -> None:
        with self._at(source) as (one, old), self._at(path) as (other, new):
            os.rename(old, new, src_dir_fd=one, dst_dir_fd=other)

    def _link(self, path: str, target: str) -> None:
        with self._at(path) as (fd, name):
            os.symlink(target, name, dir_fd=fd)
        self._back.append(lambda: self._unlink(path))

    def _copy(self, source: str, path: str, *, follow: bool = True) -> None:
        entry = self._stat(source)
        if entry is None:
            raise refusals.not_found(source)
        if entry.kind == "file" and follow:
            path, _ = self._followed(path)
        if path == source:
            return
        self._folders_above(path)
        if entry.kind == "symlink":
            self._put_away(path)
            self._link(path, entry.target or "")
        elif entry.kind == "file":
            fd = self._confined.open(source, os.O_RDONLY)
            with os.fdopen(fd, "rb") as file:
                self._write(path, file.read())
        else:
            self._make_folder(path)
            folder = self._confined.folder(source)
            try:
                names = sorted(name for name in os.listdir(folder) if _is_name(name))
            finally:
                os.close(folder)
            for name in names:
                if self._stat(f"{source}/{name}") is not None:
                    self._copy(f"{source}/{name}", f"{path}/{name}", follow=False)

    def _delete(self, path: str) -> None:
        """Everything that is there, without following anything."""
        with self._at(path) as (fd, name):
            try:
                os.unlink(name, dir_fd=fd)
                return
            except (IsADirectoryError, PermissionError):
                pass
        folder = self._confined.folder(path)
        try:
            names = os.listdir(folder)
        finally:
            os.close(folder)
        for name in names:
            self._delete(f"{path}/{name}")
        self._remove_folder(path)

    def _settle(self, folder: str) -> None:
        try:
            fd = self._confined.folder(folder)
        except OSError as error:
            if error.errno in _GONE:  # it was moved or removed by a later edit
                return
            raise
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def _at(self, path: str) -> Generator[tuple[int, str]]:
        """The folder that a path is in, opened, and the name there."""
        self._touched.add(parent_of(path))
        fd = self._confined.folder(parent_of(path))
        try:
            yield fd, name_of(path)
        finally:
            os.close(fd)


def _entry(folder: int, path: str) -> Entry | None:
    name = name_of(path)
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        target = os.readlink(name, dir_fd=folder) if modes.S_ISLNK(found.st_mode) else None
    except OSError as error:
        if error.errno in (*_GONE, errno.EINVAL):  # gone, or no link any more
            return None
        raise
    kind = _kind(found.st_mode)
    if kind is None:
        return None
    is_file = kind == "file"
    return Entry(
        path,
        kind,
        found.st_size if is_file else 0,
        media_type_of(path, b"\0") if is_file else "",
        datetime.fromtimestamp(min(found.st_ctime, found.st_mtime), UTC),
        datetime.fromtimestamp(found.st_mtime, UTC),
        None,
        target,
    )


def _kind(mode: int) -> Kind | None:
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "directory"
    return "symlink" if modes.S_ISLNK(mode) else None


def _is_name(name: str) -> bool:
    """True for what a path of a workspace can have as a part."""
    if name.startswith(_OURS):
        return False
    try:
        return normal(name) == f"/{name}"
    except WorkspaceError:
        return False


def _fresh_name() -> str:
    return f"{_OURS}{secrets.token_hex(8)}"


@contextmanager
def _told(path: str) -> Generator[None]:
    """What the system says, as our errors."""
    try:
        yield
    except OSError as error:
        raise WorkspaceError(
            f"The directory of the workspace could not be used so: {error.strerror or type(error).__name__}.",
            code=_CODES.get(error.errno or 0, "EIO"),
            path=path,
            kept="Nothing was changed.",
        ) from error


def _driven(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never has to wait."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise RuntimeError("a plan over a directory waited")
