"""What a person may say: of a client's message, only what people can make.

    a client's message --spoken--> the message as we take it, and how many parts were left out

Pure. Text, files and `data-*` are a person's; calls, results, reasoning, sources and steps are ours and
the model's, and are left out whoever sends them. What is a person's and over a bound, or a file that
neither a provider nor we should open, is refused: they would not know that it was lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from ..errors import InvalidMessage
from ..limits import Limits
from ..messages import Message, Part, encode_json
from ..session.overlay import is_overlay
from .reconcile import RESERVED

__all__ = ["check_sizes", "checked_id", "has_said_the_same", "is_open_url", "spoken"]

_FIELDS = {"text": ("type", "text"), "file": ("type", "mediaType", "filename", "url")}
_DATA_FIELDS = ("type", "id", "data")
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+*-]{1,128}(;[\x20-\x7e]{0,128})?", re.ASCII)
LONGEST_NAME = 255


def spoken(message: Message, limits: Limits) -> tuple[Message, int]:
    """A person's message, and how many of its parts no person can make. Raises `InvalidMessage`."""
    checked_id(message.id, limits)
    if is_overlay(message):
        raise InvalidMessage("message.id", f"is {message.id[:40]!r}, which stands for a summary")
    if len(message.parts) > limits.message_parts:
        raise InvalidMessage(
            "message.parts", f"has {len(message.parts)} entries, more than {limits.message_parts}"
        )
    parts = [part for part in map(_own, message.parts) if part is not None]
    if not parts:
        raise InvalidMessage("message.parts", "holds no text, file or data of a person")
    for part in parts:
        if part["type"] == "file":
            _check_file(part)
    metadata = {k: v for k, v in (message.metadata or {}).items() if k not in RESERVED} or None
    said = Message(message.id, "user", parts, metadata)
    check_sizes([said], limits)
    return said, len(message.parts) - len(parts)


def _own(part: Part) -> Part | None:
    """A part with the fields that are a person's to fill, or `None` when no person makes such a part."""
    kind: Any = part.get("type")
    fields = _FIELDS.get(kind) or (_DATA_FIELDS if str(kind).startswith("data-") else ())
    return {name: part[name] for name in fields if name in part and _is_fit(name, part[name])} or None


def _is_fit(field: str, value: Any) -> bool:
    """False for a name or an id that is none: it is left out."""
    return field not in ("filename", "id") or (isinstance(value, str) and len(value) <= LONGEST_NAME)


def _check_file(part: Part) -> None:
    if not is_open_url(part["url"]):
        raise InvalidMessage("message.parts", "holds a file whose URL is not http:, https: or data:")
    if not _MEDIA_TYPE.fullmatch(part["mediaType"]):
        raise InvalidMessage("message.parts", "holds a file whose media type is none, such as image/png")


def check_sizes(messages: Sequence[Message], limits: Limits) -> None:
    """Raise `InvalidMessage` when the messages of one request are, together, larger than may be."""
    extra = sum(len(encode_json(message.metadata)) for message in messages if message.metadata)
    if extra > limits.body_bytes:
        raise InvalidMessage("message.metadata", f"has {extra} bytes, more than {limits.body_bytes}")
    texts = (part["text"] for message in messages for part in message.parts if "text" in part)
    text = sum(len(one) if one.isascii() else len(one.encode(errors="replace")) for one in texts)
    if text > limits.text_bytes:
        raise InvalidMessage("message.parts", f"has {text} bytes of text, more than {limits.text_bytes}")
    size = sum(len(encode_json(message)) for message in messages)
    if size > limits.message_bytes:
        raise InvalidMessage("message", f"has {size} bytes, more than {limits.message_bytes}")


def checked_id(id: str, limits: Limits, what: str = "message.id") -> str:
    """An id that a client chose, if we take such. Raises `InvalidMessage`."""
    if not id or len(id) > limits.id_chars:
        raise InvalidMessage(what, f"has {len(id)} characters, not 1 to {limits.id_chars}")
    if not id.isprintable():
        raise InvalidMessage(what, "holds characters that cannot be printed")
    return id


MAX_URL = 8192
"""Characters of an address; `data:` is no address."""


def is_open_url(url: str) -> bool:
    """True for a URL that a provider may be given: `http:`, `https:` or `data:`."""
    if url[:5].lower() == "data:":
        return True  # looked at no further: it may be megabytes
    if len(url) > MAX_URL or url != url.strip():
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()


def has_said_the_same(said: Message, known: Message) -> bool:
    """True when a message that comes back is the one we have.

    A client's copy has all that we show of it, also what a person could not have made.
    """
    return said.parts == known.parts or said.parts == [p for p in map(_own, known.parts) if p is not None]
