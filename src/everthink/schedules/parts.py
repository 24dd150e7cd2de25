"""What the timers, the queue and the declared tasks of one agent work with.

runtime/ --makes--> Parts --> Alarms, Jobs, Tasks
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..clock import Clock
from ..holds import Holds
from ..observe.events import EventBody
from ..store.port import AgentStore

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an agent that its later work uses."""

    id: str
    store: AgentStore
    clock: Clock
    holds: Holds
    agent: Any
    """For its methods and its settings."""
    emit: Callable[[EventBody], None]
    """Tells observers."""
    report: Callable[[BaseException], Awaitable[None]]
    """Gives a failure that nobody waits for to the agent's `on_error`."""
    wake_at: Callable[[int], None]
    """Sees that the agent is awake at that time, in ms."""
    alarm_at: Callable[[int], None]
    """The same for a time that the row of an alarm says."""
