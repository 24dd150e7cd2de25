"""What is stored of an agent and is not what we wrote: it is left out, its row stays, and that is told once.

a kept value, a message --> UnreadableRows --> log, ChatStoredUnreadable
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..messages import decode_json
from ..observe.events import ChatStoredUnreadable, EventBody

__all__ = ["KeptValues", "UnreadableRows"]

log = logging.getLogger("everthink.runtime")


class UnreadableRows:
    """Tells of the rows of one agent that cannot be read."""

    __slots__ = ("_emit", "_id", "_told")

    def __init__(self, id: str, emit: Callable[[EventBody], None]) -> None:
        self._id, self._emit = id, emit
        self._told: set[tuple[str, str | None]] | None = None  # hardly any agent needs one

    def tell_message(self, id: str, error: Exception) -> None:
        """A message cannot be read."""
        self.tell("message", id, error)

    def tell(self, what: str, id: str | None, error: Exception) -> None:
        """Something cannot be read. Told once, however often it is met."""
        self._told = self._told or set()
        if (what, id) in self._told:
            return
        self._told.add((what, id))
        named = what if id is None else f"{what} {id}"
        log.warning(
            "%s: the stored %s cannot be read and is left out; its row stays: %s", self._id, named, error
        )
        self._emit(ChatStoredUnreadable(what=what, id=id, error=str(error) or type(error).__name__))


class KeptValues:
    """The small values that an agent has kept, by name, as its start finds them."""

    __slots__ = ("_rows", "_unreadable")

    def __init__(self, rows: Mapping[str, str], unreadable: UnreadableRows) -> None:
        self._rows, self._unreadable = rows, unreadable

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def get(self, name: str, type: Any = Any) -> Any:
        """A value. `None`: there is none, or none that we wrote; then it is told, and its row stays."""
        if name not in self._rows:
            return None
        try:
            return decode_json(self._rows[name], type)
        except (msgspec.DecodeError, TypeError) as error:
            self._unreadable.tell(name, None, error)
            return None
