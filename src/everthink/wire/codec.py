"""Bytes to frames and back. Pure: no socket, no clock.

    socket text --decode--> ClientFrame | None (not ours)      ServerFrame --encode--> socket text

Whatever is not one of our frames, or is one in the wrong shape, is `None`: the application's
own message handler may have a look, and nobody is told off. Half an emoji is no reason for that:
JavaScript writes it as JSON and reads it back, so it is a frame, with U+FFFD in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from ..errors import InvalidMessage
from ..messages import Message, encode_json, parse_message
from .frames import ClientFrame, ServerFrame, UseChat

__all__ = ["MAX_DEPTH", "MAX_FRAME_BYTES", "ChatBody", "decode", "encode", "read_body"]

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
        value = _parse(text if isinstance(text, str) else text.decode())
        if not isinstance(value, dict) or _is_too_deep(cast("Any", value)):
            return None
        return msgspec.convert(value, ClientFrame)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def _parse(text: str) -> Any:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        mended = _ESCAPE.sub(lambda found: "\\ufffd" if found[1] else found[0], text)
        if mended == text:
            raise
        return _decode(mended)


def encode(frame: ServerFrame) -> str:
    """The frame as JSON text."""
    return encode_json(frame).decode()


def _is_too_deep(value: Any) -> bool:
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


class ChatBody(msgspec.Struct):
    """What a chat request asks for."""

    messages: list[Message]
    regenerates: bool
    client_tools: list[dict[str, Any]] | None
    custom: dict[str, Any] | None


def read_body(frame: UseChat, *, new_id: Callable[[], str]) -> ChatBody | None:
    """What the request's body asks for; `None` when it is not a request at all.

    Raises `InvalidMessage`, also for a body that is not JSON.
    """
    if frame.init.method != "POST" or not isinstance(frame.init.body, str):
        return None
    try:
        body: Any = _parse(frame.init.body)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidMessage("the body of the request", "is not JSON") from error
    if not isinstance(body, dict):
        return None
    text = frame.init.body
    # Counting is far quicker than looking, and enough for most.
    if text.count("{") + text.count("[") > MAX_DEPTH and _is_too_deep(cast("Any", body)):
        return None
    fields = cast("dict[str, Any]", body)
    messages: Any = fields.pop("messages", None)
    if not isinstance(messages, list):
        return None
    trigger, given = fields.pop("trigger", None), fields.pop("clientTools", None)
    tools: Any = (
        [t for t in cast("list[Any]", given) if isinstance(t, dict)] if isinstance(given, list) else None
    )
    return ChatBody(
        [
            parse_message(message, new_id=new_id, path=f"messages[{index}]")
            for index, message in enumerate(cast("list[Any]", messages))
        ],
        trigger == "regenerate-message",
        [tool for tool in cast("list[Any]", tools) if isinstance(tool, dict)]
        if isinstance(tools, list)
        else None,
        fields or None,
    )
