"""A request from a chat window: see what is new, decide about overlap, admit.

    ChatRequest --> arrivals: what is taken --> overlap policy --> admission

The browser sends its whole list each time; our own history counts. Both the client's tools and the body
are captured here, so a later request cannot change a queued turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..errors import CommitRefused, InvalidMessage, InvalidTurn
from ..identity import mark_of
from ..journal.turn import Turn
from ..limits import Limits
from ..messages import Message, encode_json
from ..observe.events import ChatClientDropped
from ..session.tree import Plan
from ..store.port import Statement
from ..tools.collect import client_tools_from
from ..tools.tool import Tool
from . import arrivals, trusting
from .admission import Admitted, Door, House
from .arrivals import Arrival, trailing
from .concurrency import (
    LONGEST_WAIT,
    Drop,
    Enqueue,
    Overlaps,
    Supersede,
    decide,
    refuse_more_than_a_share,
    refuse_when_full,
)
from .spoken import checked_id

__all__ = ["ChatRequest", "ChatRoom", "Dropped", "accept_request", "bounded_tools", "trailing"]


@dataclass(slots=True)
class ChatRequest:
    """What a chat window asks for. Its `client_tools` are for this turn and what continues it."""

    request_id: str
    messages: list[Message]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    client_tools: list[dict[str, Any]] | None = None
    body: dict[str, Any] | None = None
    channel: str | None = None
    metadata: dict[str, Any] | None = field(default=None)
    origin: str | None = None
    """The connection it came by."""
    is_readonly: bool = False
    """True when that connection may not change the state."""
    identity: Any = None
    """Who asks, as JSON, when the application knows."""
    may_clear: bool = True
    """False when they may not take what others said out of everybody's sight."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The request was not taken (`message_concurrency = "drop"`); nothing was stored."""

    request_id: str


class ChatRoom(House, Protocol):
    """A house where people chat."""

    door: Door
    overlaps: Overlaps
    open_tools: list[dict[str, Any]]
    last_body: dict[str, Any] | None
    tools_by: str | None
    """The mark of the person whose window declared `open_tools`."""
    body_by: str | None
    """The mark of the person who sent `last_body`."""

    @property
    def message_concurrency(self) -> Any:
        """The agent's policy for overlapping messages."""
        ...

    @property
    def trusts_clients(self) -> bool:
        """True when the agent believes the transcript of a window."""
        ...


async def accept_request(room: ChatRoom, request: ChatRequest) -> Admitted | Dropped:
    """Take a request from a chat window. Its messages and its row are durable when this returns."""
    _check(room, request)
    regenerates = request.trigger == "regenerate-message" and bool(request.messages)
    overlaps = room.queue.count() + room.overlaps.pending > 0
    decision = Enqueue() if regenerates else decide(room.message_concurrency, overlaps=overlaps)
    if isinstance(decision, Drop):
        return Dropped(request.request_id)
    refuse_when_full(room.queue.waiting + room.overlaps.pending, room.limits)
    if request.identity is not None:
        refuse_more_than_a_share(_waiting_of(room, request.identity), room.limits)
    release = room.overlaps.take()
    room.door.entering.add(request.request_id)
    try:
        generation = room.queue.generation
        tools = bounded_tools(request.client_tools, room.limits)  # may refuse, which then supersedes nobody
        take = trusting.take if room.trusts_clients else arrivals.take
        arrival = await take(room, request, regenerates=regenerates)
        number = room.overlaps.number() if isinstance(decision, Supersede) else None
        turn = room.door.new_turn(
            "ws-chat",
            request_id=request.request_id,
            body=request.body,
            client_tools=tools,
            channel=request.channel,
            metadata=request.metadata,
            generation=generation,
        )
        turn.origin, turn.answers = request.origin, trailing(request.messages)[-room.limits.new_messages :]
        turn.is_readonly, turn.identity = request.is_readonly, request.identity
        turn.tools_by = mark_of(request.identity) if tools else None
        if isinstance(decision, Supersede):
            turn.gate = _gate(room, turn, decision, number, room.clock.monotonic())

        def plan() -> Plan:
            planned = arrival.plan()
            turn.message_ids, turn.parent = arrival.ids, arrival.parent
            return planned

        turn.brings = lambda: brought(room, turn, request.client_tools)
        before = room.open_tools, room.last_body, room.tools_by, room.body_by
        try:
            admitted = await room.door.admit(turn, plan=plan, more=arrival.statements)
        except CommitRefused as error:
            room.open_tools, room.last_body, room.tools_by, room.body_by = before
            raise InvalidMessage("message.id", "is that of another message") from error
        _tell_dropped(room, turn, arrival)
        return admitted
    finally:
        room.door.entering.discard(request.request_id)
        release()


