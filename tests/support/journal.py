"""Read back what a turn left in the journal."""

from __future__ import annotations

from typing import Any

import msgspec

from everthink import chunks as ui
from everthink.turn import queries

__all__ = ["bodies", "chunks", "turns"]


async def turns(home: Any) -> list[str]:
    """The ids of an agent's turns, in order. `home` is the agent's `_home`."""
    return [row[0] for row in await home.store.fetch(queries.TURNS, home.id)]


async def bodies(home: Any, turn_id: str) -> list[bytes]:
    """The chunks of a turn as they are stored."""
    found: list[bytes] = []
    for (segment,) in await home.store.fetch(queries.SEGMENTS, home.id, turn_id):
        found += [bytes(raw) for raw in msgspec.json.decode(segment, type=list[msgspec.Raw])]
    return found


async def chunks(home: Any, turn_id: str) -> list[ui.Chunk]:
    """The chunks of a turn."""
    return [ui.decode(body) for body in await bodies(home, turn_id)]
