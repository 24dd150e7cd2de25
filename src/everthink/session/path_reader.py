"""Read a path of the tree: first its shape, from the tip back, then what its messages say.

    leaf --walk--> steps (ids and sizes) --read--> messages

The shape is read without contents, so it is known what a path weighs before any of it is in
memory; contents then come in pieces that are bounded in rows and in bytes. A range that an
overlay covers is stepped over: a conversation that was summarised is as quick to open as a new one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from ..messages import Message, read_stored
from ..store.port import AgentStore
from . import queries
from .overlay import Overlay, by_last

__all__ = ["PathReader", "RowStats", "Shape", "Step"]

MAX_ROWS, MAX_BYTES = 200, 4 * 1024 * 1024
"""So much is read by one query."""
AT_ONCE = 64 * 1024
"""After so many characters of contents others have their turn: what is slow to read is so bit by bit."""


class RowStats(NamedTuple):
    """A stored message without what it says."""

    id: str
    role: str
    bytes: int


class Step(NamedTuple):
    """A message on a path, as the walk meets it."""

    id: str
    role: str
    seq: int
    bytes: int
    gap: int
    """The bytes of rows of other branches between this one and the next on the path."""
    at: int
    """When it was stored."""


@dataclass(slots=True)
class Shape:
    """A path without contents, root first. An overlay stands for the messages it covers."""

    steps: list[Step | Overlay] = field(default_factory=list[Step | Overlay])
    leaf: str | None = None
    leaf_seq: int = 0
    total_bytes: int = 0
    """Of all its messages, also of those that were left out."""
    is_truncated: bool = False
    """True when older messages were left out because of the budget."""
    is_partial: bool = False
    """True when rows of the path are not among the steps: left out, or covered."""
    contents: dict[str, str] = field(default_factory=dict[str, str])
    """What some of its rows hold, as far as that was read along."""
    overlays: list[Overlay] = field(default_factory=list[Overlay])
    """Those that end where the walk came past, when they were asked for."""


class PathReader:
    """The rows of one session, for reading."""

    __slots__ = ("_session", "_store", "unreadable")

    def __init__(self, store: AgentStore, session: str) -> None:
        self._store, self._session = store, session
        self.unreadable: Callable[[str, Exception], None] | None = None
        """Told of a row that holds no message, with what stood in the way."""

    async def fetch(self, sql: str, *params: Any) -> list[Sequence[Any]]:
        """Rows of this session."""
        return await self._store.fetch(sql, self._session, *params)

    async def overlays(self) -> list[Overlay]:
        """The compactions whose ends exist, oldest first."""
        return [queries.overlay_of(row) for row in await self.fetch(queries.COMPACTIONS)]

    async def overlay(self, id: str) -> Overlay | None:
        """A compaction by its id, if its ends exist."""
        rows = await self.fetch(queries.COMPACTION, id)
        return queries.overlay_of(rows[0]) if rows else None

    async def last_overlay(self) -> int:
        """The number of the newest compaction; 0 when there was none."""
        return (await self.fetch(queries.LAST_COMPACTION))[0][0]

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that are stored."""
        found: set[str] = set()
        for start in range(0, len(ids), queries.KNOWN_AT_ONCE):
            asked = list(ids[start : start + queries.KNOWN_AT_ONCE])
            asked += [asked[-1]] * (queries.KNOWN_AT_ONCE - len(asked))
            found.update(row[0] for row in await self.fetch(queries.KNOWN, *asked))
        return found

    async def walk(
        self,
        leaf: str | None = None,
        *,
        covers: bool = False,
        contents: bool = False,
        max_bytes: float = math.inf,
        min_recent: int = 1,
    ) -> Shape:
        """The path to `leaf`: the newest message when omitted, nothing when there is none of that id.

        With `covers`, what an overlay covers is stepped over. With `contents`, what small rows say is
        read along. With `max_bytes` the older messages are left out, but never the last `min_recent`.
        """
        sql, page = queries.BEFORE, queries.PAGE
        if contents:
            sql, page = queries.BEFORE_WITH_CONTENTS, queries.SMALL_PAGE
        shape = Shape(leaf=leaf)
        ends: dict[str, Overlay] = {}
        are_there = None if covers else False
        before = await self._after(leaf)
        wanted, depth, gap = leaf, 0, 0
        is_open = True
        while is_open and before:
            if shape.is_truncated:
                sql, page = queries.BEFORE, queries.PAGE
            rows = await self.fetch(sql, before)
            is_open = len(rows) == page
            if rows and are_there is None:
                are_there = await self.last_overlay() > 0
            if rows and are_there:
                # Only those that end here: a long conversation has many that a later one covers.
                found = await self.fetch(queries.COMPACTIONS_ENDING, rows[-1][3], rows[0][3])
                ends = by_last(map(queries.overlay_of, found))
                shape.overlays += ends.values()
            for id, parent, role, seq, size, at, *said in cast("list[tuple[Any, ...]]", rows):
                before = seq
                if wanted is None:
                    shape.leaf = wanted = id
                if id != wanted:
                    gap += size
                    continue
                shape.leaf_seq = shape.leaf_seq or seq
                overlay = ends.get(id)
                if overlay is not None and overlay.first <= seq:
                    step: Step | Overlay = overlay
                    wanted, size, shape.is_partial = overlay.above, len(overlay.summary), True
                else:
                    step = Step(id, role, seq, size, gap, at)
                    wanted = parent
                gap = 0
                shape.total_bytes += size
                depth += 1
                if shape.total_bytes > max_bytes and depth > min_recent:
                    shape.is_truncated = shape.is_partial = True
                if not shape.is_truncated:
                    shape.steps.append(step)
                    if said and said[0] is not None and overlay is not step:
                        shape.contents[id] = said[0]
                if wanted is None or depth > queries.DEEPEST:
                    is_open = False
                    break
                if isinstance(step, Overlay):
                    before = step.first
                    is_open = True
                    break
        shape.steps.reverse()
        return shape

    async def _after(self, leaf: str | None) -> int:
        """A sequence number that a walk to `leaf` may begin below; 0: there is no such message."""
        if leaf is None:
            return _LAST
        rows = await self.fetch(queries.PLACE, leaf)
        return rows[0][0] + 1 if rows else 0

    async def read(self, shape: Shape) -> list[Message]:
        """What the steps of a path say. Rows that hold no message are left out."""
        contents = shape.contents
        rest = [step for step in shape.steps if isinstance(step, Step) and step.id not in contents]
        for first, last in _pieces(rest):
            contents |= {row[0]: row[2] for row in await self.fetch(queries.BETWEEN, first, last)}
        said: list[Message | None] = []
        at_once = 0
        for step in shape.steps:
            if isinstance(step, Overlay):
                said.append(step.message())
                continue
            content = contents.get(step.id, "")
            at_once += len(content)
            if at_once > AT_ONCE:
                await asyncio.sleep(0)
                at_once = len(content)
            said.append(self.parsed(step.id, step.role, content, step.at))
        return [message for message in said if message is not None]

    def parsed(self, id: str, role: str, content: str, at: int) -> Message | None:
        """The message of a row. `None` for one that holds none, which is told: the others stay usable."""
        try:
            return read_stored(id, role, content).stored(at)
        except Exception as error:  # noqa: BLE001 - told
            if self.unreadable is not None:
                self.unreadable(id, error)
            return None


_LAST = 2**62


def _pieces(steps: Iterable[Step]) -> Iterable[tuple[int, int]]:
    """Ranges of sequence numbers, each small enough to be read at once."""
    first = last = rows = size = 0
    for step in steps:
        if rows and (step.seq - first >= MAX_ROWS or size + step.bytes > MAX_BYTES):
            yield first, last
            rows = 0
        if not rows:
            first, size = step.seq, 0
        last = step.seq
        rows += 1
        size += step.bytes + step.gap  # what lies between two steps is read along
    if rows:
        yield first, last
