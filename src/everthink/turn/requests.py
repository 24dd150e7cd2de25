"""A request from a chat window: reconcile, decide about overlap, admit.

    ChatRequest --> reconcile with history --> overlap policy --> admission

The browser sends its whole list each time; the server's own history wins. Both the client's
tools and the body are captured here, so a later request cannot change a queued turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ..messages import UNSET, Message
from ..session.overlay import is_overlay
from ..session.reconcile import adopt_by_call, reconcile, strip_reserved
from ..session.tree import Plan
from ..store.port import Statement
from ..tools.collect import client_tools_from
from ..tools.tool import Tool
from .admission import Admitted, Door, House
from .overlap import Drop, Enqueue, Submits, Supersede, decide
from .perform import with_stamps
from .turn import Turn

__all__ = ["ChatRequest", "ChatRoom", "Dropped", "accept_request", "trailing"]


@dataclass(slots=True)
class ChatRequest:
    """What a chat window asks for. `client_tools`: `None` keeps the known ones, `[]` clears them."""

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


@dataclass(frozen=True, slots=True)
class Dropped:
    """The request was not taken (`message_concurrency = "drop"`); nothing was stored."""

    request_id: str


class ChatRoom(House, Protocol):
    """A house where people chat."""

    door: Door
    submits: Submits
    client_tool_schemas: list[dict[str, Any]]
    last_body: dict[str, Any] | None

    @property
    def message_concurrency(self) -> Any:
        """The agent's policy for overlapping messages."""
        ...

    def client_tools(self) -> dict[str, Tool]:
        """The tools the browser declared last."""
        ...


async def accept_request(room: ChatRoom, request: ChatRequest) -> Admitted | Dropped:
    """Take a request from a chat window. Its messages and its row are durable when this returns."""
    regenerates = request.trigger == "regenerate-message" and bool(request.messages)
    overlaps = room.queue.count() + room.submits.pending > 0
    decision = Enqueue() if regenerates else decide(room.message_concurrency, overlaps=overlaps)
    if isinstance(decision, Drop):
        return Dropped(request.request_id)
    release = room.submits.take()
    try:
        generation = room.queue.generation
        kept = _remember(room, request)  # may refuse the request, which then supersedes nobody
        number = room.submits.number() if isinstance(decision, Supersede) else None
        elsewhere = await _off_the_path(room, request) if regenerates else {}
        hidden = await _hidden(room, request)
        turn = room.door.turn(
            "ws-chat",
            request_id=request.request_id,
            body=request.body,
            client_tools=room.client_tools(),
            channel=request.channel,
            metadata=request.metadata,
            generation=generation,
        )
        turn.origin, turn.answers = request.origin, trailing(request.messages)
        turn.is_readonly, turn.identity = request.is_readonly, request.identity
        if isinstance(decision, Supersede):
            turn.gate = _gate(room, turn, decision, number, room.clock.monotonic())

        def plan() -> Plan:
            planned, turn.message_ids, tip = _plan(room, request, elsewhere, hidden)
            turn.parent = tip if regenerates else UNSET
            return planned

        return await room.door.admit(turn, plan=plan, more=kept)
    finally:
        release()


def trailing(messages: Sequence[Message]) -> list[str]:
    """The user messages at the end of the list."""
    ids: list[str] = []
    for message in reversed(messages):
        if message.role != "user":
            break
        ids.append(message.id)
    return ids[::-1]


def _remember(room: ChatRoom, request: ChatRequest) -> list[Statement]:
    kept: list[Statement] = []
    if request.client_tools is not None:
        client_tools_from(request.client_tools)  # refuses what is not a list of tools before anything changes
        room.client_tool_schemas = list(request.client_tools)
        kept.append(room.remember("lastClientTools", request.client_tools or None))
    if request.body or room.last_body:
        room.last_body = request.body or None
        kept.append(room.remember("lastBody", room.last_body))
    return kept


async def _off_the_path(room: ChatRoom, request: ChatRequest) -> dict[str, Message]:
    """What the client has from other branches."""
    session = room.session
    await session.refresh()
    found = [await session.get_message(m.id) for m in request.messages if session.find(m.id) is None]
    return {message.id: message for message in found if message is not None}


async def _hidden(room: ChatRoom, request: ChatRequest) -> set[str]:
    """What the client has and the session holds, also from before a summary or beyond what is in memory."""
    session = room.session
    await session.refresh()
    # What is in view now may be covered a moment later, when the plan is made.
    seen = {m.id for m in request.messages if session.find(m.id) is not None}
    if not session.is_partial:
        return seen
    unseen = [m for m in request.messages if session.find(m.id) is None and not is_overlay(m)]
    hidden = await session.known([m.id for m in unseen])
    if any(m.role == "assistant" and m.id not in hidden for m in unseen):
        # An id the client invented: the answer it means may be one of those that are not in memory.
        stored = await session.get_stored_path()
        for given, same in zip(unseen, reconcile(unseen, stored), strict=True):
            known = adopt_by_call(same, stored).id
            if known != given.id and session.find(known) is None:
                hidden.add(given.id)
    return hidden | seen


def _plan(
    room: ChatRoom, request: ChatRequest, elsewhere: dict[str, Message], hidden: set[str]
) -> tuple[Plan, list[str], str | None]:
    """Upserts for what the client sent, the ids of what is new, and the last id of its list.

    Planned and committed in one breath: the turn that runs may store its answer at any moment.
    """
    session = room.session
    stored = list(session.path)
    given = [m for m in request.messages if not is_overlay(m)]
    incoming = [strip_reserved(m) for m in reconcile(given, stored)]
    incoming = [_as_running(room, adopt_by_call(message, stored)) for message in incoming]
    by_id = {message.id: message for message in stored}
    new: list[Message] = []
    changed: list[Message] = []
    for message in incoming:
        known = by_id.get(message.id) or elsewhere.get(message.id)
        if known is None and message.id in hidden:
            continue  # it stays as it is stored
        if known is None:
            new.append(_stamped(message, request))
        elif known.parts != message.parts and message.role == "user":
            changed.append(
                Message(message.id, message.role, message.parts, known.metadata, createdAt=known.createdAt)
            )
    plan = session.plan_update(*changed) if changed else Plan()
    appended = session.plan_append(new)
    plan.statements += appended.statements
    plan.writes += appended.writes
    return plan, [message.id for message in new], incoming[-1].id if incoming else None


def _as_running(room: ChatRoom, message: Message) -> Message:
    """A client's copy of the answer being streamed gives way to our own, so far; its turn stores the rest."""
    running = room.inflight
    if running is None or message.role != "assistant":
        return message
    is_copy = message.id == running.id or any(running.call(p["toolCallId"]) for p in message.tool_parts)
    return running.message() if is_copy else message


def _stamped(message: Message, request: ChatRequest) -> Message:
    return with_stamps(message, request.channel, request.metadata)


def _gate(room: ChatRoom, turn: Turn, decision: Supersede, number: int | None, decided: float) -> Any:
    async def gate() -> bool:
        if room.submits.is_superseded(number):
            return False
        remaining = decided + decision.quiet - room.clock.monotonic()
        if decision.quiet and remaining > 0:
            await room.submits.quiet(lambda: room.clock.sleep(remaining))
        return room.queue.generation == turn.generation and not room.submits.is_superseded(number)

    return gate
