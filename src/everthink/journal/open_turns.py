"""The turns of one agent that run or wait, and what of the conversation waits with them.

    door/admission --add, remove--> OpenTurns --> turn/, door/, recovery/, server/: who runs, who waits

Only the door adds and removes.
"""

from __future__ import annotations

from collections.abc import Iterator

from .fold import Accumulator
from .turn import Turn

__all__ = ["OpenTurns"]


class OpenTurns:
    """The turns that run or wait, oldest first."""

    __slots__ = ("_turns", "arriving")

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self.arriving: list[Turn] = []
        """Turns whose row is being written: what they were asked may be in the conversation already."""

    def __iter__(self) -> Iterator[Turn]:
        return iter(sorted(self._turns.values(), key=lambda turn: turn.seq))

    def __contains__(self, turn: object) -> bool:
        return isinstance(turn, Turn) and self._turns.get(turn.id) is turn

    def __len__(self) -> int:
        return len(self._turns)

    def of(self, id: str) -> Turn | None:
        """The turn of that id, if it runs or waits."""
        return self._turns.get(id)

    def add(self, turn: Turn) -> None:
        """A turn waits for its time from now on."""
        self._turns[turn.id] = turn

    def remove(self, turn: Turn) -> None:
        """A turn is over."""
        if turn in self:
            del self._turns[turn.id]

    @property
    def streaming(self) -> Turn | None:
        """The turn that says something now, if any."""
        return next((turn for turn in self._turns.values() if turn.fold is not None), None)

    @property
    def answer(self) -> Accumulator | None:
        """What it has said so far."""
        turn = self.streaming
        return None if turn is None else turn.fold

    def waiting_messages(self, turn: Turn) -> list[str]:
        """The messages that are stored, or about to be, and wait for turns which come after this one."""
        later = [other for other in self if other.seq > turn.seq and not other.is_started]
        return [id for other in (*later, *self.arriving) for id in other.message_ids]
