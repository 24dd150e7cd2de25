"""The agent's state: one JSON value that everybody connected shares.

    set_state --> validate --> commit --> tell the others --> on_state_changed

Whole-value replace, no merge. Row existence decides whether there is a state, so `None`, `0` and ``""``
are states too.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from ..messages import copy_json
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

    def remember(self, key: str, value: Any) -> Statement:
        """A statement that keeps a JSON value."""
        ...

    def background(self, work: Awaitable[Any]) -> None:
        """Keep a task alive."""
        ...

    def complain(self, hook: str, error: BaseException) -> None:
        """Log that a hook raised."""
        ...


class StateBox:
    """The state of one agent."""

    def __init__(self, home: Stateful) -> None:
        self._home = home
        self._value: Any = NO_STATE
        self.changed: Callable[[Any, Any], None] | None = None
        """Tells the connections; set by the server."""

    async def load(self, stored: Any) -> None:
        """Take the stored state, or the agent's `initial_state` if there is none."""
        if isinstance(stored, dict) and "value" in stored:
            self._value = stored["value"]
        elif (initial := getattr(self._home.agent, "initial_state", NO_STATE)) is not NO_STATE:
            await self.set(copy_json(initial), source="server")

    @property
    def exists(self) -> bool:
        """True when there is a state."""
        return self._value is not NO_STATE

    @property
    def value(self) -> Any:
        """The state, as a copy; `None` when there is none."""
        return copy_json(self._value) if self.exists else None

    async def set(self, value: Any, *, source: Any) -> None:
        """Replace the state. Raises what the validator raises, with nothing changed."""
        home = self._home
        home.agent.validate_state_change(value, source)
        await home.store.apply([home.remember("state", {"value": value})])
        self._value = copy_json(value)
        if self.changed is not None:
            self.changed(self._value, source)
        home.background(self._tell(source))

    async def _tell(self, source: Any) -> None:
        try:
            told = self._home.agent.on_state_changed(self.value, source)
            if inspect.isawaitable(told):
                await told
        except Exception as error:  # noqa: BLE001 - the state is stored; a hook cannot change that
            self._home.complain("on_state_changed", error)
