"""`open()` and `Path` of a guest: the files of its job, or what the host has.

    Monty --"Path.read_text"--> Tree | HostFiles --> an answer, or an OSError with words

A guest writes to a file piece by piece and every piece comes here; a file that is opened for writing is
there, empty, from then on.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..sandbox.checks import parents_of
from ..sandbox.port import HostRefused, Job

__all__ = ["FILES", "Answer", "Found", "HostFiles", "Tree", "answered"]

FILES = "files"
"""A job that names functions of this module keeps no files of its own: the host has them. They are
`files.read(path)`, `files.write(path, bytes)`, `files.append(path, bytes)`, `files.stat(path)`,
`files.list(path)`, `files.mkdir(path)`, `files.remove(path)` and `files.rename(path, to)`."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is at a path."""

    is_folder: bool
    size: int = 0
    modified: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is an object of the interpreter's: the client makes it of this."""

    kind: Literal["file", "folder", "stat"]
    value: list[Any]


class Tree:
    """The files of a job, and what a guest makes of them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.files = dict(job.files)
        self.folders = {"/", *job.folders, *parents_of((*job.files, *job.folders))}

    async def stat(self, path: str) -> Found | None:
        """What is at a path."""
        if path in self.files:
            return Found(is_folder=False, size=len(self.files[path]), modified=(self._job.now or 0) / 1000)
        return Found(is_folder=True) if path in self.folders else None

    async def read(self, path: str) -> bytes:
        """The bytes of a file."""
        if path in self.folders:
            raise IsADirectoryError(f"Is a directory: {path!r}")
        if path not in self.files:
            raise FileNotFoundError(f"No such file or directory: {path!r}")
        return self.files[path]

    async def write(self, path: str, data: bytes) -> None:
        """Write a file anew."""
        if path in self.folders:
            raise IsADirectoryError(f"Is a directory: {path!r}")
        parent = posixpath.dirname(path)
        if parent not in self.folders:
            raise FileNotFoundError(f"No such file or directory: {parent!r}")
        limits = self._job.limits
        if len(data) > limits.file_bytes:
            raise OSError(f"{path} would be larger than {limits.file_bytes:,} bytes (file_bytes)")
        rest = sum(len(other) for name, other in self.files.items() if name != path)
        if rest + len(data) > limits.tree_bytes:
            raise OSError(f"the files would have more than {limits.tree_bytes:,} bytes together (tree_bytes)")
        self._make_room(path)
        self.files[path] = data

    async def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file."""
        await self.write(path, self.files.get(path, b"") + data)

    async def mkdir(self, path: str) -> None:
        """Make a folder, whose parent is there."""
        self._make_room(path)
        self.folders.add(path)

    def _make_room(self, path: str) -> None:
        there = len(self.files) + len(self.folders)
        most = self._job.limits.files + len(self._job.files) + len(self._job.folders)
        if path not in self.files and there > most:
            raise OSError(f"there would be more than {self._job.limits.files:,} new files (files)")

    async def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        if path in self.files:
            del self.files[path]
            return
        if path == "/" or any(one.startswith(f"{path}/") for one in (*self.files, *self.folders)):
            raise OSError(f"Directory not empty: {path!r}")
        self.folders.remove(path)

    async def names(self, path: str) -> list[str]:
        """The names in a folder."""
        inside = {
            one for one in (*self.files, *self.folders) if one != "/" and posixpath.dirname(one) == path
        }
        return sorted(posixpath.basename(one) for one in inside)

    async def rename(self, path: str, to: str) -> None:
        """Move a file or folder."""
        if path in self.folders:
            moved = f"{path}/"
            if f"{to}/".startswith(moved):
                raise OSError(f"a folder cannot be moved into itself: {path!r}")
            self.files = {_under(name, path, to): data for name, data in self.files.items()}
            self.folders = {_under(name, path, to) for name in self.folders}
        else:
            data = await self.read(path)
            await self.write(to, data)
            if to != path:
                del self.files[path]

    def changed(self) -> dict[str, bytes]:
        """What is new or other than it was, where changes are brought back."""
        before = self._job.files
        return {p: data for p, data in self.files.items() if before.get(p) != data and self._is_wanted(p)}

    def deleted(self) -> tuple[str, ...]:
        """What is gone."""
        return tuple(sorted(p for p in self._job.files if p not in self.files and self._is_wanted(p)))

    def left(self) -> frozenset[str]:
        """The folders that are there."""
        return frozenset(path for path in self.folders if path != "/" and self._is_wanted(path))

    def _is_wanted(self, path: str) -> bool:
        return any(top == "/" or path == top or path.startswith(f"{top}/") for top in self._job.collect)


def _under(name: str, path: str, to: str) -> str:
    return to + name[len(path) :] if name == path or name.startswith(f"{path}/") else name


_CODES: Mapping[str, type[OSError]] = {
    "ENOENT": FileNotFoundError,
    "EISDIR": IsADirectoryError,
    "ENOTDIR": NotADirectoryError,
    "EEXIST": FileExistsError,
    "EPERM": PermissionError,
    "EACCES": PermissionError,
}


