"""What every agent is made with, chat or not: handed to each of its parts, which take what they use.

runtime/actor --makes--> AgentParts --> state, chat, timers, jobs, fibers
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..hooks.runner import HookRunner
from ..journal.feed import Feed
from ..limits import Limits
from ..observe.events import EventBody
from ..store.port import AgentStore, Statement
from .unreadable import UnreadableRows

if TYPE_CHECKING:
    from ..workspace.stored import StoredFiles

__all__ = ["AgentParts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentParts:
    """The parts from below that one agent works with."""

    id: str
    store: AgentStore
    clock: Clock
    limits: Limits
    hooks: HookRunner
    feed: Feed
    new_id: Callable[[], str]
    emit: Callable[[EventBody], None]
    """Tells observers. Never raises."""
    save_value: Callable[[str, Any], Statement]
    """A statement that keeps a small JSON value (`None` forgets it)."""
    background: Callable[[Awaitable[Any]], None]
    """Keeps a task alive until it ends; what it raises is logged."""
    unreadable: UnreadableRows
    own_files: Callable[[], StoredFiles]
    """The files in its own rows, whatever its workspace is."""
