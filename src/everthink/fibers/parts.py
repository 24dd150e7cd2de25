"""What the fibers of one agent work with.

runtime/ --makes--> Parts --> Fibers, Rescue
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ..clock import Clock
from ..holds import Holds
from ..hooks.runner import HookRunner
from ..observe.events import EventBody
from ..store.port import AgentStore

__all__ = ["Parts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """The parts of an agent that its fibers use."""

    id: str
    store: AgentStore
    clock: Clock
    holds: Holds
    hooks: HookRunner
    new_id: Callable[[], str]
    emit: Callable[[EventBody], None]
    """Tells observers."""
    wake_at: Callable[[int], None]
    """Sees that the agent is awake at that time, in ms."""
    background: Callable[[Awaitable[Any]], None]
    """Keeps a task alive until it ends; what it raises is logged."""
    stash_turn: Callable[[Any], Awaitable[None]]
    """Keeps a checkpoint of the turn that the caller runs in."""
