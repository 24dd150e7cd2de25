"""What an agent keeps of its last turn when that failed: a chat window that comes later is told.

turn/ending, recovery/ --note--> a statement, for the commit that ends the turn      the next turn --forget-->
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..journal.turn import Turn
from ..store.port import Statement

__all__ = ["Failure", "LastFailure"]

_KEY = "lastFailure"


class Failure(msgspec.Struct, frozen=True, rename={"request_id": "id", "message_ids": "messageIds"}):
    """A turn that failed."""

    request_id: str
    turn: str
    error: str
    message_ids: list[str] = []
    """The messages that it was to answer."""
    continuation: bool = False


class LastFailure:
    """The failure of the last turn; `value` is `None` when it did not fail."""

    __slots__ = ("_save_value", "value")

    def __init__(self, save_value: Callable[[str, Any], Statement]) -> None:
        self._save_value = save_value
        self.value: Failure | None = None

    def note(self, failure: Failure) -> Statement:
        """Keep a failure. The statement is for the commit that ends its turn."""
        self.value = failure
        return self._save_value(_KEY, msgspec.to_builtins(failure))

    def note_turn(self, turn: Turn, text: str) -> Statement:
        """Keep that a turn failed, in the words that people read."""
        return self.note(Failure(turn.request_id, turn.id, text, list(turn.answers), turn.continuation))

    def forget(self) -> list[Statement]:
        """Forget it: something else was asked since. The statements are for that commit."""
        if self.value is None:
            return []
        self.value = None
        return [self._save_value(_KEY, None)]
