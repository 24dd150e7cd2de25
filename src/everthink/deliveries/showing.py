"""Deliveries, and whom a conversation is with, as people who look at them read it.

    DeliveryRow --view--> its state in JSON          a message of the conversation --came_by--> which chat

Pure. Where an answer goes may hold the token of an interaction: of that only the place is told.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..masking import mask
from ..messages import Message
from ..messengers.values import MessengerContext, Target, decode
from .queries import QUESTIONS, DeliveryRow
from .rules import CONTEXT

__all__ = ["came_by", "view"]

Json = dict[str, Any]
_PREFIX = "messenger"


def view(row: DeliveryRow) -> Json | None:
    """How a message stands. `None` for that of a turn whose questions alone are shown."""
    target = decode(Target, row.target)
    if target.asks_for is not None and row.part < QUESTIONS:
        return None
    return {
        "turn": row.turn,
        "part": row.part,
        "kind": _kind(row),
        "messenger": row.messenger,
        "chat": target.chat,
        "thread": target.thread,
        "state": row.state,
        "ref": row.ref,
        "shown": row.shown,
        "says": None if row.body is None else mask(row.body),
        "call_id": row.call_id,
        "attempts": row.attempts,
        "next_at": row.not_before if row.is_open else None,
        "error": None if row.error is None else mask(row.error),
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _kind(row: DeliveryRow) -> str:
    """What it is: the answer, what did not fit into it, a question, one that was shown twice, a notice."""
    if row.part >= QUESTIONS:
        return "question" if row.call_id is not None else "copy"
    if row.part > 0:
        return "more"
    return "answer" if row.body is None else "notice"


def came_by(message: Message | None, name: str = "") -> Json | None:
    """The chat that a message came from; where it does not say, the one that a conversation is called by."""
    kept = None if message is None else (message.metadata or {}).get(CONTEXT)
    try:
        context = None if kept is None else msgspec.convert(kept, MessengerContext)
    except msgspec.ValidationError:
        context = None  # of a release that said it otherwise
    if context is None:
        return _named(name)
    thread, author = context.thread, context.author
    person = author.full_name or author.user_name or author.user_id
    group = thread.title or thread.channel_name or thread.channel_id
    chat = (person if thread.is_direct_message else group) or thread.id
    return {
        "messenger": context.messenger_id,
        "provider": context.provider,
        "chat": chat,
        "thread": thread.id,
        "is_direct": thread.is_direct_message,
    }


def _named(name: str) -> Json | None:
    """What the name of a thread's conversation says: see `rules.conversation_name`."""
    kind, _, rest = name.partition(":")
    messenger, _, thread = rest.partition(":")
    if kind != _PREFIX or not messenger or not thread:
        return None
    return {
        "messenger": messenger,
        "provider": None,
        "chat": thread,
        "thread": thread,
        "is_direct": None,
    }
