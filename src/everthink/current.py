"""Whose request this code runs for, and which turns, calls and fiber it is part of.

    admission, calls, fibers, chat sockets --set--> context variables --> tools and hooks, wherever they await

They follow the code into what it awaits and into the tasks it starts.
"""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = [
    "Caller",
    "InCall",
    "InTurn",
    "current_call",
    "current_connection",
    "current_fiber",
    "current_origin",
    "current_turn",
    "enclosing_calls",
    "enclosing_turns",
    "identity_within",
    "in_active_turn",
    "in_readonly_turn",
    "origin_of",
    "step_outside",
]


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

current_origin: contextvars.ContextVar[str | None] = contextvars.ContextVar("everthink_origin", default=None)
"""Where the HTTP request came to that this code answers."""


def origin_of(url: Any, scope: Mapping[str, Any]) -> str:
    """Where a request came to, as people see it, with the path that we are mounted at: `https://my.page`."""
    scheme = {"ws": "http", "wss": "https"}.get(url.scheme, url.scheme)
    return f"{scheme}://{url.netloc}{scope.get('root_path', '')}"


current_fiber: contextvars.ContextVar[Any] = contextvars.ContextVar("everthink_fiber", default=None)
"""The innermost fiber (`fibers.run.Run`) that this code is part of, or `None`."""


@dataclass(frozen=True, slots=True, eq=False)
class InTurn:
    """A turn that this code runs inside of, and whose."""

    agent: str
    id: str
    identity: Any = None
    """Who asked for it, as JSON."""
    is_readonly: bool = False
    """True when it may not change the agent's state."""


enclosing_turns: contextvars.ContextVar[tuple[InTurn, ...]] = contextvars.ContextVar(
    "everthink_turns", default=()
)
"""The turns this code runs inside of, outermost first: a tool of one agent may wait for another agent."""


@dataclass(frozen=True, slots=True)
class InCall:
    """A tool call that this code runs inside of."""

    agent: str
    turn: str
    id: str


enclosing_calls: contextvars.ContextVar[tuple[InCall, ...]] = contextvars.ContextVar(
    "everthink_calls", default=()
)
"""The tool calls this code runs inside of, outermost first."""


def current_call(agent: str) -> tuple[str | None, str | None]:
    """The call and the turn of that agent which this code is part of; `None` for what it is no part of."""
    turn = next((one.id for one in reversed(enclosing_turns.get()) if one.agent == agent), None)
    calls = (one for one in reversed(enclosing_calls.get()) if one.agent == agent and one.turn == turn)
    return next((one.id for one in calls), None), turn


def current_turn() -> InTurn | None:
    """The turn this code runs in, if any."""
    turns = enclosing_turns.get()
    return turns[-1] if turns else None


def in_active_turn(agent: str) -> bool:
    """True inside a turn of that agent (its hooks, its tools)."""
    return any(turn.agent == agent for turn in enclosing_turns.get())


def identity_within(agent: str) -> Any:
    """Who asked for the turn of that agent which this code is part of, as JSON; `None`: not known."""
    return next((turn.identity for turn in reversed(enclosing_turns.get()) if turn.agent == agent), None)


def in_readonly_turn(agent: str) -> bool:
    """True inside a turn of that agent which may not change its state."""
    return any(turn.agent == agent and turn.is_readonly for turn in enclosing_turns.get())


def step_outside() -> None:
    """Say that no turn waits for this task: it may start turns itself, and wait for them."""
    enclosing_turns.set(())
    enclosing_calls.set(())
