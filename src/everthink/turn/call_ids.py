"""One id, one call: no call of an agent goes by an id that another one had.

    model's events --CallIds--> the same events, with ids of our own where a model repeats one

Some model servers number the calls of each answer from zero. Whoever answers a question names its call
by id, and perhaps looks at an older one: an answer must never mean another call than it was shown for.
What is stored is what the model is shown again, so a changed id is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..journal.ledger import was_called
from ..messages import Part
from ..models import port as model
from .host import TurnHost

__all__ = ["CallIds"]


class CallIds:
    """The ids of the calls of one turn."""

    def __init__(self, host: TurnHost) -> None:
        self._host = host
        self._used: set[str] = set()
        # By the model's id: a call whose input it writes, and the last one that it made.
        self._being_made: dict[str, str] = {}
        self._last: dict[str, str] = {}

    def meet(self, parts: Iterable[Part]) -> None:
        """Learn which calls the answer has already."""
        self._used |= {part["toolCallId"] for part in parts if "toolCallId" in part}

    def allow(self, half_made: Iterable[Part]) -> None:
        """These calls were cut off while they were made, and are made again under their ids."""
        self._used -= {part["toolCallId"] for part in half_made}

    async def own(self, event: model.ModelEvent) -> model.ModelEvent:
        """The event, about the call that we know it by."""
        match event:
            case model.ToolInputStart(id):
                self._being_made[id] = ours = await self._given(id)
            case model.ToolInputDelta(id):
                ours = self._being_made.get(id, id)
            case model.ToolCallReady(id):
                ours = self._being_made.pop(id, None) or await self._given(id)
            case model.ProviderToolResult(id):
                ours = self._last.get(id, id)
            case _:
                return event
        return event if ours == id else msgspec.structs.replace(event, id=ours)

    async def _given(self, id: str) -> str:
        ours = id
        if id in self._used or await was_called(self._host.store, id):
            ours = f"call_{self._host.new_id().replace('-', '')}"  # some providers take 40 characters
        self._used.add(ours)
        self._last[id] = ours
        return ours
