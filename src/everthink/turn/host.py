"""What a turn asks of the place it runs in: storage, time, ids, hooks and readers arrive through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..abort import AbortRegistry
from ..clock import Clock
from ..hooks.values import Hooks
from ..journal.feed import Feed
from ..journal.fold import Accumulator
from ..journal.tool_errors import ToolErrors
from ..journal.turn import Turn
from ..limits import Limits
from ..models.port import Model
from ..observe.events import EventBody
from ..session.eviction import Evictor
from ..session.session import Session
from ..store.port import Statement, Store
from ..tools.tool import Tool
from .convert import Converter

if TYPE_CHECKING:
    from .outcome import Recoverer

__all__ = ["Host"]


class Host(Protocol):
    """What a turn needs of the place it runs in. `runtime/actor.py` is it."""

    id: str
    store: Store
    session: Session
    clock: Clock
    limits: Limits
    feed: Feed
    converter: Converter
    words: ToolErrors
    aborts: AbortRegistry
    inflight: Accumulator | None
    last_failure: dict[str, Any] | None
    """The last turn, when it failed: what a chat window that comes later is told."""
    prunes_at: int
    """When chunks of ended turns are next dropped (ms)."""

    @property
    def evictor(self) -> Evictor:
        """Takes heavy contents out of old messages."""
        ...

    @property
    def recovery(self) -> Recoverer:
        """Decides whether an interrupted turn goes on."""
        ...

    @property
    def agent(self) -> Hooks:
        """The agent, for its hooks."""
        ...

    @property
    def generation(self) -> int:
        """The queue's generation now."""
        ...

    @property
    def new_id(self) -> Callable[[], str]:
        """Gives a fresh id."""
        ...

    def emit(self, event: EventBody) -> None:
        """Tell observers. Never raises."""
        ...

    def log_hook_error(self, hook: str, error: BaseException) -> None:
        """Log that a hook raised where raising changes nothing."""
        ...

    def overrides(self, hook: str) -> bool:
        """True when the developer wrote that hook."""
        ...

    def own_tools(self) -> Mapping[str, Tool]:
        """The `@tool` methods, bound."""
        ...

    def waiting_messages(self, turn: Turn) -> Sequence[str]:
        """The messages that are stored and wait for turns which come after this one, in that order."""
        ...

    @property
    def resolve_model(self) -> Callable[[Any], Awaitable[Model]]:
        """Gives a model from its name or itself."""
        ...

    def save_value(self, key: str, value: Any) -> Statement:
        """A statement that keeps a small JSON value (`None` forgets it)."""
        ...

    def background(self, work: Awaitable[Any]) -> None:
        """Keep a task alive until it ends."""
        ...
