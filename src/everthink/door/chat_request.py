"""What a chat window asks for, as a value.

server/asking, testing --ChatRequest--> door/requests
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..messages import Message

__all__ = ["ChatRequest", "Dropped"]


@dataclass(slots=True)
class ChatRequest:
    """What a chat window asks for. Its `client_tools` are for this turn and what continues it."""

    request_id: str
    messages: list[Message]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    client_tools: list[dict[str, Any]] | None = None
    body: dict[str, Any] | None = None
    channel: str | None = None
    metadata: dict[str, Any] | None = field(default=None)
    origin: str | None = None
    """The connection it came by."""
    is_readonly: bool = False
    """True when that connection may not change the state."""
    identity: Any = None
    """Who asks, as JSON, when the application knows."""
    may_clear: bool = True
    """False when they may not take what others said out of everybody's sight."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The request was not taken (`message_concurrency = "drop"`); nothing was stored."""

    request_id: str
