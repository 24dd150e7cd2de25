"""Whoever comes late: what is offered to them, and turns told after the fact, their chunks as frames.

    probe, ack --> Resuming --frames--> one connection        what to say is decided in wire/resume.py

Readers who join in the middle are held out of live chunks until they ack; then they get all chunks from the
start and go on live, without a gap: there is no await in between.

A turn that ended left its answer in the conversation, which every connection has got since. So the chunks
of one are told again only where the conversation does not hold what they say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import msgspec

from ..chunks import NOTHING_NEW
from ..chunks import encode as encode_chunk
from ..journal import turn_rows
from ..journal.feed_state import FeedState, Over
from ..journal.read import texts_of
from ..journal.segments import readable
from ..runtime.chat import Chat
from ..turn.host import TurnHost
from ..turn.last_failure import Failure
from ..wire import frames as wire
from ..wire.codec import encode
from ..wire.resume import Ended, Failed, Ignore, Nothing, Offer, Replay, View, Wait, answer_ack, answer_probe
from .audience import ChatAudience
from .connections import Connection, Parcel

__all__ = [
    "Resuming",
    "chunk_frames",
    "replayed_frames",
    "stored_bodies",
    "tell_end",
    "tell_failure",
    "without_elsewhere",
]

_OF_CALL = '{"type":"tool-'
"""How the text of a chunk about a call begins."""


class _Call(msgspec.Struct, rename="camel"):
    """What a chunk about a call says of it."""

    type: str
    tool_call_id: str = ""


class Resuming:
    """What those are told who ask one agent for its stream."""

    def __init__(self, chat: Chat, audience: ChatAudience, state: FeedState) -> None:
        self._chat, self._host, self._audience, self._state = chat, chat.host, audience, state

    def probed(self, connection: Connection, probe: str | None) -> None:
        """A connection asks what there is to resume."""
        view = self._view()
        if connection in self._audience.held:
            # It was offered the stream when it came, and perhaps before anybody in it listened.
            view = dataclasses.replace(view, active_owner=None)
        match answer_probe(view, connection.key):
            case Offer(id, holds):
                self._audience.offer(connection, id, probe, holds=holds)
            case Wait(id):
                self._audience.park(connection, id, probe)
            case Nothing(reason):
                connection.send(wire.ResumeNone("idle" if reason == "idle" else "continuation-owned", probe))

    async def acked(self, connection: Connection, id: str) -> None:
        """A connection takes a stream that it was offered."""
        answer, failure = answer_ack(self._view(), id), self._host.last_failure.value
        # What is not known costs nothing to say; the rest is told once for each offer.
        is_long = not isinstance(answer, Ignore) and (not isinstance(answer, Ended) or id in self._state.over)
        if is_long and not connection.offers.take(id, self._host.limits.replays):
            self._audience.held -= {connection}  # it goes on live from here
            return
        match answer:
            case Replay():
                self._replay(connection)
            case Failed():
                if failure is not None:
                    await tell_failure(self._host, connection, failure)
            case Ended():
                over = self._state.over.get(id)
                if over is None and connection.offers.take(id, self._host.limits.replays):
                    over = await _found_over(self._host, id)
                await tell_end(self._host, connection, id, over)
            case Ignore():
                pass

    def _view(self) -> View:
        active, armed = self._state.active, self._chat.continuations.pending
        accepted = self._state.accepted.values()
        waiting = next((t for t in accepted if t.trigger == "auto-continuation"), None)
        newest = next((t for t in reversed(accepted) if t is not waiting), None)
        owner = active.origin if active and active.trigger == "auto-continuation" else None
        failure = self._host.last_failure.value
        pending = (armed.request_id, armed.owner) if armed else None
        if waiting is not None:
            pending = (waiting.request_id, waiting.origin)
        return View(
            active=active.request_id if active else None,
            active_owner=owner if self._audience.has(owner) else None,
            continuation=pending[0] if pending else None,
            continuation_owner=pending[1] if pending and self._audience.has(pending[1]) else None,
            failed=failure.request_id if failure else None,
            accepted=newest.request_id if newest else None,
        )

    def _replay(self, connection: Connection) -> None:
        turn = self._state.active
        assert turn is not None
        id, continues = turn.request_id, turn.continuation
        is_late = connection not in self._audience.expecting or connection in self._audience.going_on_apart
        said = self._state.bodies
        connection.send_all(replayed_frames(id, said, continuation=continues, is_late=is_late))
        connection.send(
            wire.ResponseFrame(id, "", False, replay=True, replay_complete=True, continuation=continues)
        )
        self._audience.held -= {connection}


# --- chunks as frames


def chunk_frames(id: str, bodies: Sequence[str], first: int = 0, *, continuation: bool) -> Parcel:
    """Chunks `first`, `first + 1`, … as frames: once, whoever reads along."""
    return _frames(id, enumerate(bodies, first), continuation=continuation, replay=False)


def replayed_frames(id: str, bodies: Sequence[str], *, continuation: bool, is_late: bool) -> Parcel:
    """All chunks so far as frames for one connection; `is_late`: it has read the conversation since.

    What a continuation did to calls of the message before it is in that message then, and a window that is
    told of it in a new answer does not know the call. In its place stands a chunk that says nothing, so that
    none is missing.
    """
    told = without_elsewhere(bodies) if continuation and is_late else bodies
    return _frames(id, enumerate(told), continuation=continuation, replay=True)


def without_elsewhere(bodies: Sequence[str], first: int = 0) -> list[str]:
    """Chunks from `first` on, nothing in place of those that settle a call which this stream has not made."""
    new = bodies[first:]
    if not any(body.startswith(_OF_CALL) for body in new):
        return list(new)
    left_out = _elsewhere(bodies)
    return [NOTHING_NEW if seq in left_out else body for seq, body in enumerate(new, first)]


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
        if not body.startswith(_OF_CALL):
            continue
        call = msgspec.json.decode(body, type=_Call)
        if call.type.startswith("tool-input-"):
            made.add(call.tool_call_id)
        elif call.tool_call_id not in made:
            found.add(seq)
    return found


# --- turns that are over


async def stored_bodies(host: TurnHost, turn: str) -> list[str]:
    """The chunks of a turn as far as they are kept, each as JSON text."""
    return [encode_chunk(chunk) for chunk in readable(await texts_of(host.store, turn))]


async def tell_failure(host: TurnHost, connection: Connection, failure: Failure) -> None:
    """The chunks of the turn that failed last, then its error.

    Those of a continuation are in the conversation: see `tell_end`.
    """
    id, continues = failure.request_id, failure.continuation
    bodies = [] if continues else await stored_bodies(host, failure.turn)
    connection.send_all(replayed_frames(id, bodies, continuation=continues, is_late=True))
    connection.send(
        wire.ResponseFrame(
            id,
            failure.error,
            True,
            error=True,
            continuation=continues,
            message_ids=failure.message_ids or None,
        )
    )


async def _found_over(host: TurnHost, id: str) -> Over | None:
    """How a turn ended that nobody here remembers, as its row says: it was in an earlier process."""
    row = await turn_rows.of_request(host.store, id)
    if row is None or row.status not in ("aborted", "error", "skipped"):
        return None
    return Over(row.id, None, row.continuation, True, row.status)


async def tell_end(host: TurnHost, connection: Connection, id: str, over: Over | None) -> None:
    """A turn is over. Its chunks come first if the conversation does not hold what they say.

    Otherwise a continuation's would be shown twice: a window adds them to the message before.
    """
    if over is None:
        connection.send(wire.ResponseFrame(id, "", True, replay=True))
        return
    bodies = [] if over.is_stored else await stored_bodies(host, over.turn)
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
