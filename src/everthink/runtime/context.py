"""Whose request this code runs for."""

from __future__ import annotations

import contextvars
from typing import Protocol

__all__ = ["Caller", "current_connection"]


class Caller(Protocol):
    """A connected client, as far as the agent's own methods care."""

    @property
    def is_readonly(self) -> bool:
        """True when it may not change the state."""
        ...


current_connection: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "everthink_connection", default=None
)
