"""What `on_chat_recovery` is given and what it may return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..messages import Message, Part
from ..settings import check_fields
from .incident import Kind

__all__ = ["ChatRecoveryContext", "RecoveryDecision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRecoveryContext:
    """A turn that was cut off, for `on_chat_recovery`."""

    incident_id: str
    attempt: int
    """1 for the first time, or after progress."""
    max_attempts: int
    recovery_kind: Kind
    """`"retry"` when it had said nothing, `"continue"` when it goes on from what it said."""
    stream_id: str
    """The turn's id in the journal; empty when nothing was streamed."""
    request_id: str
    recovery_root_request_id: str
    """The same as `request_id`: a turn keeps its id however often it is picked up."""
    partial_text: str
    partial_parts: list[Part]
    recovery_data: Any
    """What the turn kept with `stash`, or `None`."""
    messages: Sequence[Message]
    """The conversation, without what the turn had said."""
    created_at: datetime
    """When the turn was accepted."""
    last_body: dict[str, Any] | None = None
    last_client_tools: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryDecision:
    """What becomes of a turn that was cut off. The default keeps what it said and goes on from there."""

    persist: bool = True
    """False forgets what it said, unless a tool's result is in it."""
    continue_: bool = True
    """False ends the turn."""

    def __post_init__(self) -> None:
        check_fields(self, "RecoveryDecision")
