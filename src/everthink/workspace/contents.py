"""The bytes of files: their hash, and how a database that has texts and no bytes keeps them.

    bytes --Content.of--> hash, text or not --parts--> rows of `contents` --joined--> bytes

Pure. A text stays a text, so that it can be read in the database; what has a NUL or is not UTF-8 becomes
base64, since a store would change it in silence. Equal bytes always give equal rows.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

from ..media_types import media_type_of, text_of
from .port import Edit, Put
from .refusals import over, unfit

__all__ = ["LONG", "PART_BYTES", "Content", "Part", "Ready", "decoded", "gathered"]

PART_BYTES = 1 << 20
"""Bytes of a file in one row, at most."""
LONG = 256 * 1024
"""More than this is hashed and encoded in a thread: a loop has others to serve."""

Encoding = Literal["utf8", "base64"]


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file that is written."""

    hash: str
    """SHA-256, in hexadecimal."""
    data: bytes
    media_type: str

    @classmethod
    def of(cls, path: str, data: bytes, media_type: str | None) -> Content:
        """Bytes for the file at `path`."""
        return cls(hashlib.sha256(data).hexdigest(), data, media_type or media_type_of(path, data))

    def parts(self) -> Iterator[Part]:
        """The rows that keep it: one at least, none with more than `PART_BYTES` bytes."""
        is_text = text_of(self.data) is not None
        start = number = 0
        while start < len(self.data) or number == 0:
            end = min(start + PART_BYTES, len(self.data))
            while is_text and end < len(self.data) and self.data[end] & 0xC0 == 0x80:
                end -= 1  # not in the middle of a character
            piece = self.data[start:end]
            text = piece.decode() if is_text else base64.b64encode(piece).decode()
            yield Part(number, "utf8" if is_text else "base64", start, len(piece), text)
            start, number = end, number + 1


class Part(NamedTuple):
    """One row of a content."""

    number: int
    encoding: Encoding
    start: int
    """How many bytes of the file come before it."""
    size: int
    text: str


def decoded(encoding: str, text: str) -> bytes:
    """The bytes of a part."""
    return text.encode() if encoding == "utf8" else base64.b64decode(text)


class Ready(NamedTuple):
    """An edit with the bytes it writes, all of them."""

    edit: Edit
    content: Content | None = None


async def gathered(edits: Sequence[Edit], *, most_bytes: int) -> list[Ready]:
    """The edits with every stream read to its end. Raises `EFBIG` as soon as one is too long."""
    ready: list[Ready] = []
    for edit in edits:
        if not isinstance(edit, Put):
            ready.append(Ready(edit))
            continue
        data = await _whole(edit, most_bytes)
        if len(data) > LONG:
            content = await asyncio.to_thread(Content.of, edit.path, data, edit.media_type)
        else:
            content = Content.of(edit.path, data, edit.media_type)
        ready.append(Ready(replace(edit, data=b""), content))
    return ready


async def _whole(edit: Put, most_bytes: int) -> bytes:
    if isinstance(edit.data, bytes | bytearray | memoryview):
        data = bytes(edit.data)
        if len(data) > most_bytes:
            raise over(f"{edit.path!r} would have {len(data):,} bytes", "file_bytes", most_bytes, edit.path)
        return data
    if not isinstance(cast("object", edit.data), AsyncIterable):
        raise unfit(f"{edit.path!r} is written as bytes, not as {type(edit.data).__name__}.", edit.path)
    gathered = bytearray()
    pieces = cast("AsyncIterable[object]", edit.data)
    async for piece in pieces:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise unfit(f"A stream of bytes for {edit.path!r} gave a {type(piece).__name__}.", edit.path)
        gathered += piece
        if len(gathered) > most_bytes:
            raise over(
                f"{edit.path!r} would have more than {most_bytes:,} bytes",
                "file_bytes",
                most_bytes,
                edit.path,
            )
    return bytes(gathered)
