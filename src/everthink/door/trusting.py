"""Believe a chat window: its whole list is reconciled with ours and stored, as the original does.

    ChatRequest --take--> Arrival, for agents with `trust_client_history = True`

Whoever can open a socket can then say what the assistant said and what tools returned, and approve what
nobody was asked. It is here for applications that let their own servers speak through this door.
"""

from __future__ import annotations

from ..messages import UNSET, Message
from ..session.overlay import is_overlay
from ..session.tree import Plan
from ..turn.attempt import with_stamps
from ..turn.host import TurnHost
from .arrivals import Arrival
from .chat_request import ChatRequest
from .reconcile import (
    adopt_by_call,
    reconcile,
    strip_reserved,
)

__all__ = ["take"]


async def take(host: TurnHost, request: ChatRequest, *, regenerates: bool) -> Arrival:
    """Learn which messages of the list we have."""
    elsewhere = await _off_the_path(host, request) if regenerates else {}
    hidden = await _hidden(host, request)
    arrival = Arrival()

    def planned() -> Plan:
        plan, arrival.new, last = _plan(host, request, elsewhere, hidden)
        arrival.parent = last if regenerates else UNSET
        return plan

    arrival.plan = planned
    return arrival


async def _off_the_path(host: TurnHost, request: ChatRequest) -> dict[str, Message]:
    """What the client has from other branches."""
    session = host.session
    await session.refresh()
    found = [await session.get_message(m.id) for m in request.messages if session.find(m.id) is None]
    return {message.id: message for message in found if message is not None}


async def _hidden(host: TurnHost, request: ChatRequest) -> set[str]:
    """What the client has and the session holds, also from before a summary or beyond what is in memory."""
    session = host.session
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
        meant = adopt_by_call(reconcile(unseen, stored), stored)
        for given, same in zip(unseen, meant, strict=True):
            if same.id != given.id and session.find(same.id) is None:
                hidden.add(given.id)
    return hidden | seen


def _plan(
    host: TurnHost, request: ChatRequest, elsewhere: dict[str, Message], hidden: set[str]
) -> tuple[Plan, list[Message], str | None]:
    """Upserts for what the client sent, what is new, and the last id of its list.

    Commit it without an await: the turn that runs may store its answer at any moment.
    """
    session = host.session
    stored = list(session.path)
    given = [m for m in request.messages if not is_overlay(m)]
    incoming = [strip_reserved(m) for m in reconcile(given, stored)]
    incoming = _as_running(host, adopt_by_call(incoming, stored))
    by_id = {message.id: message for message in stored}
    new: list[Message] = []
    changed: list[Message] = []
    for message in incoming:
        known = by_id.get(message.id) or elsewhere.get(message.id)
        if known is None and message.id in hidden:
            continue  # it stays as it is stored
        if known is None:
            new.append(with_stamps(message, request.channel, request.metadata))
        elif known.parts != message.parts and message.role == "user":
            made = known.created_text
            changed.append(Message(message.id, message.role, message.parts, known.metadata, made))
    plan = session.plan_update(*changed) if changed else Plan()
    appended = session.plan_append(new)
    plan.statements += appended.statements
    plan.writes += appended.writes
    return plan, new, incoming[-1].id if incoming else None


def _as_running(host: TurnHost, messages: list[Message]) -> list[Message]:
    """A client's copy of the answer being streamed gives way to our own, so far; its turn stores the rest."""
    running = host.turns.answer
    if running is None:
        return messages
    ours: Message | None = None
    found: list[Message] = []
    for message in messages:
        if message.role == "assistant" and (
            message.id == running.id or any(running.call(p["toolCallId"]) for p in message.tool_parts)
        ):
            message = ours = ours or running.message()
        found.append(message)
    return found
