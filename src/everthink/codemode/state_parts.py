"""What the functions of `state.*` are made of: a tool around a body that works in files, and looks at them.

read_tool(place, read, …)   a body that looks
write_tool(place, write, …) a body of one edit, which is one commit with the row of the call
batch_tool(place, plan, …)  a body that says several edits, which are one commit, too
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from ..errors import ToolError, WorkspaceError
from ..file_tools.place import Place
from ..tools.context import ToolContext
from ..tools.json_input import JsonInput
from ..tools.tool import Tool
from ..workspace.port import Entry, Put
from ..workspace.workspace import Workspace
from .values import MOST, data_of

__all__ = [
    "ANY",
    "CONTEXT",
    "FLAG",
    "LIST",
    "MATCHES",
    "MOST_AT_ONCE",
    "NUMBER",
    "OBJECT",
    "PATH",
    "SPACES",
    "TEXT",
    "Body",
    "Room",
    "Schema",
    "Tools",
    "batch_tool",
    "below",
    "beside",
    "bytes_at",
    "bytes_of",
    "fits",
    "found",
    "made_tool",
    "read_tool",
    "shown",
    "text_at",
    "write_tool",
]

T = TypeVar("T")
Schema = Mapping[str, Any]
Tools = dict[str, Tool]
Body = Callable[[Any, dict[str, Any]], Awaitable[Any]]
Plan = Callable[[Any, dict[str, Any]], Awaitable[tuple[list[Put], Any]]]
"""Says the edits, and what the call gives once they are made."""
_TRIES = 20
PATH: Schema = {"type": "string"}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
SPACES: Schema = {"type": "integer", "minimum": 0, "maximum": 10}
CONTEXT: Schema = {"type": "integer", "minimum": 0, "maximum": 100}
MATCHES: Schema = {"type": "integer", "minimum": 0, "maximum": 10_000}
OBJECT: Schema = {"type": "object"}
LIST: Schema = {"type": "array"}
ANY: Schema = {}


def read_tool(
    place: Place, read: Body, description: str, required: Schema, optional: Schema | None = None
) -> Tool:
    """One that looks."""

    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        _line.set(_lines.setdefault(id(ctx.agent), asyncio.Lock()))
        try:
            return await read(place.of(ctx), given)
        except WorkspaceError as error:
            raise shown(error) from error

    return made_tool(read.__name__, description, body, required, optional or {}, None)


def write_tool(
    place: Place, write: Body, description: str, required: Schema, optional: Schema | None = None
) -> Tool:
    """One that makes an edit."""

    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        try:
            return await write(place.concluding(ctx, lambda: None), given)
        except WorkspaceError as error:
            raise shown(error) from error

    return made_tool(write.__name__, description, body, required, optional or {}, place)


def batch_tool(
    place: Place, plan: Plan, description: str, required: Schema, optional: Schema | None = None
) -> Tool:
    """One that makes several edits: all of them, or none."""

    async def body(given: dict[str, Any], ctx: ToolContext) -> Any:
        _line.set(_lines.setdefault(id(ctx.agent), asyncio.Lock()))
        for is_last in (*[False] * _TRIES, True):
            try:
                edits, told = await plan(place.of(ctx), given)
            except WorkspaceError as error:
                raise shown(error) from error
            try:
                if edits:
                    await _put(place.concluding(ctx, lambda told=told: told), edits)
                return told
            except WorkspaceError as error:
                if error.code != "ESTALE" or is_last:  # somebody was faster: looked at again
                    words = f"{plan.__name__} failed, and no file was changed: {error}"
                    raise ToolError(f"{error.code}: {words}") from error
        raise AssertionError("the last try returns or raises")

    return made_tool(plan.__name__, description, body, required, optional or {}, place)


async def _put(files: Any, edits: Sequence[Put]) -> None:
    if isinstance(files, Workspace):
        await files.apply(edits)
        return
    # Where there is no commit, what was written before one that fails is put back, the last first.
    before: list[tuple[str, bytes | None]] = []
    for edit in edits:
        try:
            before.append((edit.path, await files.read_file_bytes(edit.path)))
            await files.write_file_bytes(edit.path, edit.data)
        except Exception:
            for path, data in reversed(before):
                if data is not None:
                    await files.write_file_bytes(path, data)
                elif await files.exists(path):
                    await files.rm(path)
            raise


def made_tool(
    name: str,
    description: str,
    body: Callable[..., Any],
    required: Schema,
    optional: Schema,
    place: Place | None,
) -> Tool:
    """A function; with a place, one that writes there."""
    return Tool(
        f"state_{name}",
        description,
        JsonInput(
            {
                "type": "object",
                "properties": {**required, **optional},
                "required": list(required),
                "additionalProperties": False,
            }
        ),
        body,
        on_interrupt="rerun" if place is None or place.is_once else "report",
    )


# --- work that takes a while

# Code may ask for a thousand of these at once, and threads are few: one at a time for each agent. By
# identity, since whoever works holds the lock.
_lines: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
_line: ContextVar[asyncio.Lock] = ContextVar("_line")


async def beside(work: Callable[..., T], *args: Any) -> T:
    """What `work` comes to, in a thread: others are served meanwhile, and have threads left."""
    async with _line.get():
        return await asyncio.to_thread(work, *args)


class Room:
    """How much one call may give back: what is over it would be lost when the call is done."""

    def __init__(self, what: str, next_step: str) -> None:
        self._what, self._next_step, self._left = what, next_step, MOST

    def has(self, *texts: str) -> bool:
        """Take what the texts need; false when they do not fit any more."""
        self._left -= sum(map(len, texts))
        return self._left >= 0

    def take(self, *texts: str) -> None:
        """The same; what does not fit is refused."""
        if not self.has(*texts):
            raise ToolError(f"EFBIG: {self._what} has more than {MOST:,} characters. {self._next_step}")


# --- what is there


MOST_AT_ONCE = 8 * 1024 * 1024
"""Bytes of a file that code has, or changes: this process does it, and others wait for it."""


async def fits(files: Any, path: str) -> None:
    """Refuse a file that is too long, before any of it is read."""
    entry: Entry | None = await files.stat(path)
    if entry is not None and entry.size > MOST_AT_ONCE:
        raise ToolError(
            f"EFBIG: {path} has {entry.size:,} bytes, and code can have {MOST_AT_ONCE:,} of a file at once."
            " Nothing was changed. Have it written to several files."
        )


async def text_at(files: Any, path: str) -> str:
    """The text of a file that has to be there."""
    await fits(files, path)
    return found(path, await files.read_file(path))


async def bytes_at(files: Any, path: str) -> bytes:
    """Its bytes."""
    await fits(files, path)
    return found(path, await files.read_file_bytes(path))


def found(path: str, value: Any) -> Any:
    """What was read, unless there is nothing."""
    if value is None:
        raise ToolError(f"ENOENT: There is no file {path}.")
    return value


def bytes_of(value: Any) -> bytes:
    """Bytes that code gave."""
    data = data_of(value)
    if data is None:
        raise ToolError("content is neither text nor bytes.")
    return data


async def below(files: Any, path: str) -> AsyncIterator[Entry]:
    """All that is below a folder, by path."""
    where = await files.stat(path)
    if where is None:
        raise ToolError(f"ENOENT: There is no {path}.")
    if where.kind != "directory":
        raise ToolError(f"ENOTDIR: {path} is no folder.")
    if isinstance(files, Workspace):
        async for entry, _ in files.files.scan(where.path):
            if entry.path != where.path:
                yield entry
        return
    open_folders = [where.path]
    while open_folders:
        inner: list[Entry] = await files.read_dir(open_folders.pop(), limit=50_000)
        for entry in sorted(inner, key=lambda one: one.path):
            yield entry
        open_folders += sorted((entry.path for entry in inner if entry.kind == "directory"), reverse=True)


def shown(error: WorkspaceError) -> ToolError:
    """An error of files, as code sees it."""
    return ToolError(f"{error.code}: {error}")
