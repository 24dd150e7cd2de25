"""What a script is given of a workspace, and what it must never touch because it was not given.

workspace --Snapshot--> files, folders; protected: what was too large, too many, or is a link
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..calling import awaited
from ..workspace.port import Entry
from ..workspace.workspace import Workspace

__all__ = ["Snapshot", "taken"]

_PAGE = 1_000


@dataclass(slots=True)
class Snapshot:
    """The files that a script sees."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    folders: set[str] = field(default_factory=set[str])
    skipped: list[str] = field(default_factory=list[str])
    """Files that were too large or too many. They are protected."""
    links: list[str] = field(default_factory=list[str])
    """Links, which a script is not given either."""

    def hash_of(self, path: str) -> str:
        """That of the bytes that were given; empty when nothing was."""
        data = self.files.get(path)
        return "" if data is None else hashlib.sha256(data).hexdigest()

    def is_protected(self, path: str) -> bool:
        """True when something is there that the script was not given."""
        return path in self.skipped or path in self.links

    def protects_below(self, folder: str) -> str | None:
        """Something below a folder that the script was not given."""
        inside = f"{folder}/"
        return next((path for path in (*self.skipped, *self.links) if path.startswith(inside)), None)


async def taken(files: Any, *, most: int, largest: int, in_all: int) -> Snapshot:
    """Everything that fits, in the order of paths."""
    found, size = Snapshot(), 0
    async for entry, data in _everything(files, largest):
        if entry.kind == "directory":
            found.folders.add(entry.path)
        elif entry.kind == "symlink":
            found.links.append(entry.path)
        elif data is None or len(found.files) >= most or size + len(data) > in_all:
            found.skipped.append(entry.path)
        else:
            found.files[entry.path] = data
            size += len(data)
    return found


async def _everything(files: Any, largest: int) -> AsyncIterator[tuple[Entry, bytes | None]]:
    if isinstance(files, Workspace):
        async for entry, data in files.files.scan("/", contents=True, most_bytes=largest):
            yield entry, data
        return
    todo = ["/"]
    while todo:
        folder, offset = todo.pop(0), 0
        while page := await _page(files, folder, offset):
            offset += len(page)
            for entry in page:
                if entry.kind == "directory":
                    todo.append(entry.path)
                is_wanted = entry.kind == "file" and entry.size <= largest
                yield entry, await awaited(files.read_file_bytes(entry.path)) if is_wanted else None


async def _page(files: Any, folder: str, offset: int) -> Sequence[Entry]:
    return await awaited(files.read_dir(folder, limit=_PAGE, offset=offset))
