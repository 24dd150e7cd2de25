"""Reconcile what a client sends with what the server holds. The server wins.

    client's messages --> reconcile(incoming, stored) --> messages to upsert

Pure. A browser sends its whole list with every request, with ids it invented and tool states
that may be stale; without this the same answer would be stored twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ..messages import SETTLED_STATES, Message, Part, encode_json, is_tool_part
from ..session.row_size import clean

__all__ = ["adopt_by_call", "reconcile", "strip_reserved"]

RESERVED = ("channel", "turnMetadata", "messenger", "compactedToolOutputs", "compactedTextParts")
_UNSETTLED = frozenset({"input-available", "approval-requested", "approval-responded"})


def reconcile(incoming: Sequence[Message], stored: Sequence[Message]) -> list[Message]:
    """`incoming` with settled tool outcomes of the server overlaid and assistant ids adopted."""
    if not stored:
        return list(incoming)
    return _adopt_ids(_overlay(incoming, stored), stored)


def _overlay(incoming: Sequence[Message], stored: Sequence[Message]) -> list[Message]:
    settled: dict[str, Part] = {
        part["toolCallId"]: part
        for message in stored
        if message.role == "assistant"
        for part in message.parts
        if is_tool_part(part) and part.get("state") in SETTLED_STATES
    }
    return [_overlay_one(m, settled) if m.role == "assistant" and settled else m for m in incoming]


def _overlay_one(message: Message, settled: dict[str, Part]) -> Message:
    parts: list[Part] = []
    changed = False
    for part in message.parts:
        twin = settled.get(part.get("toolCallId", "")) if is_tool_part(part) else None
        if twin is not None and part.get("state") in _UNSETTLED:
            part = {k: v for k, v in part.items() if k not in ("output", "errorText")}
            part |= {k: twin[k] for k in ("state", "output", "errorText", "approval") if k in twin}
            changed = True
        parts.append(part)
    return message.with_parts(parts) if changed else message


def _adopt_ids(incoming: Sequence[Message], stored: Sequence[Message]) -> list[Message]:
    claimed = {m.id for m in incoming}
    free: dict[bytes, deque[str]] = {}
    for message in stored:
        if message.role == "assistant" and message.id not in claimed and not message.tool_parts:
            free.setdefault(_content_key(message), deque()).append(message.id)
    known = {m.id for m in stored}
    adopted: list[Message] = []
    for message in incoming:
        if message.role == "assistant" and message.id not in known and not message.tool_parts:
            ids = free.get(_content_key(message))
            if ids:
                message = msgspec.structs.replace(message, id=ids.popleft())
        adopted.append(message)
    return adopted


def _content_key(message: Message) -> bytes:
    return encode_json(clean(message).parts)


def adopt_by_call(messages: Sequence[Message], stored: Sequence[Message]) -> list[Message]:
    """`messages`, where one of an assistant that holds a known call takes the id of the row that has it."""
    known = {message.id for message in stored}
    holders: dict[str, str] = {}
    for message in stored:
        if message.role == "assistant":
            for part in message.parts:
                call_id = part.get("toolCallId")
                if isinstance(call_id, str):
                    holders.setdefault(call_id, message.id)
    return [_adopted(message, known, holders) for message in messages]


def _adopted(message: Message, known: set[str], holders: dict[str, str]) -> Message:
    if message.role != "assistant" or message.id in known:
        return message
    call_id = next((part.get("toolCallId") for part in message.parts if is_tool_part(part)), None)
    holder = holders.get(call_id) if isinstance(call_id, str) else None
    return message if holder is None else msgspec.structs.replace(message, id=holder)


def strip_reserved(message: Message) -> Message:
    """Without the metadata keys only the server may set."""
    metadata: dict[str, Any] | None = message.metadata
    if not metadata or not any(key in metadata for key in RESERVED):
        return message
    kept = {k: v for k, v in metadata.items() if k not in RESERVED}
    return message.with_metadata(kept or None)
