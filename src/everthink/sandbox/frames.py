"""Frames between us and a child: a head in JSON, and bytes behind it.

    8 bytes: length of the head, length of the body    head: JSON    body: bytes

Both ends use this module, and the child imports nothing but the standard library: so files are bytes behind
the head, in the order in which it names them, and not text in it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

__all__ = ["PREFIX", "lengths", "packed"]

PREFIX = 8
_LENGTHS = struct.Struct(">II")


def packed(head: bytes, parts: Iterable[bytes] = ()) -> bytes:
    """A frame."""
    body = b"".join(parts)
    return b"".join((_LENGTHS.pack(len(head), len(body)), head, body))


def lengths(prefix: bytes) -> tuple[int, int]:
    """How long the head and the body are that follow."""
    head, body = _LENGTHS.unpack(prefix)
    return head, body
