"""A request from a chat window: see what is new, decide about overlap, admit.

    ChatRequest --> arrivals: what is taken --> overlap policy --> admission

The browser sends its whole list each time; our own history counts. Both the client's tools and the body
are captured here, so a later request cannot change a queued turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..errors import CommitRefused, InvalidMessage, InvalidTurn
from ..identity import mark_of
from ..journal.turn import Turn
from ..limits import Limits
from ..messages import encode_json
from ..observe.events import ChatClientDropped
from ..session.tree import Plan
from ..tools.collect import client_tools_from
from ..tools.tool import Tool
from ..turn.host import TurnHost
from . import arrivals, trusting
from .admission import Admitted, Door
from .arrivals import Arrival, trailing
from .browser import Browser
from .chat_request import ChatRequest, Dropped
from .concurrency import (
    LONGEST_WAIT,
    Decision,
    Drop,
    Enqueue,
    Overlaps,
    Supersede,
    decide,
    refuse_more_than_a_share,
    refuse_when_full,
)
from .spoken import checked_id

__all__ = ["Requests", "bounded_tools", "trailing"]


class Requests:
    """Takes the requests of chat windows, for one agent."""

    __slots__ = ("_browser", "_door", "_host", "overlaps")

    def __init__(self, host: TurnHost, door: Door, browser: Browser) -> None:
        self._host, self._door, self._browser = host, door, browser
        self.overlaps = Overlaps()

    @property
    def trusts_clients(self) -> bool:
        """True when the agent believes the transcript of a window."""
        return self._host.hooks.setting("trust_client_history")

    async def accept(self, request: ChatRequest) -> Admitted | Dropped:
        """Take a request from a chat window. Its messages and its row are durable when this returns."""
        host, door = self._host, self._door
        self._check(request)
        regenerates = request.trigger == "regenerate-message" and bool(request.messages)
        overlaps = door.queue.count() + self.overlaps.pending > 0
        policy = host.hooks.setting("message_concurrency")
        decision = Enqueue() if regenerates else decide(policy, overlaps=overlaps)
        if isinstance(decision, Drop):
            return Dropped(request.request_id)
        refuse_when_full(door.queue.waiting + self.overlaps.pending, host.limits)
        if request.identity is not None:
            refuse_more_than_a_share(self._waiting_of(request.identity), host.limits)
        release = self.overlaps.take()
        door.entering += (request.request_id,)
        try:
            return await self._admitted(request, decision, regenerates=regenerates)
        finally:
            door.entering = tuple(id for id in door.entering if id != request.request_id)
            release()

    async def _admitted(self, request: ChatRequest, decision: Decision, *, regenerates: bool) -> Admitted:
        host, generation = self._host, self._host.generation
        tools = bounded_tools(request.client_tools, host.limits)  # may refuse, which then supersedes nobody
        take = trusting.take if self.trusts_clients else arrivals.take
        arrival = await take(host, request, regenerates=regenerates)
        turn = self._turn(request, tools, generation)
        if isinstance(decision, Supersede):
            turn.gate = self._gate(turn, decision)

        def plan() -> Plan:
            planned = arrival.plan()
            turn.message_ids, turn.parent = arrival.ids, arrival.parent
            return planned

        try:
            admitted = await self._door.admit(turn, plan=plan, more=arrival.statements)
        except CommitRefused as error:
            raise InvalidMessage("message.id", "is that of another message") from error
        self._tell_dropped(turn, arrival)
        return admitted

    def _turn(self, request: ChatRequest, tools: dict[str, Tool], generation: int) -> Turn:
        turn = self._door.new_turn(
            "ws-chat",
            request_id=request.request_id,
            body=request.body,
            client_tools=tools,
            channel=request.channel,
            metadata=request.metadata,
            generation=generation,
        )
        turn.origin = request.origin
        turn.answers = trailing(request.messages)[-self._host.limits.new_messages :]
        turn.is_readonly, turn.identity = request.is_readonly, request.identity
        turn.tools_by = mark_of(request.identity) if tools else None
        turn.brings = self._browser.bringing(turn, request.client_tools)
        return turn

    def _waiting_of(self, identity: Any) -> int:
        return sum(not turn.is_started and turn.identity == identity for turn in self._host.turns)

    def _tell_dropped(self, turn: Turn, arrival: Arrival) -> None:
        if arrival.dropped_messages or arrival.dropped_parts:
            self._host.emit(
                ChatClientDropped(
                    request_id=turn.request_id,
                    messages=arrival.dropped_messages,
                    parts=arrival.dropped_parts,
                    identity=turn.identity,
                )
            )

    def _check(self, request: ChatRequest) -> None:
        limits = self._host.limits
        checked_id(request.request_id, limits, "the id of the request")
        ids = {turn.request_id for turn in self._host.turns}
        if request.request_id in {*ids, *self._door.entering}:
            raise InvalidTurn("A turn with the id of this request runs or waits already.", kept="It goes on.")
        size = len(encode_json(request.body)) if request.body else 0
        if size > limits.body_bytes:
            raise InvalidTurn(
                f"The request has {size} bytes of custom fields, more than {limits.body_bytes}.",
                kept="Nothing was stored.",
            )

    def _gate(self, turn: Turn, decision: Supersede) -> Callable[[], Awaitable[bool]]:
        """Asked when the turn's time has come: has a newer message taken its place?"""
        overlaps, clock, quiet = self.overlaps, self._host.clock, decision.quiet
        number, decided = overlaps.number(), clock.monotonic()
        overlaps.since = decided if overlaps.since is None else overlaps.since

        async def gate() -> bool:
            if overlaps.is_superseded(number):
                return False
            now, since = clock.monotonic(), decided if overlaps.since is None else overlaps.since
            remaining, most = decided + quiet - now, since + LONGEST_WAIT * quiet - now
            if quiet and min(remaining, most) > 0:
                await overlaps.quiet(lambda: clock.sleep(min(remaining, most)))
            if self._host.generation != turn.generation:
                return False
            if overlaps.is_superseded(number) and (not quiet or remaining < most):
                return False
            overlaps.since = None  # the next wait begins with the next message
            return True

        return gate


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
