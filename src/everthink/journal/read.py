"""A turn as its journal tells it: what it has said, and in which world each of its calls is.

    segments, calls --read_journal--> Journal --> turn/resume, turn/attempt, recovery/

Everything here was durable before anybody saw it, so what is rebuilt is what readers have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from .. import chunks as ui
from ..context.loaded_documents import without_unloaded
from ..errors import Unreadable
from ..messages import Message, Unset, decode_json, is_settled
from ..session.session import Session
from ..session.tree import Plan
from ..store.port import AgentStore
from . import queries
from .fold import Accumulator
from .queries import CallState
from .segments import unpack

__all__ = [
    "Below",
    "CallRow",
    "Extent",
    "Journal",
    "Numbered",
    "calls_of",
    "extent_of",
    "has_open_answer",
    "is_asking",
    "keep_answer",
    "last_chunk",
    "numbered",
    "read_journal",
    "texts_of",
    "worked_at",
]


class Below(NamedTuple):
    """What the children do that a turn waits for."""

    worked_at: int = 0
    """When one of them, or of those below them, last did something (ms)."""
    is_asking: bool = False
    """True when one of them waits for a person."""


@dataclass(frozen=True, slots=True)
class CallRow:
    """What the ledger says about a call of this turn."""

    call_id: str
    tool: str
    state: CallState
    input: str | None
    """The input a hook put in place of the model's, as JSON."""
    words: str | None = None
    """What it raised, for the model alone."""


@dataclass(slots=True)
class Journal:
    """What a turn has said so far."""

    fold: Accumulator
    segments: list[tuple[int, Sequence[ui.Chunk]]] = field(
        default_factory=list[tuple[int, Sequence[ui.Chunk]]]
    )
    """(when it was written, its chunks) of each commit, in order."""
    next_seq: int = 0
    calls: dict[str, CallRow] = field(default_factory=dict[str, CallRow])
    outcomes: set[str] = field(default_factory=set[str])
    """Calls whose outcome the turn itself has said. Others that are settled were answered from outside."""
    block_ids: set[str] = field(default_factory=set[str])
    """The ids of its blocks of text and thinking: no other block may have one of them."""
    step_is_over: bool = False
    """True when the last step said its end."""

    @property
    def has_settled_results(self) -> bool:
        """True when a tool has run to its end: forgetting that would run it again."""
        return any(is_settled(part) for part in self.fold.parts if "toolCallId" in part)


async def read_journal(
    store: AgentStore, turn_id: str, *, message_id: str, continuation: bool = False
) -> Journal:
    """Read what a turn has said. Answers that came from outside while it streamed are in it.

    Raises `Unreadable` when what is stored is not what we wrote.
    """
    journal = Journal(Accumulator(message_id, continuation=continuation))
    for text, at in await store.fetch(queries.JOURNAL, turn_id):
        chunks = _unpacked(turn_id, text)
        journal.segments.append((at or 0, chunks))
        journal.next_seq += len(chunks)
        for chunk in chunks:
            journal.fold.apply(chunk)
            match chunk:
                case ui.TextStart(id) | ui.ReasoningStart(id):
                    journal.block_ids.add(id)
                case ui.StartStep():
                    journal.step_is_over = False
                case ui.FinishStep():
                    journal.step_is_over = True
                case ui.ToolOutputAvailable(id) | ui.ToolOutputError(id) | ui.ToolOutputDenied(id):
                    journal.outcomes.add(id)
                case ui.ToolInputError(id):
                    journal.outcomes.add(id)
                case _:
                    pass
    journal.calls = {call.call_id: call for call in await calls_of(store, turn_id)}
    for call_id, answer in await store.fetch(queries.ANSWERS, turn_id):
        part = journal.fold.call(call_id)
        if part is not None and not is_settled(part):
            part.update(_answer(turn_id, answer))
    return journal


async def calls_of(store: AgentStore, turn_id: str) -> list[CallRow]:
    """What the ledger says about the calls of a turn, in the order in which they were asked for."""
    return [CallRow(*row) for row in await store.fetch(queries.CALLS, turn_id)]


async def has_open_answer(store: AgentStore, turn_id: str, *, ended_at: int) -> bool:
    """True when a call of a turn has no answer at its end, or one of which its model does not know yet."""
    return bool(await store.fetch(queries.OPEN_ANSWER, turn_id, ended_at, ended_at))


async def worked_at(store: AgentStore) -> int:
    """When an agent was last asked something, said something, or came to an end with it (ms); 0: never."""
    [(at,)] = await store.fetch(queries.WORKED_AT)
    return at or 0


async def is_asking(store: AgentStore) -> bool:
    """True when the latest turn of an agent has asked a person something, and its model knows no answer."""
    return bool(await store.fetch(queries.IS_ASKING))


async def texts_of(store: AgentStore, turn_id: str) -> list[str]:
    """The segments of a turn in order, packed: see `segments.py`."""
    return [text for text, _ in await store.fetch(queries.JOURNAL, turn_id)]


class Numbered(NamedTuple):
    """What a turn has said, as far as it is kept."""

    before: int
    """How many chunks it had said before it began anew: those are not kept."""
    texts: list[str]
    """Its segments in order, packed."""


async def numbered(store: AgentStore, turn_id: str) -> Numbered:
    """The segments of a turn, and from which number of all that it ever said they count."""
    rows = await store.fetch(queries.NUMBERED, turn_id)
    return Numbered(rows[0][0] if rows else 0, [text for _, text in rows if text is not None])


class Extent(NamedTuple):
    """How much a turn has said."""

    before: int = 0
    """Chunks from before it began anew."""
    chunks: int = 0
    length: int = 0
    """The length of what is kept of it, packed."""


async def extent_of(store: AgentStore, turn_id: str) -> Extent:
    """How much a turn has said, without reading it."""
    rows = await store.fetch(queries.EXTENT, turn_id)
    return Extent(*rows[0]) if rows else Extent()


async def last_chunk(store: AgentStore, turn_id: str) -> int:
    """The number of the last chunk of a turn, without reading what it said; -1 when there is none."""
    [(number,)] = await store.fetch(queries.LAST_CHUNK, turn_id)
    return number


def _unpacked(turn_id: str, text: str) -> list[ui.Chunk]:
    try:
        return unpack(text)
    except msgspec.DecodeError as error:
        raise Unreadable(f"What turn {turn_id!r} has said", error) from error


def _answer(turn_id: str, text: str) -> dict[str, Any]:
    try:
        return decode_json(text, dict[str, Any])
    except msgspec.DecodeError as error:
        raise Unreadable(f"An answer to a call of turn {turn_id!r}", error) from error


def keep_answer(
    session: Session, message: Message, parent: str | Unset | None, waiting: Sequence[str]
) -> Plan:
    """A plan that stores a turn's answer: in its place when it is known, else below `parent`.

    A client that sends again while the turn streams posts the answer as far as it has seen it. An answer that
    begins a branch takes along the messages that wait for their turn: they were said to go on from it.
    """
    message = without_unloaded(message)
    if session.is_known(message.id):
        return session.plan_update(message)
    plan = session.plan_append([message], parent)
    if plan.writes and not isinstance(parent, Unset):
        session.plan_take_along(plan, waiting)
    return plan
