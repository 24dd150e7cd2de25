"""A turn's input as its row keeps it, so that another process can run the turn.

    Turn --encode_input--> turns.input (JSON) --decode_input--> Turn

What is in the conversation already is not kept twice: then only body, tools and the answer's parent remain.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import InvalidMessage, Unreadable
from ..messages import UNSET, Message, Unset, check_parts, decode_json, encode_json
from .turn import Turn

__all__ = ["StoredInput", "decode_input", "encode_input"]


class StoredInput(msgspec.Struct, omit_defaults=True, rename="camel"):
    """What a row keeps of a turn's input."""

    messages: list[Message] | None = None
    is_applied: bool = False
    body: dict[str, Any] | None = None
    client_tools: list[dict[str, Any]] | None = None
    parent: str | None = None
    has_parent: bool = False
    channel: str | None = None
    metadata: dict[str, Any] | None = None
    is_readonly: bool = False
    answers: list[str] = []
    identity: Any = None
    message_ids: list[str] | None = None
    """The messages that it brought: those it answers, when nothing else is said."""
    tools_by: str | None = None

    @property
    def answer_parent(self) -> str | Unset | None:
        """The message below which the answer is stored; unset: below the last one."""
        return self.parent if self.has_parent else UNSET

    @property
    def brought(self) -> list[str]:
        """The messages that came with it. One that answers again has none of its own."""
        if self.has_parent:
            return []
        return self.answers if self.message_ids is None else self.message_ids


def encode_input(turn: Turn, *, is_applied: bool = False) -> str | None:
    """The JSON a row keeps, `None` when there is nothing to keep.

    `is_applied`: its messages go into the conversation in the same commit.
    """
    is_applied = is_applied or turn.is_applied
    has_parent = not isinstance(turn.parent, Unset)
    messages = None if is_applied else turn.input or None
    # A function dies with its process; a turn without messages of its own (a continuation) needs none.
    is_lost = turn.compute_input is not None and not is_applied
    # So do those that whoever called chat() runs: nobody could answer them afterwards.
    client_tools = [schema_of(tool) for tool in turn.client_tools.values() if not tool.has_body]
    keeps = messages or is_lost or has_parent or turn.body or client_tools or turn.channel
    if not (keeps or turn.metadata or turn.is_readonly or turn.answers or turn.identity is not None):
        return None
    return encode_json(
        StoredInput(
            messages=messages,
            is_applied=messages is None and not is_lost,
            body=turn.body,
            client_tools=client_tools or None,
            parent=None if isinstance(turn.parent, Unset) else turn.parent,
            has_parent=has_parent,
            channel=turn.channel,
            metadata=turn.metadata,
            is_readonly=turn.is_readonly,
            answers=turn.answers,
            identity=turn.identity,
            message_ids=turn.message_ids if turn.message_ids != turn.answers else None,
            tools_by=turn.tools_by,
        )
    ).decode()


def decode_input(text: str | None) -> StoredInput:
    """What the row kept. Raises `Unreadable` when it is not what we wrote."""
    if not text:
        return StoredInput(is_applied=True)
    try:
        stored: StoredInput = decode_json(text, StoredInput)
        for index, message in enumerate(stored.messages or []):
            check_parts(message, f"messages[{index}]")
    except (msgspec.DecodeError, InvalidMessage) as error:
        raise Unreadable("What the turn was asked with", error) from error
    return stored


def schema_of(tool: Any) -> dict[str, Any]:
    """A client tool as its client declared it."""
    return {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
