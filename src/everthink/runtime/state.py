"""The agent's state: one JSON value that everybody connected shares.

    set_state --> validate --> commit --> tell the others --> on_state_changed

Whole-value replace, no merge. Row existence decides whether there is a state, so `None`, `0` and ``""``
are states too. The agent's own code reads a new state at once, so that reading, changing and setting is
one step; everybody else is told once it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from ..calling import fitted, show
from ..json_values import plain_json
from ..messages import copy_json
from ..settings import check_returned
from ..store.port import Statement, Store

__all__ = ["NO_STATE", "StateBox", "Stateful"]

NO_STATE: Any = msgspec.UNSET


class Stateful(Protocol):
    """What the state needs of its agent's home."""

    store: Store

    @property
    def agent(self) -> Any:
        """The agent, for its hooks."""
        ...

    def save_value(self, key: str, value: Any) -> Statement:
        """A statement that keeps a JSON value."""
        ...

    def background(self, work: Awaitable[Any]) -> None:
        """Keep a task alive."""
        ...

    def log_hook_error(self, hook: str, error: BaseException) -> None:
        """Log that a hook raised."""
        ...


class StateBox:
    """The state of one agent."""

    def __init__(self, home: Stateful) -> None:
        self._home = home
        # The newest, as the agent sees it; and the newest that is stored.
        self._value: Any = NO_STATE
        self._stored: Any = NO_STATE
        self._changes = 0
        self.changed: Callable[[Any, Any], None] | None = None
        """Tells the connections; set by the server."""

    async def load(self, stored: dict[str, Any] | None, *, is_lost: bool = False) -> None:
        """Take the stored state, or the agent's `initial_state` if there is none.

        `is_lost`: there is one and it cannot be read. Its row stays until the agent itself sets another.
        """
        if stored is not None and "value" in stored:
            self._value = self._stored = stored["value"]
        elif (initial := getattr(self._home.agent, "initial_state", NO_STATE)) is not NO_STATE:
            initial = plain_json(initial, f"{type(self._home.agent).__name__}.initial_state")
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
        home = self._home
        if source == "server":  # what a client sent is JSON
            value = plain_json(value, "state", "set_state")
        hook = home.agent.validate_state_change
        check_returned("validate_state_change", hook(*fitted(hook, value, source)))
        new = copy_json(value)
        kept = home.save_value("state", {"value": new})
        self._value = new
        self._changes += 1
        # Shielded: it is stored and told even if whoever set it stops waiting.
        await asyncio.shield(self._write(kept, new, source, self._changes))

    async def _write(self, kept: Statement, new: Any, source: Any, number: int) -> None:
        try:
            await self._home.store.apply([kept])
        except BaseException:
            if number == self._changes:
                self._value = self._stored
            raise
        self._stored = new
        if self.changed is not None:
            self.changed(new, source)
        self._home.background(self._tell(new, source))

    async def _tell(self, state: Any, source: Any) -> None:
        try:
            await show(self._home.agent, "on_state_changed", copy_json(state), source)
        except Exception as error:  # noqa: BLE001 - the state is stored; a hook cannot change that
            self._home.log_hook_error("on_state_changed", error)
