"""What a runner may say: lines of JSON, bounded before they are read.

    Pipe.read --bytes--> Lines --a line--> Out | Call | Done, or Gone

The same names are in runner.py, which imports nothing of ours and is not believed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..sandbox.child import Gone
from ..sandbox.port import Limits
from .port import Pipe

__all__ = ["Call", "Done", "Lines", "Out", "Said"]

LONGEST_CALL = 16 * 1024 * 1024
"""Bytes of a line with a call, or with the value at the end."""
PER_ENTRY = 16 * 1024
"""Bytes that a path takes in a tree, and in a list of folders, at most: 4,096, several times."""


class Out(msgspec.Struct, tag_field="t", tag="out"):
    """Output, in base64."""

    s: Literal["stdout", "stderr"]
    d: bytes


class Call(msgspec.Struct, tag_field="t", tag="call"):
    """A guest asks the host: by a function, or by a command (`stdin`, `cwd`)."""

    id: int
    name: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    stdin: str | None = None
    cwd: str = "/"


class Done(msgspec.Struct, tag_field="t", tag="done"):
    """The job has ended; `tree` has the files that differ, as a tar in base64."""

    exit: int | None = None
    value: Any = None
    error: str | None = None
    refused: str | None = None
    stopped: Literal["wall", "cpu", "memory", "calls", "tree_bytes"] | None = None
    dropped: int = 0
    over: Literal["files", "file_bytes", "tree_bytes", "name"] | None = None
    path: str | None = None
    tree: bytes = b""
    deleted: list[str] = []
    folders: list[str] = []


Said = Out | Call | Done
_decode = msgspec.json.Decoder(Said).decode


class Lines:
    """What comes out of a pipe, line by line."""

    def __init__(self, pipe: Pipe, limits: Limits, known: int) -> None:
        """`known` paths went in."""
        self._pipe = pipe
        tree = limits.tree_bytes + (limits.files + known) * PER_ENTRY
        self._most = LONGEST_CALL + tree * 4 // 3
        self._pending = bytearray()

    async def next(self) -> Said:
        """The next line. Raises `Gone` at the end, for one that is too long, and for one that is none."""
        looked = 0
        while (end := self._pending.find(b"\n", looked)) < 0:
            looked = len(self._pending)
            if looked > self._most:
                raise Gone("a line without an end")
            data = await self._pipe.read()
            if not data:
                raise Gone("it ended")
            self._pending += data
        line = bytes(memoryview(self._pending)[:end])
        del self._pending[: end + 1]
        try:
            return _decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            raise Gone(f"a line that is none: {error}") from None
