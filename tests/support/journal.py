"""Read back what a turn left in the journal."""

from __future__ import annotations

from typing import Any

from everthink import chunks as ui
from everthink.journal.read import texts_of
from everthink.journal.segments import unpack
from everthink.journal.turn_rows import all_turns

__all__ = ["chunks", "turns"]


async def turns(home: Any) -> list[str]:
    """The ids of an agent's turns, in order. `home` is the agent's `_home`."""
    return [turn.id for turn in await all_turns(home.store)]


async def chunks(home: Any, turn_id: str) -> list[ui.Chunk]:
    """The chunks of a turn as they are stored."""
    return [chunk for text in await texts_of(home.store, turn_id) for chunk in unpack(text)]
