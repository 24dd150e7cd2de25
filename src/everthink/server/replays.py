"""Turns told after the fact: their chunks as frames, and what is said to whoever comes late.

    journal --chunks--> tell_failure, tell_end --frames--> one connection

A turn that ended left its answer in the conversation, which every connection has got since. So the chunks
of one are told again only where the conversation does not hold what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..chunks import NOTHING_NEW
from ..chunks import encode as encode_chunk
from ..hooks.values import TurnStatus
from ..journal import queries
from ..journal.feed import TurnEnded
from ..journal.segments import readable
from ..runtime.actor import Actor
from ..wire import frames as wire
from ..wire.codec import encode
from .connections import Connection, Parcel

__all__ = [
    "Over",
    "chunk_frames",
    "replayed_frames",
    "stored_bodies",
    "tell_end",
    "tell_failure",
]


class _Call(msgspec.Struct, rename="camel"):
    """What a chunk about a call says of it."""

    type: str
    tool_call_id: str = ""


class Over:
    """What is remembered of a turn that ended."""

    __slots__ = ("answers", "continuation", "is_stored", "outcome", "turn")

    def __init__(self, ended: TurnEnded, outcome: TurnStatus) -> None:
        self.turn, self.answers = ended.turn.id, ended.turn.answers or None
        self.continuation, self.is_stored = ended.turn.continuation, ended.stored
        # A normal end goes without saying.
        self.outcome: TurnStatus | None = None if outcome == "completed" else outcome


def chunk_frames(id: str, bodies: Sequence[str], first: int = 0, *, continuation: bool) -> Parcel:
    """Chunks `first`, `first + 1`, … as frames: once, whoever reads along."""
    return _frames(id, enumerate(bodies, first), continuation=continuation, replay=False)


def replayed_frames(id: str, bodies: Sequence[str], *, continuation: bool, is_late: bool) -> Parcel:
    """All chunks so far as frames for one connection; `is_late`: it has read the conversation since.

    What a continuation did to calls of the message before it is in that message then, and a window that is
    told of it in a new answer does not know the call. In its place stands a chunk that says nothing, so that
    none is missing.
    """
    left_out = _elsewhere(bodies) if continuation and is_late else set[int]()
    told = ((seq, NOTHING_NEW if seq in left_out else body) for seq, body in enumerate(bodies))
    return _frames(id, told, continuation=continuation, replay=True)


def _frames(id: str, bodies: Iterable[tuple[int, str]], *, continuation: bool, replay: bool) -> Parcel:
    return Parcel(
        [
            encode(wire.ResponseFrame(id, body, False, seq=seq, continuation=continuation, replay=replay))
            for seq, body in bodies
        ]
    )


def _elsewhere(bodies: Sequence[str]) -> set[int]:
    """The places of chunks that settle a call which this stream has not made."""
    made, found = set[str](), set[int]()
    for seq, body in enumerate(bodies):
        if not body.startswith('{"type":"tool-'):
            continue
        call = msgspec.json.decode(body, type=_Call)
        if call.type.startswith("tool-input-"):
            made.add(call.tool_call_id)
        elif call.tool_call_id not in made:
            found.add(seq)
    return found


async def stored_bodies(actor: Actor, turn: str) -> list[str]:
    """The chunks of a turn as far as they are kept, each as JSON text."""
    rows = await actor.store.fetch(queries.SEGMENTS, actor.id, turn)
    return [encode_chunk(chunk) for chunk in readable(row[0] for row in rows)]


async def tell_failure(actor: Actor, connection: Connection, failure: dict[str, Any]) -> None:
    """The chunks of the turn that failed last, then its error.

    Those of a continuation are in the conversation: see `tell_end`.
    """
    id, continues = failure["id"], failure.get("continuation", False)
    bodies = [] if continues else await stored_bodies(actor, failure["turn"])
    connection.send_all(replayed_frames(id, bodies, continuation=continues, is_late=True))
    connection.send(
        wire.ResponseFrame(
            id,
            failure["error"],
            True,
            error=True,
            continuation=continues,
            message_ids=failure.get("messageIds") or None,
        )
    )


async def tell_end(actor: Actor, connection: Connection, id: str, over: Over | None) -> None:
    """A turn is over. Its chunks come first if the conversation does not hold what they say.

    Otherwise a continuation's would be shown twice: a window adds them to the message before.
    """
    if over is None:
        connection.send(wire.ResponseFrame(id, "", True, replay=True))
        return
    bodies = [] if over.is_stored else await stored_bodies(actor, over.turn)
    connection.send_all(replayed_frames(id, bodies, continuation=over.continuation, is_late=True))
    connection.send(
        wire.ResponseFrame(
            id,
            "",
            True,
            replay=True,
            continuation=bool(bodies) and over.continuation,
            outcome=over.outcome,
            message_ids=over.answers,
        )
    )
