"""Bytes to frames and back. Pure: no socket, no clock.

    socket text --decode--> ClientFrame | None (not ours)      ServerFrame --encode--> socket text

Whatever is not one of our frames, or is one in the wrong shape, is `None`: the application's
own message handler may have a look, and nobody is told off. Half an emoji is no reason for that:
JavaScript writes it as JSON and reads it back, so it is a frame, with U+FFFD in its place.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from ..messages import encode_json
from .frames import ClientFrame, ServerFrame

__all__ = ["MAX_DEPTH", "MAX_FRAME_BYTES", "decode", "encode", "is_too_deep", "mended", "parse"]

MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 128

_decode = msgspec.json.Decoder().decode
# Every escape in turn, so that an escaped backslash before `ud83d` is not taken for one.
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.S
)


def decode(text: str | bytes) -> ClientFrame | None:
    """The frame in `text`, or `None` when it is not ours to handle."""
    if len(text) > MAX_FRAME_BYTES:
        return None
    try:
        value = parse(text if isinstance(text, str) else text.decode())
        if not isinstance(value, dict) or is_too_deep(cast("Any", value)):
            return None
        return msgspec.convert(value, ClientFrame)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def parse(text: str) -> Any:
    """The JSON value in `text`. Raises `msgspec.DecodeError`."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        if (whole := mended(text)) == text:
            raise
        return _decode(whole)


def mended(text: str) -> str:
    """JSON text with U+FFFD in place of half an emoji."""
    return _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)


def encode(frame: ServerFrame) -> str:
    """The frame as JSON text."""
    return encode_json(frame).decode()


def is_too_deep(value: Any) -> bool:
    """True when a value nests deeper than any honest client would."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += cast("dict[str, Any]", item).values()
            elif isinstance(item, list):
                below += cast("list[Any]", item)
        if not below:
            return False
        level = below
    return True
