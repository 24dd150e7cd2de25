"""What a script is given of a workspace, and what it must never touch because it was not given.

workspace --Snapshot--> files, folders; protected: what was too large, too many, or is a link
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..calling import awaited
from ..errors import ToolError
from ..workspace.paths import ancestors
from ..workspace.port import Entry
from ..workspace.workspace import Workspace
from .operations import as_bytes, as_entries

__all__ = ["MOST_ENTRIES", "Snapshot", "taken"]

MOST_ENTRIES = 50_000
"""Entries that are looked through for a script; as many as the workspace may have, if that is more."""
MOST_FOLDERS = 5_000
"""Folders that a script is given."""
_PAGE = 1_000


@dataclass(slots=True)
class Snapshot:
    """The files that a script sees."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    folders: set[str] = field(default_factory=set[str])
    skipped: list[str] = field(default_factory=list[str])
    """Files that were too large or too many."""
    _protected: set[str] = field(default_factory=set[str])
    _inside: dict[str, str] = field(default_factory=dict[str, str])  # folder -> something protected in it

    def protect(self, path: str) -> None:
        """Say that something is there which the script is not given."""
        self._protected.add(path)
        for folder in ancestors(path):
            self._inside.setdefault(folder, path)

    def hash_of(self, path: str) -> str:
        """That of the bytes that were given; empty when nothing was."""
        data = self.files.get(path)
        return "" if data is None else hashlib.sha256(data).hexdigest()

    def protects(self, path: str) -> str | None:
        """What is there, or above it where a folder would have to be, that the script was not given."""
        return next((one for one in (path, *ancestors(path)) if one in self._protected), None)

    def protects_below(self, folder: str) -> str | None:
        """Something below a folder that the script was not given."""
        return self._inside.get(folder)


async def taken(files: Any, *, most: int, largest: int, in_all: int) -> Snapshot:
    """Everything that fits, in the order in which it is found.

    What does not fit is not read. Raises `ToolError` when there is more than can be looked through.
    """
    found, size, seen = Snapshot(), 0, 0
    entries = max(MOST_ENTRIES, files.limits.entries) if isinstance(files, Workspace) else MOST_ENTRIES

    def fits(bytes: int) -> bool:
        return bytes <= largest and len(found.files) < most and size + bytes <= in_all

    async for entry, read in _everything(files, largest, fits):
        seen += 1
        if seen > entries:
            raise ToolError(
                f"The workspace has more than {entries:,} entries, and a script is given a copy of all of it"
                " (WorkspaceLimits.entries). Nothing was run. Use the tools that look for files and read"
                " them, or have fewer files in the workspace: mount the folders that are needed."
            )
        if entry.kind == "directory":
            if len(found.folders) < MOST_FOLDERS:
                found.folders.add(entry.path)
            else:
                found.skipped.append(entry.path)
                found.protect(entry.path)
        elif entry.kind == "symlink":
            found.protect(entry.path)
        else:
            data = await read() if fits(entry.size) else None
            if data is None or not fits(len(data)):
                found.skipped.append(entry.path)
                found.protect(entry.path)
            else:
                found.files[entry.path] = data
                size += len(data)
    return found


async def _everything(
    files: Any, largest: int, fits: Callable[[int], bool]
) -> AsyncIterator[tuple[Entry, Callable[[], Awaitable[bytes | None]]]]:
    """All entries, each with how it is read."""
    if isinstance(files, Workspace):
        # While all of them fit, many are read at once; behind the first that does not, those that still do.
        last = ""
        async for entry, data in files.files.scan("/", contents=True, most_bytes=largest):
            if entry.kind == "file" and not fits(entry.size):
                break
            last = entry.path
            yield entry, functools.partial(_known, data)
        else:
            return
        async for entry, _ in files.files.scan("/"):
            if entry.path > last:
                yield entry, functools.partial(files.files.read, entry.path)
        return
    todo, seen = ["/"], {"/"}
    while todo:
        folder, offset = todo.pop(0), 0
        while page := await _page(files, folder, offset):
            new = [entry for entry in page if entry.path not in seen]
            for entry in new:
                seen.add(entry.path)
                if entry.kind == "directory":
                    todo.append(entry.path)
                yield entry, functools.partial(_read, files, entry.path)
            offset += len(page)
            if not new:
                break  # a backend that does not know of pages


async def _known(data: bytes | None) -> bytes | None:
    return data


async def _read(files: Any, path: str) -> bytes | None:
    return as_bytes(files, await awaited(files.read_file_bytes(path)))


async def _page(files: Any, folder: str, offset: int) -> Sequence[Entry]:
    return as_entries(files, "read_dir", await awaited(files.read_dir(folder, limit=_PAGE, offset=offset)))
