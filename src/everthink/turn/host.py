"""What the turns of one conversation work with: parts, each made once for its agent.

runtime/chat --makes--> TurnHost --> turn/, door/, recovery/ take from it what they use
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..abort import AbortRegistry
from ..clock import Clock
from ..errors import AgentErased, TurnInterrupted
from ..hooks.runner import HookRunner
from ..journal.feed import Feed
from ..journal.open_turns import OpenTurns
from ..journal.read import Below
from ..journal.tool_errors import ToolErrors
from ..journal.turn import Turn
from ..limits import Limits
from ..models.port import Model, OutputSchema
from ..observe.events import EventBody
from ..prompt.convert import Converter
from ..prompt.views import Views
from ..session.session import Session
from ..store.port import AgentStore, Statement
from ..tools.collect import ToolSource
from ..tools.question import LiveQuestion
from ..tools.tool import Tool
from .last_failure import LastFailure

if TYPE_CHECKING:
    from .outcome import Recoverer

__all__ = ["Leaves", "TurnHost", "interrupted"]

Leaves = Literal["process", "alone", "erased"]
"""What an agent leaves memory for."""


@dataclass(slots=True, kw_only=True, eq=False)
class TurnHost:
    """The turn host: parts that turns work with. Nothing of a single one is here: that is in its `Turn`."""

    id: str
    store: AgentStore
    clock: Clock
    limits: Limits
    hooks: HookRunner
    new_id: Callable[[], str]
    emit: Callable[[EventBody], None]
    """Tells observers. Never raises."""
    save_value: Callable[[str, Any], Statement]
    """A statement that keeps a small JSON value (`None` forgets it)."""
    background: Callable[[Awaitable[Any]], None]
    """Keeps a task alive until it ends; what it raises is logged."""
    resolve_model: Callable[[Any], Awaitable[Model]]
    """Gives a model from its name or itself."""
    own_tools: Callable[[], Mapping[str, Tool]]
    """The `@tool` methods, bound."""
    tool_sources: Callable[[], Sequence[ToolSource]]
    """Where the tools of a turn come from. Of two tools of one name that of the first source counts."""
    start_eviction: Callable[[], None]
    """Takes heavy contents out of old messages, in the background."""
    session: Session = field(init=False)
    """The live session. Exchanged when another one is opened."""
    feed: Feed
    words: ToolErrors
    views: Views
    converter: Converter
    last_failure: LastFailure
    aborts: AbortRegistry = field(default_factory=AbortRegistry)
    turns: OpenTurns = field(default_factory=OpenTurns)
    generation: int = 0
    """How often the conversation was cleared or reset: a turn of an older one belongs to none. Only the door
    counts it."""
    tool_output: OutputSchema | None = None
    """What its answers are to be as the tool of a parent."""
    below: Callable[[str], Awaitable[Below]] | None = None
    """What the children do that a turn waits for, by its id. Of an agent that has had any."""
    may_begin_delivered: Callable[[Turn], Awaitable[bool]] | None = None
    """Asked when the time of a turn has come that a messenger brought. False: another one answers it, too."""
    addressed: Callable[[Turn], Awaitable[Sequence[Statement]]] | None = None
    """What is written with a turn that code submits to one of the channels. Of the same agents."""
    continued: Callable[[Turn], Awaitable[Sequence[Statement]]] | None = None
    """What goes with the commit that accepts a continuation. Of an agent that messengers bring something."""
    said_all: Callable[[Turn], Sequence[Statement]] | None = None
    """What goes with the commit that ends a turn which has said all it had to. Of the same agents."""
    questions: dict[str, LiveQuestion] | None = None
    """What calls that run ask a person just now."""
    asked_again: dict[str, int] = field(default_factory=dict[str, int])
    """Of open questions whose call had asked before: when each was asked (ms)."""
    is_stopping: bool = False
    """The agent leaves memory: a turn that meets what is closed is cut, and has not failed."""
    leaves: Leaves = "process"
    """What it leaves memory for: with the process, alone, or because it is deleted."""
    prunes_at: int = 0
    """When chunks of ended turns are next dropped (ms)."""
    recovery: Recoverer = field(init=False)
    """Decides whether an interrupted turn goes on."""

    def drop_views(self) -> None:
        """Between turns, keep no more pictures in memory than may be: the next prompt makes them again."""
        if self.views.are_many:
            self.views.forget()
            self.converter.forget()


def interrupted(host: TurnHost, request_id: str) -> TurnInterrupted:
    """What whoever waits for a turn is told when its agent leaves memory."""
    match host.leaves:
        case "process":
            return TurnInterrupted(request_id)
        case "erased":
            return AgentErased(request_id)
        case "alone":
            return TurnInterrupted(
                request_id,
                "its agent leaves memory",
                next_step="It goes on from there when the agent is next reached; ask for its result then.",
            )
