"""Skills in directories of this machine, and nothing outside of them.

    from_directory("skills", beside=__file__) --Confined--> SKILL.md, scripts/, references/, …

Every file is opened through a descriptor of its root and no link is followed, so that whoever may write into
a skill cannot make it read what else is on the machine. The disk is asked in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from ..clock import Clock
from ..confined import Confined
from ..errors import InvalidSettings
from ..kinds import check_options
from ..settings import shown
from ..skill_values import Diagnostic
from .tree import OPTIONS, SKIPPED, Bounds, FileFound, Looked, TreeSource

__all__ = ["DirectoryTree", "from_directory"]

REFRESH_INTERVAL = 1.0

T = TypeVar("T")
Root = str | os.PathLike[str]


def from_directory(
    root: Root,
    *more: Root,
    beside: str | None = None,
    id: str | None = None,
    refresh_interval: float = REFRESH_INTERVAL,
    bounds: Bounds | None = None,
    clock: Clock | None = None,
) -> TreeSource:
    """Skills in a directory: each folder in it that has a `SKILL.md` is one.

        skills = [skills.from_directory("skills", beside=__file__)]

    `beside` is the file that a relative path starts at; without it, it starts where the process was started.
    With several directories the first one to have a name wins. Changes are seen within `refresh_interval`
    seconds.
    """
    check_options("from_directory", OPTIONS, id=id, refresh_interval=refresh_interval, bounds=bounds)
    roots = [_root(one, beside) for one in (root, *more)]
    name = id or f"directory:{','.join(os.fspath(one) for one in (root, *more))}"
    tree = DirectoryTree(roots[0]) if len(roots) == 1 else SeveralTrees([DirectoryTree(one) for one in roots])
    return TreeSource(name, tree, bounds=bounds, refresh_interval=refresh_interval, clock=clock)


def _root(root: object, beside: str | None) -> Path:
    if not isinstance(root, str | os.PathLike) or not os.fspath(root):
        raise InvalidSettings(
            f"from_directory is given {shown(root)}.",
            next_step='Give the path of a directory: from_directory("skills", beside=__file__).',
        )
    path = Path(os.fspath(root)).expanduser()  # pyright: ignore[reportUnknownArgumentType]
    start = Path(beside).resolve().parent if beside is not None else Path.cwd()
    return path if path.is_absolute() else start / path


class DirectoryTree:
    """The files of one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def look(self, bounds: Bounds) -> Looked:
        """Every file, without what is in it."""
        return await asyncio.to_thread(self._within, lambda place: _look(place, bounds))

    async def read(self, path: str, most: int) -> bytes | None:
        """The bytes of a file that is no link."""
        return await asyncio.to_thread(self._within, lambda place: _read(place, path, most))

    def _within(self, work: Callable[[Confined], T]) -> T:
        # Opened anew each time: a deploy may have put another directory in its place.
        if not self.root.is_dir():
            raise FileNotFoundError(errno.ENOENT, "There is no such directory", str(self.root))
        place = Confined(self.root)
        try:
            return work(place)
        finally:
            place.close()


def _look(place: Confined, bounds: Bounds) -> Looked:
    files, told = list[FileFound](), list[Diagnostic]()
    waiting, looked = [""], 0
    while waiting:
        folder = waiting.pop()
        try:
            fd = place.folder(folder)
        except OSError as error:
            told.append(_unreadable(folder, error))
            continue
        try:
            with os.scandir(fd) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    looked += 1
                    if looked > bounds.entries:
                        told.append(_too_many(bounds))
                        return Looked(files, told)
                    _take(
                        entry,
                        f"{folder}/{entry.name}" if folder else entry.name,
                        files,
                        waiting,
                        told,
                        bounds,
                    )
        finally:
            os.close(fd)
    return Looked(files, told)


def _take(
    entry: os.DirEntry[str],
    path: str,
    files: list[FileFound],
    waiting: list[str],
    told: list[Diagnostic],
    bounds: Bounds,
) -> None:
    if entry.name in SKIPPED:
        return
    skill, _, below = path.partition("/")
    if entry.is_symlink():
        told.append(
            Diagnostic(
                "warning",
                skill,
                f"{'Its file ' + repr(below) if below else 'It'} is a link, and links are not followed.",
                "Copy what it leads to, or name that as a directory of its own.",
            )
        )
    elif entry.is_dir(follow_symlinks=False):
        if entry.name.startswith(".") and not below:
            return
        if path.count("/") > bounds.depth + 1:
            told.append(Diagnostic("warning", skill, f"Its folder {below[:120]!r} is too deep to be read."))
            return
        waiting.append(path)
    elif entry.is_file(follow_symlinks=False):
        found = entry.stat(follow_symlinks=False)
        files.append(FileFound(path, found.st_size, str(found.st_mtime_ns)))
    elif below:
        told.append(Diagnostic("warning", skill, f"Its file {below[:120]!r} is no file that can be read."))


def _read(place: Confined, path: str, most: int) -> bytes | None:
    try:
        fd = place.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV):
            return None
        raise
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        data = file.read(most + 1)
    return data if len(data) <= most else None


def _unreadable(folder: str, error: OSError) -> Diagnostic:
    skill, _, below = folder.partition("/")
    about = f"Its folder {below!r}" if below else "Its folder" if skill else "The directory"
    return Diagnostic(
        "error" if skill and not below else "warning",
        skill or None,
        f"{about} cannot be read: {error.strerror or type(error).__name__}.",
        "Let this process read it.",
    )


def _too_many(bounds: Bounds) -> Diagnostic:
    return Diagnostic(
        "warning",
        None,
        f"There are more than {bounds.entries:,} files and folders; the rest is not looked at.",
        "Name a directory that has skills only.",
    )


class SeveralTrees:
    """Directories that are shown as one: the first to have a folder has it."""

    def __init__(self, trees: Sequence[DirectoryTree]) -> None:
        self._trees = trees
        self._owner: dict[str, DirectoryTree] = {}

    async def look(self, bounds: Bounds) -> Looked:
        """Every file of all of them. One that cannot be read is left out."""
        owner, files, told = dict[str, DirectoryTree](), list[FileFound](), list[Diagnostic]()
        for tree in self._trees:
            try:
                looked = await tree.look(bounds)
            except OSError as error:
                told.append(
                    Diagnostic(
                        "warning",
                        None,
                        f"The directory {str(tree.root)!r} is left out: {error.strerror or error}.",
                        "Make it, or take it out of from_directory().",
                    )
                )
                continue
            told += looked.diagnostics
            taken, again = set[str](), set[str]()
            for file in looked.files:
                folder = file.path.partition("/")[0]
                if owner.get(folder, tree) is not tree:
                    again.add(folder)
                    continue
                taken.add(folder)
                files.append(file)
            owner |= dict.fromkeys(taken, tree)
            told += [
                Diagnostic(
                    "warning",
                    folder,
                    f"It is in several directories; the one in {str(owner[folder].root)!r} is used.",
                    "Rename one of them.",
                )
                for folder in sorted(again)
            ]
        self._owner = owner
        return Looked(files, told)

    async def read(self, path: str, most: int) -> bytes | None:
        """The bytes of a file, from the directory that has its folder."""
        tree = self._owner.get(path.partition("/")[0])
        return None if tree is None else await tree.read(path, most)
