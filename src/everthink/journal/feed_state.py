"""What somebody must know about an agent's turns who begins to read in the middle.

    Feed --FeedEvent--> FeedState.apply --> what changed for those who read along

Which turn streams and what it has said, which ones are accepted and silent so far, which ended a moment
ago. Plain values: the same events always give the same state, and nothing here knows who reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..empty import NONE
from .feed import (
    ChunksStored,
    Cleared,
    FeedEvent,
    TurnAccepted,
    TurnEnded,
    TurnRewound,
)

if TYPE_CHECKING:
    from ..hooks.values import TurnStatus
    from .turn import Turn

__all__ = ["Change", "Ended", "FeedState", "Over", "Rewound", "Said"]

MAX_OVER = 16
"""So many turns that ended are remembered: an ack comes late by a moment, not by a day."""


@dataclass(frozen=True, slots=True)
class Over:
    """What is remembered of a turn that ended."""

    turn: str
    """Its id."""
    answers: list[str] | None
    continuation: bool
    is_stored: bool
    """True when the conversation has an answer of it."""
    outcome: TurnStatus | None
    """How it ended; `None` when that goes without saying."""


@dataclass(frozen=True, slots=True)
class Said:
    """A turn said more: chunks `first`, `first + 1`, … as JSON text."""

    turn: Turn
    first: int
    bodies: Sequence[str]
    has_begun: bool
    """True when it streams from now on, and another one or none did before."""
    is_anew: bool
    """True when these are its first words for the second time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn is over."""

    event: TurnEnded
    outcome: TurnStatus
    """How, for those who watched: one that was cleared away in mid-stream was stopped."""
    was_active: bool
    """True when it was the one that streamed."""
    was_restarted: bool
    """True when it began anew in the middle of its stream."""


@dataclass(frozen=True, slots=True)
class Rewound:
    """A turn forgot what it had said."""

    turn: Turn
    was_active: bool
    at_once: bool


Change = Said | Ended | Rewound


class FeedState:
    """The turns of one agent, as its feed tells of them."""

    __slots__ = ("_overtaken", "_restarted", "accepted", "active", "bodies", "over")

    def __init__(self, accepted: Iterable[Turn] = ()) -> None:
        self.active: Turn | None = None
        """The turn that streams."""
        self.bodies: list[str] = []
        """Its chunks so far, each as JSON text."""
        self.accepted = {turn.request_id: turn for turn in accepted}
        """Turns that are accepted and have said nothing yet, by request, oldest first."""
        self.over: dict[str, Over] = {}
        """Turns that ended, by request, for those who ask late."""
        # Turns that began anew in the middle of their stream.
        self._restarted: frozenset[str] = NONE
        # Turns that were cut off and overtaken by another one, with their chunks.
        self._overtaken: dict[str, tuple[Turn, list[str]]] = {}

    def apply(self, event: FeedEvent) -> Change | None:
        """Take note of an event. What it changed for those who read along; `None` when that is nothing."""
        match event:
            case ChunksStored():
                return self._said(event)
            case TurnAccepted(turn):
                self.accepted[turn.request_id] = turn
            case TurnEnded():
                return self._ended(event)
            case TurnRewound(turn, at_once):
                return self._rewound(turn, at_once)
            case Cleared():
                self.accepted.clear()
            case _:
                pass  # it is about the conversation, not about turns
        return None

    def catch_up(self, turn: Turn, said: Sequence[str]) -> bool:
        """A turn has said this before anybody listened. True when it streams from now on."""
        has_begun = self._begin(turn)
        self.bodies[: len(said)] = said
        return has_begun

    def _said(self, event: ChunksStored) -> Said:
        turn, first = event.turn, event.first_seq
        has_begun = self._begin(turn)
        # What was said before anybody listened is filled in by `catch_up`, and may reach further.
        self.bodies += [""] * (first - len(self.bodies))
        known = len(self.bodies) - first
        new = event.bodies[known:]
        self.bodies += new
        is_anew = first + known == 0 and turn.id in self._restarted
        return Said(turn, first + known, new, has_begun, is_anew)

    def _begin(self, turn: Turn) -> bool:
        if self.active is turn:
            return False
        if self.active is not None:
            self._overtaken[self.active.id] = (self.active, self.bodies)
        self.active, self.bodies = self._overtaken.pop(turn.id, (turn, []))
        self.accepted.pop(turn.request_id, None)
        return True

    def _ended(self, event: TurnEnded) -> Ended:
        turn = event.turn
        self.accepted.pop(turn.request_id, None)
        self._overtaken.pop(turn.id, None)
        was_active, was_restarted = self.active is turn, turn.id in self._restarted
        outcome = "aborted" if event.status == "skipped" and was_active else event.status
        self._restarted -= {turn.id}
        self._remember(event, outcome)
        if was_active:
            self.active, self.bodies = None, []
            if self._overtaken:
                self.active, self.bodies = self._overtaken.popitem()[1]
        return Ended(event, outcome, was_active, was_restarted)

    def _remember(self, event: TurnEnded, outcome: TurnStatus) -> None:
        turn = event.turn
        self.over[turn.request_id] = Over(
            turn.id,
            turn.answers or None,
            turn.continuation,
            event.stored,
            None if outcome == "completed" else outcome,
        )
        while len(self.over) > MAX_OVER:
            del self.over[next(iter(self.over))]

    def _rewound(self, turn: Turn, at_once: bool) -> Rewound:
        self._overtaken.pop(turn.id, None)
        was_active = self.active is turn
        if was_active:
            self.bodies = []  # its next chunk is another start, under the message's new id
            if at_once:
                self._restarted |= {turn.id}
            else:
                self.active = None
                self.accepted[turn.request_id] = turn
        return Rewound(turn, was_active, at_once)
