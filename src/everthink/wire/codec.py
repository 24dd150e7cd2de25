"""Bytes to frames and back. Pure: no socket, no clock.

    socket text --decode--> ClientFrame | Refused (over a bound) | None (not ours)
    ServerFrame --encode--> socket text

and the same from a client's side: `encode` takes its frames too, `decode_told` reads what a server says.

Whatever is not one of our frames, or is one in the wrong shape, is `None`: the application's
own message handler may have a look, and nobody is told off. Half an emoji is no reason for that:
JavaScript writes it as JSON and reads it back, so it is a frame, with U+FFFD in its place.

One of ours that is over a bound is not decoded: only its type and its id are read, for the refusal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ..limits import Limits
from ..messages import encode_json
from . import frames as wire
from .bounds import check, mend
from .frames import ClientFrame, ServerFrame, UseChat

__all__ = ["Refused", "decode", "decode_told", "encode", "mending", "misshapen"]

T = TypeVar("T")

LARGE = 64 * 1024
"""Frames that are longer are looked at before they are decoded."""

_decode_frame: Callable[[str | bytes], ClientFrame] = msgspec.json.Decoder(ClientFrame).decode
_decode_told: Callable[[str | bytes], ServerFrame] = msgspec.json.Decoder(ServerFrame).decode


@dataclass(frozen=True, slots=True)
class Refused:
    """A frame of ours that is over a bound: its type, its id if that can be read, and why."""

    type: str
    id: str | None
    why: str

    @property
    def words(self) -> str:
        """The refusal."""
        return f"This frame {self.why}. Nothing was done."


def decode(text: str | bytes, limits: Limits) -> ClientFrame | Refused | None:
    """The frame in `text`; a refusal; or `None` when it is not ours to handle."""
    try:
        why = check(text, limits)
        if why is None and len(text) <= LARGE:
            frame = mending(_decode_frame, text)
        else:
            frame = _carefully(text, why, limits)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return frame if frame is None or isinstance(frame, Refused) else _with_fair_ids(frame, limits)


class _Named(msgspec.Struct):
    type: Any = None


_decode_named = msgspec.json.Decoder(_Named).decode


def misshapen(text: str) -> str | None:
    """The type of a frame of ours that could not be decoded: what it holds is not in the shape of that frame.

    `None` for what is not ours at all.
    """
    try:
        type = _decode_named(text).type
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return type if isinstance(type, str) and type in _TYPES else None


def _slim(frame: ClientFrame) -> ClientFrame:
    """A request's body as bytes: one emoji makes a text four times as large in memory."""
    if isinstance(frame, UseChat) and isinstance(frame.init.body, str) and not frame.init.body.isascii():
        frame.init.body = frame.init.body.encode()
    return frame


def mending(read: Callable[[str | bytes], T], text: str | bytes) -> T:
    """What `read` makes of JSON text, with U+FFFD in place of half an emoji. Raises `msgspec.DecodeError`."""
    try:
        return read(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        data = text.encode() if isinstance(text, str) else text
        mended = mend(data)
        if mended is data:
            raise
        return read(mended)


def encode(frame: ServerFrame | ClientFrame) -> str:
    """The frame as JSON text."""
    return encode_json(frame).decode()


def decode_told(text: str | bytes) -> ServerFrame | None:
    """The frame that a server sent; `None` for what is not one that we know."""
    try:
        return mending(_decode_told, text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


# --- bounds


class _Glance(msgspec.Struct):
    """The fields of a frame that a refusal needs. The rest is read over and becomes no value."""

    type: str
    id: str | None = None


_decode_glance = msgspec.json.Decoder(_Glance).decode
_OPENING = re.compile(r'\s*\{\s*"type"\s*:\s*"([a-z_]{1,40})"')
ENVELOPE = 4 * 1024
"""What a frame has around what it is about."""

# The types of our frames, and how the ids that a client chose are called there.
_IDS: dict[type[Any], tuple[str, ...]] = {
    wire.UseChat: ("id",),
    wire.CancelRequest: ("id",),
    wire.ClearChat: (),
    wire.ClientMessages: (),
    wire.ToolAnswered: ("tool_call_id", "tool_name", "approval_id"),
    wire.ApprovalAnswered: ("tool_call_id", "approval_id"),
    wire.ResumeRequest: ("probe_id",),
    wire.ResumeAck: ("id",),
    wire.SetState: (),
    wire.CallMethod: ("id", "method"),
}
_TYPES: dict[str, type[Any]] = {str(kind.__struct_config__.tag): kind for kind in _IDS}


def _carefully(text: str | bytes, why: str | None, limits: Limits) -> ClientFrame | Refused | None:
    """A frame that is long, or has too much in it: decoded only when it may be."""
    glance = _glance(text)
    kind = _TYPES.get(glance.type)
    if kind is None:
        return None
    why = why or _too_long(kind, len(text), limits)
    if why is not None:
        is_fair = glance.id is not None and len(glance.id) <= limits.id_chars
        return Refused(glance.type, glance.id if is_fair else None, why)
    if kind is wire.ClientMessages:
        return wire.ClientMessages()  # ignored, whatever it holds
    return _slim(mending(_decode_frame, text))


def _glance(text: str | bytes) -> _Glance:
    try:
        return mending(_decode_glance, text)
    except RecursionError:
        # Too deep to be read over. How it begins says whose it is.
        opening = _OPENING.match(text[:200] if isinstance(text, str) else text[:200].decode(errors="replace"))
        if opening is None:
            raise
        return _Glance(opening[1])


def _too_long(kind: type[Any], size: int, limits: Limits) -> str | None:
    if kind in (wire.UseChat, wire.CallMethod, wire.ClientMessages):
        return None  # the bound of all frames is theirs
    about = 0
    if kind is wire.SetState:
        about = limits.state_bytes
    elif kind is wire.ToolAnswered:
        about = limits.tool_result_bytes + limits.client_tools_bytes
    most = max(about + ENVELOPE, LARGE)
    return f"is longer than {most} bytes" if size > most else None


def _with_fair_ids(frame: ClientFrame, limits: Limits) -> ClientFrame | Refused:
    for field in _IDS[type(frame)]:
        id = getattr(frame, field)
        if id is not None and len(id) > limits.id_chars:
            why = f"has an id of more than {limits.id_chars} characters"
            return Refused(str(frame.__struct_config__.tag), None, why)
    return frame
