"""What a window that comes late is told of the runs of an agent: the latest, and what was said in them.

    child_runs, the journals of the children --> replayed --RunTold--> showing.py --> a window

Bounded in runs and in bytes, whatever the children have said, and nothing is read that is not told. The
newest runs are told whole as long as there is room; one that does not fit is told by its start and its end
alone, and the number of its end says how much there was between them.
"""

from __future__ import annotations

from ..journal.feed import RunTold
from ..journal.read import extent_of
from ..messages import decode_json
from ..store.port import AgentStore
from . import queries
from .following import pieces_of, turns_of
from .progress import chunk_of
from .queries import RunRow
from .telling import ended_of, piece, started, terminal

__all__ = ["replayed"]

RUNS = 50
"""So many runs a window is told of when it connects."""
BYTES = 4 * 1024 * 1024
"""So much of what was said in them, about, as it goes over the wire."""
FRAME = 256
"""Bytes of a piece beside what it says."""


async def replayed(store: AgentStore) -> list[RunTold]:
    """The latest runs of an agent, the oldest of them first."""
    found: list[list[RunTold]] = []
    left = BYTES
    for row in reversed(await queries.newest(store, RUNS)):
        child = AgentStore(store.database, row.child)
        turns = [turn.id for turn in await turns_of(child, row.run_id)]
        extents = [await extent_of(child, turn) for turn in turns]
        weight = sum(extent.length + FRAME * extent.chunks for extent in extents)
        last = sum(extent.before + extent.chunks for extent in extents)
        told = [_told(row, 0, started(row))]
        if weight <= left:
            left, last = left - weight, 0
            for turn in turns:
                before, bodies = await pieces_of(child, turn)
                last += before
                told += [_told(row, last + at, piece(row.run_id, body)) for at, body in enumerate(bodies, 1)]
                last += len(bodies)
        found.append(told + _rest(row, last))
    return [told for run in reversed(found) for told in run]


def _rest(row: RunRow, last: int) -> list[RunTold]:
    """How a run ended, or how far it is."""
    if row.ended_at is not None:
        return [_told(row, last + 1, terminal(row.run_id, ended_of(row)))]
    if row.progress is None:
        return []
    report = piece(row.run_id, chunk_of(decode_json(row.progress)))
    return [RunTold(row.run_id, row.call_id, last, report, is_passing=True)]


def _told(row: RunRow, number: int, event: dict[str, object]) -> RunTold:
    return RunTold(row.run_id, row.call_id, number, event)