def _waiting_of(room: ChatRoom, identity: Any) -> int:
    return sum(not turn.is_started and turn.identity == identity for turn in room.door.turns)


def _tell_dropped(room: ChatRoom, turn: Turn, arrival: Arrival) -> None:
    if arrival.dropped_messages or arrival.dropped_parts:
        room.emit(
            ChatClientDropped(
                request_id=turn.request_id,
                messages=arrival.dropped_messages,
                parts=arrival.dropped_parts,
                identity=turn.identity,
            )
        )


def _check(room: ChatRoom, request: ChatRequest) -> None:
    checked_id(request.request_id, room.limits, "the id of the request")
    ids = {turn.request_id for turn in room.door.turns}
    if request.request_id in ids | room.door.entering:
        raise InvalidTurn("A turn with the id of this request runs or waits already.", kept="It goes on.")
    size = len(encode_json(request.body)) if request.body else 0
    if size > room.limits.body_bytes:
        raise InvalidTurn(
            f"The request has {size} bytes of custom fields, more than {room.limits.body_bytes}.",
            kept="Nothing was stored.",
        )


def bounded_tools(schemas: list[dict[str, Any]] | None, limits: Limits) -> dict[str, Tool]:
    """The tools that a client declares, within bounds. Raises what it is told."""
    if not schemas:
        return {}
    if len(schemas) > limits.client_tools:
        raise InvalidTurn(f"The window offers {len(schemas)} tools, more than {limits.client_tools}.")
    size = len(encode_json(schemas))
    if size > limits.client_tools_bytes:
        raise InvalidTurn(f"The window's tools have {size} bytes, more than {limits.client_tools_bytes}.")
    return client_tools_from(schemas)


def brought(room: ChatRoom, turn: Turn, schemas: list[dict[str, Any]] | None) -> list[Statement]:
    """A turn of a window starts: what continues it has its tools and its fields. What keeps them."""
    by = mark_of(turn.identity) if turn.body else None
    kept: list[tuple[str, Any, Any]] = [
        ("openTools", room.open_tools or None, schemas or None),
        ("openToolsBy", room.tools_by, turn.tools_by),
        ("lastBody", room.last_body, turn.body or None),
        ("lastBodyBy", room.body_by, by),
    ]
    room.open_tools, room.tools_by = schemas or [], turn.tools_by
    room.last_body, room.body_by = turn.body or None, by
    return [room.save_value(name, value) for name, before, value in kept if value != before]


def _gate(room: ChatRoom, turn: Turn, decision: Supersede, number: int | None, decided: float) -> Any:
    submits = room.overlaps
    submits.since = decided if submits.since is None else submits.since

    async def gate() -> bool:
        if submits.is_superseded(number):
            return False
        now, since = room.clock.monotonic(), decided if submits.since is None else submits.since
        remaining, most = decided + decision.quiet - now, since + LONGEST_WAIT * decision.quiet - now
        if decision.quiet and min(remaining, most) > 0:
            await submits.quiet(lambda: room.clock.sleep(min(remaining, most)))
        if room.queue.generation != turn.generation:
            return False
        if submits.is_superseded(number) and (not decision.quiet or remaining < most):
            return False
        submits.since = (
            None  # what was said until now is answered; the next wait begins with the next message
        )
        return True

    return gate
