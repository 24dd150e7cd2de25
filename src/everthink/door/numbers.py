"""The numbers of an agent's turns: each is greater than all before it, and no clock is asked.

    Door --take--> TurnNumbers --a number, now and then a mark--> the commit that accepts a turn

The rows know the greatest number, but to find it is to go through all of them. So an agent with many turns
keeps a mark among its small values, which its start reads anyway: no number above it was given. It is stored
in the same commit as the first turn whose number is above the mark before it, and is a span ahead of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..journal.turn_rows import last_number
from ..store.port import AgentStore, Statement

__all__ = ["MARK", "TurnNumbers"]

MARK = "turnsUpTo"
SPAN = 256
"""So many turns share a mark. An agent with fewer has none: its rows are quickly looked through."""


class TurnNumbers:
    """Counts the turns of one agent."""

    __slots__ = ("_last", "_mark", "_save_value")

    def __init__(self, save_value: Callable[[str, Any], Statement]) -> None:
        self._save_value = save_value
        self._last: int | None = None
        self._mark = SPAN  # what is durable

    async def load(self, store: AgentStore, mark: int | None) -> int:
        """Learn which numbers were given. Returns one that no turn of an earlier process is above."""
        if mark is None:
            self._last = await last_number(store)
        else:
            self._last = self._mark = mark
        return self._last

    def take(self) -> tuple[int, list[Statement]]:
        """The next number, and what must be stored together with its turn."""
        assert self._last is not None, "turns are numbered once the door is loaded"
        self._last += 1
        if self._last <= self._mark:
            return self._last, []
        return self._last, [self._save_value(MARK, self._last + SPAN - 1)]

    def stored(self, number: int) -> None:
        """The turn with this number is durable, and so is the mark that came with it."""
        if number > self._mark:
            self._mark = number + SPAN - 1
