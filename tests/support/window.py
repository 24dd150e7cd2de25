"""Chat windows in tests, and what people type into them."""

from __future__ import annotations

from typing import Any

from everthink.messages import Message
from everthink.testing import Window

__all__ = ["Window", "said"]


def said(id: str, text: str, **metadata: Any) -> Message:
    """A user message."""
    return Message(id, "user", [{"type": "text", "text": text}], metadata or None)
