"""Who watches an agent: sockets, `chat()` callers, the inspector, a parent.

    journal/writer, door/, turn/ --FeedEvent--> Feed --> every reader

Everything shown is durable already. Readers are plain functions that must not block; one
that raises is logged and dropped out, and never slows the turn or the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..chunks import Chunk
from ..messages import Message
from ..session.compaction import SessionNews

if TYPE_CHECKING:
    from ..hooks.values import TurnStatus
    from .turn import Turn

__all__ = [
    "AgentLeft",
    "ChunksStored",
    "Cleared",
    "ContinuationDropped",
    "Feed",
    "FeedEvent",
    "HistoryChanged",
    "MessageUpdated",
    "RecoveryChanged",
    "RunProgressed",
    "RunTold",
    "ServersChanged",
    "SessionTold",
    "StateChanged",
    "TurnAccepted",
    "TurnEnded",
    "TurnRewound",
    "TurnStarted",
]

log = logging.getLogger("everthink.turn")


@dataclass(frozen=True, slots=True)
class TurnAccepted:
    """A turn has its row; it runs when those before it are done."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn runs; its input is in the conversation."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class ChunksStored:
    """Chunks `first_seq`, `first_seq + 1`, … of a turn, as JSON text and as values."""

    turn: Turn
    first_seq: int
    bodies: Sequence[str]
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is over. `streamed`: chunks were shown; `stored`: the conversation has an answer of it."""

    turn: Turn
    status: TurnStatus
    error: str | None = None
    streamed: bool = True
    stored: bool = False


@dataclass(frozen=True, slots=True)
class HistoryChanged:
    """The conversation has other messages than before: a turn's input, its answer, or something else."""

    turn: Turn | None = None
    what: Literal["input", "answer", "other"] = "other"


@dataclass(frozen=True, slots=True)
class MessageUpdated:
    """One stored message changed."""

    message: Message


@dataclass(frozen=True, slots=True)
class RecoveryChanged:
    """A turn was cut off and is to go on (`recovering`), or that is over."""

    turn: Turn
    recovering: bool


@dataclass(frozen=True, slots=True)
class TurnRewound:
    """A turn forgets what it has said and starts over."""

    turn: Turn
    at_once: bool = False
    """True when it begins anew at once: readers stay with the stream, which starts again."""


@dataclass(frozen=True, slots=True)
class SessionTold:
    """The conversation's length changed, or it is being shortened."""

    news: SessionNews


@dataclass(frozen=True, slots=True)
class AgentLeft:
    """The agent has left memory: nothing more is shown. Whoever follows it reaches it anew."""


@dataclass(frozen=True, slots=True)
class RunTold:
    """Something of a child's run: `event` is what a window is told, number `sequence` of that run."""

    run_id: str
    call_id: str | None
    sequence: int
    event: dict[str, Any]
    is_passing: bool = False
    """True for a report, a piece without a number of its own: it is shown after number `sequence`."""


@dataclass(frozen=True, slots=True)
class RunProgressed:
    """A child says how far its run is: shown by its parent, and no part of what it says."""

    run_id: str
    progress: dict[str, Any]
    body: str
    """The same as a chunk, as JSON text."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """The conversation was emptied."""


@dataclass(frozen=True, slots=True)
class ContinuationDropped:
    """A turn that was expected to follow an answer will not run."""


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The agent has another state. `source` is `"server"` or the connection it came by."""

    state: Any
    source: Any


@dataclass(frozen=True, slots=True)
class ServersChanged:
    """The MCP servers of the agent, or what they offer, are others than before."""


FeedEvent = (
    TurnAccepted
    | TurnStarted
    | ChunksStored
    | TurnEnded
    | HistoryChanged
    | MessageUpdated
    | RecoveryChanged
    | TurnRewound
    | SessionTold
    | Cleared
    | ContinuationDropped
    | StateChanged
    | ServersChanged
    | RunTold
    | RunProgressed
    | AgentLeft
)
Reader = Callable[[FeedEvent], object]


class Feed:
    """The readers of one agent."""

    def __init__(self) -> None:
        self._readers: dict[int, Reader] = {}
        self._next = 0
        self.is_over = False
        """True once the agent has left memory: who joins now is told nothing."""

    def __len__(self) -> int:
        return len(self._readers)

    def join(self, reader: Reader) -> Callable[[], None]:
        """Show everything from now on to `reader`. Returns how to leave."""
        key = self._next
        self._next += 1
        self._readers[key] = reader
        return lambda: self._readers.pop(key, None) and None

    def publish(self, shown: FeedEvent) -> None:
        """Tell every reader."""
        if isinstance(shown, AgentLeft):
            self.is_over = True
        for key, reader in list(self._readers.items()):
            try:
                reader(shown)
            except Exception:
                log.exception("a reader raised and is dropped")
                self._readers.pop(key, None)
