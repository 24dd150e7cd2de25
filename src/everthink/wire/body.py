"""The body of a chat request: a window's list of messages, and what it asks for besides.

    UseChat --read_body--> ChatBody --> door/requests

A window sends its whole list each time. Of all but the user messages at the end only id and role are
read: nothing else of them counts, and a long conversation costs little more than a short one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from ..errors import InvalidMessage
from ..limits import Limits
from ..messages import ROLES, Message, Role, parse_message
from .bounds import check
from .codec import mending
from .frames import UseChat

__all__ = ["ChatBody", "read_body"]


class ChatBody(msgspec.Struct):
    """What a chat request asks for. Messages of which only the head was read have no parts."""

    messages: list[Message]
    regenerates: bool
    client_tools: list[dict[str, Any]] | None
    custom: dict[str, Any] | None


class _Head(msgspec.Struct):
    id: Any = None
    role: Any = None


_decode: Callable[[bytes | msgspec.Raw], Any] = msgspec.json.Decoder().decode
_fields: Callable[[str | bytes], dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_head = msgspec.json.Decoder(_Head).decode


def read_body(
    frame: UseChat, *, new_id: Callable[[], str], limits: Limits | None = None, trusts: bool = False
) -> ChatBody | None:
    """What the request asks for; `None` when it is not a request at all.

    Raises `InvalidMessage`, also for a body that is not JSON or is over a bound. `trusts`: read every
    message whole.
    """
    if frame.init.method != "POST" or not isinstance(frame.init.body, str | bytes):
        return None
    limits = limits or Limits()
    if (why := check(frame.init.body, limits)) is not None:
        raise InvalidMessage("the body of the request", why)
    try:
        fields = _opened(frame.init.body)
        entries = _entries(fields.pop("messages", None)) if fields is not None else None
        if fields is None or entries is None:
            return None
        trigger, tools = (_value(fields.pop(name, None)) for name in ("trigger", "clientTools"))
        custom = {name: _value(value) for name, value in fields.items()}
        if len(entries) > limits.request_messages:
            most = limits.request_messages
            raise InvalidMessage("messages", f"has {len(entries)} entries, more than {most}")
        messages = _read(entries, 0 if trusts else _tail(entries, limits.new_messages), new_id)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise InvalidMessage("the body of the request", "is not JSON") from error
    declared = cast("list[Any]", tools) if isinstance(tools, list) else None
    return ChatBody(
        messages,
        trigger == "regenerate-message",
        None if declared is None else [tool for tool in declared if isinstance(tool, dict)],
        custom or None,
    )


def _opened(text: str | bytes) -> dict[str, msgspec.Raw] | None:
    try:
        return mending(_fields, text)
    except msgspec.ValidationError:
        return None  # JSON, but not an object


def _entries(messages: msgspec.Raw | None) -> list[msgspec.Raw] | None:
    try:
        return None if messages is None else _items(messages)
    except msgspec.ValidationError:
        return None


def _value(raw: msgspec.Raw | None) -> Any:
    return None if raw is None else _decode(raw)


def _tail(entries: Sequence[msgspec.Raw], most: int) -> int:
    """Where the user messages at the end begin: at most `most` of them. What is no message counts as one."""
    place = len(entries)
    while place > max(0, len(entries) - most):
        head = _head_of(entries[place - 1])
        if head is not None and head.role != "user":
            break
        place -= 1
    return place


def _read(entries: Sequence[msgspec.Raw], whole_from: int, new_id: Callable[[], str]) -> list[Message]:
    heads = [head for entry in entries[:whole_from] if (head := _head_of(entry)) is not None]
    return heads + [
        parse_message(_value(entry), new_id=new_id, path=f"messages[{index}]")
        for index, entry in enumerate(entries[whole_from:], whole_from)
    ]


def _head_of(entry: msgspec.Raw) -> Message | None:
    """Id and role of a message; `None` when it is none."""
    try:
        head = _head(entry)
    except msgspec.DecodeError:
        return None
    if not isinstance(head.id, str) or not isinstance(head.role, str) or head.role not in ROLES:
        return None
    return Message(head.id, cast("Role", head.role), [])
