"""What the file tools ask of the place where files are, tool by tool.

    Workspace | a backend of yours --operations--> read, write, edit, list, find, grep, delete, bash

`everthink.workspace.Workspace` has all of it. A backend of your own needs the methods of the tools that it is
to serve; each may be `def` or `async def`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, cast

from ..errors import ToolDefinitionError
from ..settings import shown
from ..workspace.port import Entry

__all__ = [
    "FILE_TOOLS",
    "BashOperations",
    "DeleteOperations",
    "EditOperations",
    "FindOperations",
    "GrepOperations",
    "ListOperations",
    "ReadOperations",
    "WriteOperations",
    "as_bytes",
    "as_entries",
    "as_entry",
    "check_backend",
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


_READ = ("stat", "read_file_bytes")
_ASKED: dict[str, tuple[str, ...]] = {
    "read": _READ,
    "write": ("write_file",),
    "edit": (*_READ, "write_file"),
    "list": ("read_dir",),
    "find": ("glob",),
    "grep": (*_READ, "glob"),
    "delete": ("rm",),
    "bash": (*_READ, "read_dir", "rm", "write_file_bytes", "mkdir"),
}
FILE_TOOLS = tuple(name for name in _ASKED if name != "bash")
"""The tools that need no sandbox."""


def as_entries(files: Any, method: str, found: Any) -> Sequence[Entry]:
    """What `read_dir` or `glob` gave; raises when it is something else than a list of entries."""
    if not isinstance(found, list | tuple):
        raise _unlike(files, method, found, "a list of everthink.workspace.Entry")
    for one in cast("Sequence[Any]", found):
        if not isinstance(one, Entry):
            raise _unlike(files, method, one, "everthink.workspace.Entry objects")
    return cast("Sequence[Entry]", found)


def as_entry(files: Any, found: Any) -> Entry | None:
    """What `stat` gave."""
    if found is not None and not isinstance(found, Entry):
        raise _unlike(files, "stat", found, "an everthink.workspace.Entry, or None")
    return found


def as_bytes(files: Any, found: Any) -> bytes | None:
    """What `read_file_bytes` gave."""
    if isinstance(found, bytearray):
        return bytes(found)
    if found is not None and not isinstance(found, bytes):
        raise _unlike(files, "read_file_bytes", found, "bytes, or None when there is no file")
    return found


def _unlike(files: Any, method: str, found: Any, wanted: str) -> ToolDefinitionError:
    return ToolDefinitionError(
        f"{type(files).__name__}.{method}() gave {shown(found)}.", next_step=f"It has to give {wanted}."
    )


def check_backend(backend: Any, *tools: str) -> None:
    """Raise `ToolDefinitionError` when a backend lacks a method that one of the tools uses."""
    if backend is None:
        return
    for tool in tools:
        missing = [name for name in _ASKED[tool] if not callable(getattr(backend, name, None))]
        if missing:
            which = backend.__name__ if isinstance(backend, type) else type(backend).__name__
            rather = "say bash=False" if tool == "bash" else f"make tools one by one (create_{tool}_tool, …)"
            raise ToolDefinitionError(
                f"{which} cannot serve the tool {tool!r}: it has no {', '.join(missing)}.",
                next_step=f"Add what is missing, or {rather}.",
            )
    if isinstance(backend, type):
        raise ToolDefinitionError(
            f"{backend.__name__} is a class, and tools work with one of its objects.",
            next_step=f"Give them {backend.__name__}(…).",
        )
