"""Whose request this code runs for, and which work it is part of."""

from __future__ import annotations

import contextvars
from typing import Any, Protocol

__all__ = ["Caller", "Stasher", "current_connection", "current_fiber"]


class Caller(Protocol):
    """A connected client, as far as the agent's own methods care."""

    @property
    def agent_id(self) -> str:
        """The agent it is connected to; what other agents do on the way is not its doing."""
        ...

    @property
    def who(self) -> Any:
        """Its identity as JSON."""
        ...

    @property
    def is_readonly(self) -> bool:
        """True when it may not change the state."""
        ...


current_connection: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "everthink_connection", default=None
)


class Stasher(Protocol):
    """Work that keeps checkpoints."""

    async def stash(self, data: Any) -> None:
        """Keep a checkpoint. It is durable when this returns."""
        ...


current_fiber: contextvars.ContextVar[Stasher | None] = contextvars.ContextVar(
    "everthink_fiber", default=None
)