class HostFiles:
    """The host's files: every step is a call of it."""

    def __init__(self, ask: Callable[[str, Sequence[Any]], Awaitable[Any]]) -> None:
        self._ask = ask

    async def _call(self, verb: str, *args: Any) -> Any:
        try:
            return await self._ask(f"{FILES}.{verb}", args)
        except HostRefused as refused:
            code, _, words = str(refused).partition(":")
            raise _CODES.get(code.strip(), OSError)(words.strip() or str(refused)) from refused

    async def stat(self, path: str) -> Found | None:
        """What is at a path."""
        found = await self._call("stat", path)
        if found is None:
            return None
        return Found(found["type"] == "directory", int(found["size"]), float(found["mtime"]) / 1000)

    async def read(self, path: str) -> bytes:
        """The bytes of a file."""
        data = await self._call("read", path)
        return data.encode() if isinstance(data, str) else bytes(data)

    async def write(self, path: str, data: bytes) -> None:
        """Write a file anew."""
        await self._call("write", path, data)

    async def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file."""
        await self._call("append", path, data)

    async def mkdir(self, path: str) -> None:
        """Make a folder, whose parent is there."""
        await self._call("mkdir", path)

    async def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        await self._call("remove", path)

    async def names(self, path: str) -> list[str]:
        """The names in a folder."""
        return [str(name) for name in await self._call("list", path)]

    async def rename(self, path: str, to: str) -> None:
        """Move a file or folder."""
        await self._call("rename", path, to)


async def answered(files: Tree | HostFiles, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What Monty is told when a guest asks for `name` of its files. Raises `OSError`, or `KeyError` when
    there is no such thing here."""
    path = _path(args[0])
    match name.removeprefix("Path."):
        case "open":
            return await _opened(files, path, str(args[1]) if len(args) > 1 else kwargs.get("mode", "r"))
        case "read_text":
            return (await files.read(path)).decode()
        case "read_bytes":
            return await files.read(path)
        case "write_text" | "write_bytes":
            data = args[1].encode() if isinstance(args[1], str) else args[1]
            await files.write(path, data)
            return len(args[1])
        case "append_text" | "append_bytes":
            await files.append(path, args[1].encode() if isinstance(args[1], str) else args[1])
            return len(args[1])
        case "exists":
            return await files.stat(path) is not None
        case "is_file" | "is_dir":
            found = await files.stat(path)
            return found is not None and found.is_folder == (name == "Path.is_dir")
        case "is_symlink":
            return False
        case "stat":
            found = await _needed(files, path)
            return Answer("stat", [found.is_folder, found.size, found.modified])
        case "mkdir":
            return await _mkdir(files, path, *_flags(args[1:], kwargs, "parents", "exist_ok"))
        case "unlink":
            if (await _needed(files, path)).is_folder:
                raise IsADirectoryError(f"Is a directory: {path!r}")
            return await files.remove(path)
        case "rmdir":
            if not (await _needed(files, path)).is_folder:
                raise NotADirectoryError(f"Not a directory: {path!r}")
            return await files.remove(path)
        case "iterdir":
            if not (await _needed(files, path)).is_folder:
                raise NotADirectoryError(f"Not a directory: {path!r}")
            return Answer("folder", [posixpath.join(path, name) for name in await files.names(path)])
        case "rename":
            await _needed(files, path)
            return await files.rename(path, _path(args[1]))
        case "resolve" | "absolute":
            return path
        case _:
            raise KeyError(name)


def _path(given: Any) -> str:
    return posixpath.normpath(f"/{str(given).lstrip('/')}")


async def _needed(files: Tree | HostFiles, path: str) -> Found:
    found = await files.stat(path)
    if found is None:
        raise FileNotFoundError(f"No such file or directory: {path!r}")
    return found


async def _opened(files: Tree | HostFiles, path: str, mode: str) -> Any:
    found = await files.stat(path)
    if found is not None and found.is_folder:
        raise IsADirectoryError(f"Is a directory: {path!r}")
    if found is None and mode.startswith("r"):
        raise FileNotFoundError(f"No such file or directory: {path!r}")
    if found is not None and mode.startswith("x"):
        raise FileExistsError(f"File exists: {path!r}")
    if mode[0] in "wx" or (found is None and mode.startswith("a")):
        await files.write(path, b"")
    return Answer("file", [path, mode])


async def _mkdir(files: Tree | HostFiles, path: str, parents: bool, exist_ok: bool) -> None:
    found = await files.stat(path)
    if found is not None:
        if exist_ok and found.is_folder:
            return
        raise FileExistsError(f"File exists: {path!r}")
    parent = posixpath.dirname(path)
    if parent != "/" and await files.stat(parent) is None:
        if not parents:
            raise FileNotFoundError(f"No such file or directory: {parent!r}")
        await _mkdir(files, parent, parents=True, exist_ok=True)
    await files.mkdir(path)


def _flags(args: Sequence[Any], kwargs: Mapping[str, Any], *names: str) -> list[bool]:
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return [bool(given.get(name, False)) for name in names]
