"""What the file tools ask of the place where files are, tool by tool.

    Workspace | a backend of yours --operations--> read, write, edit, list, find, grep, delete, bash

`everthink.workspace.Workspace` has all of it. A backend of your own needs the methods of the tools that it is
to serve; each may be `def` or `async def`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from ..workspace.port import Entry

__all__ = [
    "BashOperations",
    "DeleteOperations",
    "EditOperations",
    "FindOperations",
    "GrepOperations",
    "ListOperations",
    "ReadOperations",
    "WriteOperations",
]


class ReadOperations(Protocol):
    """For `read`."""

    def stat(self, path: str, /) -> Entry | Awaitable[Entry | None] | None:
        """What is at a path, or `None`."""
        ...

    def read_file_bytes(self, path: str, /) -> bytes | Awaitable[bytes | None] | None:
        """The bytes of a file, or `None`."""
        ...


class WriteOperations(Protocol):
    """For `write`."""

    def write_file(self, path: str, text: str, /) -> object | Awaitable[object]:
        """Write a text as a file, with the folders above it."""
        ...


class EditOperations(ReadOperations, WriteOperations, Protocol):
    """For `edit`."""


class ListOperations(Protocol):
    """For `list`."""

    def read_dir(
        self, path: str, /, *, limit: int, offset: int
    ) -> Sequence[Entry] | Awaitable[Sequence[Entry]]:
        """What is in a folder: folders, then files, then links; nothing when it is no folder."""
        ...


class FindOperations(Protocol):
    """For `find`."""

    def glob(self, pattern: str, /) -> Sequence[Entry] | Awaitable[Sequence[Entry]]:
        """What has a path like this, in the order of paths."""
        ...


class GrepOperations(FindOperations, ReadOperations, Protocol):
    """For `grep`."""


class DeleteOperations(Protocol):
    """For `delete`."""

    def rm(self, path: str, /, *, recursive: bool, force: bool) -> object | Awaitable[object]:
        """Remove a file, a link or a folder; with `force` nothing there is fine."""
        ...


class BashOperations(ReadOperations, ListOperations, DeleteOperations, Protocol):
    """For `bash`: what a script is given, and what it changed."""

    def write_file_bytes(self, path: str, data: bytes, /) -> object | Awaitable[object]:
        """Write bytes as a file, with the folders above it."""
        ...

    def mkdir(self, path: str, /, *, recursive: bool) -> object | Awaitable[object]:
        """Make a folder, with those above it."""
        ...
