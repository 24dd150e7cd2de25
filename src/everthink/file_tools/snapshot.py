"""What a script is given of a workspace, and what it must never touch because it was not given.

workspace --Snapshot--> files, folders; protected: what was too large, too many, or is a link
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..calling import awaited
from ..workspace.paths import ancestors
from ..workspace.port import Entry
from ..workspace.workspace import Workspace
from .operations import as_bytes, as_entries

__all__ = ["Snapshot", "taken"]

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
    """Everything that fits, in the order in which it is found."""
    found, size = Snapshot(), 0
    async for entry, data in _everything(files, largest):
        if entry.kind == "directory":
            found.folders.add(entry.path)
        elif entry.kind == "symlink":
            found.protect(entry.path)
        elif data is None or len(found.files) >= most or size + len(data) > in_all:
            found.skipped.append(entry.path)
            found.protect(entry.path)
        else:
            found.files[entry.path] = data
            size += len(data)
    return found


async def _everything(files: Any, largest: int) -> AsyncIterator[tuple[Entry, bytes | None]]:
    if isinstance(files, Workspace):
        async for entry, data in files.files.scan("/", contents=True, most_bytes=largest):
            yield entry, data
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
                is_wanted = entry.kind == "file" and entry.size <= largest
                data = (
                    as_bytes(files, await awaited(files.read_file_bytes(entry.path))) if is_wanted else None
                )
                yield entry, data if data is None or len(data) <= largest else None
            offset += len(page)
            if not new:
                break  # a backend that does not know of pages


async def _page(files: Any, folder: str, offset: int) -> Sequence[Entry]:
    return as_entries(files, "read_dir", await awaited(files.read_dir(folder, limit=_PAGE, offset=offset)))
