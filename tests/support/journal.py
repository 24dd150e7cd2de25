"""Read back what a turn left in the journal."""

from __future__ import annotations

from typing import Any

from everthink import chunks as ui
from everthink.journal import queries
from everthink.journal.segments import unpack

__all__ = ["chunks", "turns"]


async def turns(home: Any) -> list[str]:
    """The ids of an agent's turns, in order. `home` is the agent's `_home`."""
    return [row[0] for row in await home.store.fetch(queries.TURNS, home.id)]


async def chunks(home: Any, turn_id: str) -> list[ui.Chunk]:
    """The chunks of a turn as they are stored."""
    rows = await home.store.fetch(queries.SEGMENTS, home.id, turn_id)
    return [chunk for (segment,) in rows for chunk in unpack(segment)]
