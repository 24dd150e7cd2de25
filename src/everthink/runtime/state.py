"""The agent's state: one JSON value that everybody connected shares.

    set_state --> validate --> commit --> tell the others --> on_state_changed

Whole-value replace, no merge. Row existence decides whether there is a state, so `None`, `0` and ``""``
are states too. The agent's own code reads a new state at once, so that reading, changing and setting is
one step; everybody else is told once it is stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..journal.feed import StateChanged
from ..json_values import NO_STATE, plain_json
from ..messages import copy_json

if TYPE_CHECKING:
    from ..store.port import Statement
    from .parts import AgentParts

__all__ = ["StateBox"]


class StateBox:
    """The state of one agent."""

    __slots__ = ("_changes", "_parts", "_stored", "_value")

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts
        # The newest, as the agent sees it; and the newest that is stored.
        self._value: Any = NO_STATE
        self._stored: Any = NO_STATE
        self._changes = 0

    async def load(self, stored: dict[str, Any] | None, *, is_lost: bool = False) -> None:
        """Take the stored state, or the agent's `initial_state` if there is none.

        `is_lost`: there is one and it cannot be read. Its row stays until the agent itself sets another.
        """
        if stored is not None and "value" in stored:
            self._value = self._stored = stored["value"]
        elif (initial := getattr(self._parts.hooks.agent, "initial_state", NO_STATE)) is not NO_STATE:
            initial = plain_json(initial, f"{type(self._parts.hooks.agent).__name__}.initial_state")
            if is_lost or stored is not None:
                self._value = initial
            else:
                await self.set(initial, source="server")

    @property
    def exists(self) -> bool:
        """True when a state is stored."""
        return self._stored is not NO_STATE

    @property
    def value(self) -> Any:
        """The state, as a copy; `None` when there is none."""
        return copy_json(self._value) if self._value is not NO_STATE else None

    @property
    def stored(self) -> Any:
        """The state that clients may be shown, as a copy; `None` when there is none."""
        return copy_json(self._stored) if self.exists else None

    async def set(self, value: Any, *, source: Any) -> None:
        """Replace the state. Raises what the validator raises, with nothing changed."""
        parts = self._parts
        if source == "server":  # what a client sent is JSON
            value = plain_json(value, "state", "set_state")
        parts.hooks.validate_state_change(value, source)
        new = copy_json(value)
        kept = parts.save_value("state", {"value": new})
        self._value = new
        self._changes += 1
        # Shielded: it is stored and told even if whoever set it stops waiting.
        await asyncio.shield(self._write(kept, new, source, self._changes))

    async def _write(self, kept: Statement, new: Any, source: Any, number: int) -> None:
        try:
            await self._parts.store.apply([kept])
        except BaseException:
            if number == self._changes:
                self._value = self._stored
            raise
        self._stored = new
        self._parts.feed.publish(StateChanged(new, source))
        self._parts.background(self._parts.hooks.on_state_changed(copy_json(new), source))
