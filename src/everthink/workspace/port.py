"""What a workspace asks of the place where its files are: look, read, list, and apply edits.

    Workspace --edits--> Files.apply --changes--> log, listeners
    Workspace <--entries, bytes-- Files.stat, read, stream, list, scan

Adapters: `stored` (the agent's own rows), `memory`, `disk` (a real directory), `mounted` (several as one).
Paths here are absolute and normal, as `paths.py` makes them; the root `/` is always there and is a folder.
`apply` is the only verb that writes, and it is all or nothing: from the look at what an edit depends on to
its end nobody else writes. Refusals are `WorkspaceError`s.

Only the last part of a path is ever followed when it is a link; a path that goes through one is not found.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, Protocol

from ..clock import EPOCH
from ..errors import InvalidSettings
from ..store.port import Statement

__all__ = [
    "MIB",
    "UNLIMITED",
    "Change",
    "Changes",
    "CommitEdit",
    "Copy",
    "Edit",
    "Entries",
    "Entry",
    "Files",
    "History",
    "Kind",
    "Link",
    "MakeFolder",
    "Move",
    "Put",
    "Remove",
    "WorkspaceLimits",
]

MIB = 1024 * 1024

Kind = Literal["file", "directory", "symlink"]

CommitEdit = Callable[[Sequence[Statement]], Awaitable[None]]
"""Takes the statements of an edit into a commit of its own, returns once that is durable, and raises when it
is not. Whoever keeps files elsewhere than in the store calls it with `()` right after the edit's effect."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, a folder or a link."""

    path: str
    kind: Kind
    size: int
    """Bytes of a file; 0 of everything else."""
    media_type: str
    """Of a file, such as `text/plain`; empty for everything else."""
    created_at: datetime
    modified_at: datetime
    hash: str | None = None
    """SHA-256 of a file's bytes, where the backend knows it without reading them."""
    target: str | None = None
    """Where a link leads, as it was written."""

    @property
    def name(self) -> str:
        """The last part of its path; empty for the root."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one path. `seq` counts the changes of a workspace from 1 on, without a gap."""

    seq: int
    path: str
    change: Literal["create", "update", "delete"]
    kind: Kind
    hash: str | None = None
    """SHA-256 of the file's bytes now; `None` when it is gone, or no file."""
    was: str | None = None
    """SHA-256 of the file's bytes before."""
    at: datetime = EPOCH
    call_id: str | None = None
    """The tool call that did it."""
    turn: str | None = None
    """The turn it was done in."""


@dataclass(frozen=True, slots=True)
class Put:
    """Write a file, with the folders above it. A link at the path is followed."""

    path: str
    data: bytes | AsyncIterable[bytes]
    media_type: str | None = None
    """`None`: told from the name, else from the bytes."""
    if_hash: str | None = None
    """Only when the file has these bytes still; with `""` only when there is no file."""


@dataclass(frozen=True, slots=True)
class MakeFolder:
    """Make a folder. `recursive` makes those above it too, and is content with one that is there."""

    path: str
    recursive: bool = True


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file, a link or a folder; one that is not empty only with `recursive`."""

    path: str
    recursive: bool = False
    if_hash: str | None = None
    """Only when the file has these bytes still."""


@dataclass(frozen=True, slots=True)
class Move:
    """Give something another path, with the folders above that. A file there is replaced."""

    source: str
    path: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a file, a link as a link, or a folder with all that is in it."""

    source: str
    path: str


@dataclass(frozen=True, slots=True)
class Link:
    """Make a link, with the folders above it. Nothing may be at its path."""

    path: str
    target: str


Edit = Put | MakeFolder | Remove | Move | Copy | Link


# --- how much


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceLimits:
    """The bounds of one agent's files. Each has a default; raise what you need."""

    path_bytes: int = 4_096
    """Bytes of a path, and of a link's target."""
    name_bytes: int = 255
    """Bytes of one part of a path."""
    depth: int = 100
    """Parts of a path."""
    file_bytes: int = 100 * MIB
    """Bytes of one file."""
    files_bytes: int = 512 * MIB
    """Bytes of all files together. What is kept only to undo changes does not count."""
    entries: int = 50_000
    """Files, folders and links."""
    history: int = 1_000
    """Changes that are kept to be undone. The last edit can be undone however many changes it was."""
    history_days: int = 30
    """For how long they are kept."""
    history_bytes: int = 512 * MIB
    """Bytes of earlier contents that are kept for them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidSettings(
                    f"WorkspaceLimits({field.name}={value!r}): a limit is a whole number above 0.",
                    next_step="Leave it out for the default, or give a large number for hardly any limit.",
                )


UNLIMITED = WorkspaceLimits(file_bytes=sys.maxsize, files_bytes=sys.maxsize, entries=sys.maxsize)
"""What a backend assumes that nobody gave limits: those of paths only."""


# --- the port

Entries = list[Entry]
Changes = list[Change]


class Files(Protocol):
    """A place where files are. Six verbs; `everthink.testing.contracts.files` says what they promise."""

    async def stat(self, path: str, *, follow: bool = True) -> Entry | None:
        """What is at a path, or `None`. With `follow` what a link there leads to, under its own path."""
        ...

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes of a file, all or some; `None` when there is none. Links are followed."""
        ...

    def stream(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file, piece by piece. Raises `ENOENT` at its first step when there is none."""
        ...

    async def list(self, folder: str, *, limit: int = 1000, after: str = "") -> Entries:
        """What is directly in a folder, by name, from behind the name `after` on. `[]` when it is none."""
        ...

    def scan(
        self, prefix: str = "/", *, contents: bool = False, most_bytes: int = 1 << 20
    ) -> AsyncIterator[tuple[Entry, bytes | None]]:
        """Everything below a folder, in the order of paths; with `contents` the bytes of smaller files."""
        ...

    async def apply(
        self,
        edits: Sequence[Edit],
        *,
        conclude: CommitEdit | None = None,
        limits: WorkspaceLimits = UNLIMITED,
    ) -> Changes:
        """Do all of the edits, in order, or none: what changed. `conclude` is called once when it is done."""
        ...


class History(Protocol):
    """What a backend can besides that remembers: `StoredFiles` and `MemoryFiles` do."""

    async def changes(self, *, after: int = 0, limit: int = 1000) -> Changes:
        """The changes that are kept, from behind the number `after` on, in order."""
        ...

    async def restore(
        self, seq: int, *, conclude: CommitEdit | None = None, limits: WorkspaceLimits = UNLIMITED
    ) -> Changes:
        """Bring everything to where it stood after the change `seq`. These are changes, too."""
        ...

    async def undo(
        self, turn: str, *, conclude: CommitEdit | None = None, limits: WorkspaceLimits = UNLIMITED
    ) -> Changes:
        """Take back what one turn changed. These are changes, too."""
        ...
