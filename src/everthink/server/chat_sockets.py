"""Where an agent and its connections meet: what is shown becomes frames, frames become deeds.

    feed --FeedEvent--> ChatSockets --frames--> connections     connection --frame--> ChatSockets --> agent

Who is here, who comes and goes, and to whom a frame is handed: publishing.py tells what the agent shows,
resuming.py whoever comes late, asking.py and rpc.py do what is asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, assert_never

from ..access.access import Access
from ..access.audit import AgentAuditor
from ..access.expiry import EXPIRED, is_expired
from ..access.permissions import answer_to, is_about_the_view, needed, refused, target_of
from ..address import kebab
from ..calling import ask, show
from ..current import current_connection
from ..errors import InvalidSettings
from ..journal.feed_state import FeedState
from ..messages import encode_json
from ..observe.events import Connect, Disconnect, StateUpdate
from ..recovery.recover import RECOVERING_TTL_MS
from ..runtime import stopping
from ..runtime.actor import Actor
from ..wire import frames as wire
from ..wire.codec import Refused, encode, misshapen
from .asking import Asking
from .audience import Audience
from .connections import Connection, Parcel
from .publishing import Publisher
from .reading import RawText, decoded
from .resuming import Resuming, stored_bodies
from .rpc import Calls
from .waiting import Long

__all__ = ["ChatSockets"]

log = logging.getLogger("everthink.server")

POLICY_VIOLATION = 1008
MAX_REASON = 120
"""A close frame has no room for more."""
NO_MCP: dict[str, Any] = {"servers": {}, "tools": [], "prompts": [], "resources": []}


class ChatSockets:
    """The connections of one agent."""

    def __init__(self, actor: Actor, access: Access) -> None:
        self.actor = actor
        self.state = FeedState(actor.door.turns)
        self.audience = Audience(actor, self.state)
        self._audit = AgentAuditor(access.audit, actor.cls.__name__, actor.name)
        self._publisher = Publisher(actor, self.audience, self.state)
        self._resuming = Resuming(actor, self.audience, self.state)
        self._asking = Asking(actor, self.audience, self._audit)
        self._calls = Calls(actor, access, self._audit)
        # True while the agent is being erased: nobody is heard, and nobody told before it is so.
        self._is_deaf = False
        # How connections were closed when the agent left memory.
        self._closed: tuple[int, str] | None = None
        actor.continuations.refused = self.audience.dismiss
        actor.feed.join(self._publisher.see)
        self._caught_up = asyncio.ensure_future(self._catch_up())

    async def _catch_up(self) -> None:
        """Learn what was said before anybody was connected."""
        for turn in self.actor.door.turns:
            try:
                said = await stored_bodies(self.actor, turn.id)
            except Exception:
                # Recovery will end it with an error; who connects must not be refused because of it.
                log.exception("%s: what turn %s has said is not shown", self.actor.id, turn.id)
                continue
            if said and turn in self.actor.door.turns and self.state.catch_up(turn, said):
                self._publisher.begin(turn)

    # --- what others ask of it

    @property
    def connections(self) -> list[Connection]:
        """Those who are connected."""
        return self.audience.connections

    @property
    def told(self) -> Long:
        """The conversation for a window, as JSON."""
        return self.audience.told

    def names_for(self, asked: str | None, mark: str | None) -> tuple[str, str]:
        """The id and the key of a connection that calls itself `asked`: see `Audience`."""
        return self.audience.names_for(asked, mark)

    def broadcast(self, message: str, *, without: Iterable[str] = ()) -> None:
        """Send text to every connection except those ids."""
        self.audience.broadcast(message, without=without)

    # --- coming and going

    async def join(self, connection: Connection, request: Any) -> None:
        """Greet a new connection. Raises what the agent's connect hook raised."""
        self.audience.present.append(connection)
        agent = self.actor.agent
        names = ("should_connection_be_readonly", "should_send_protocol_messages")
        reads, wants = [await ask(name, getattr(agent, name), connection, request) for name in names]
        connection.is_readonly = bool(reads) or not connection.permissions
        connection.wants_protocol = bool(wants)
        await self.actor.session.refresh()
        await asyncio.shield(self._caught_up)
        self._greet(connection)
        self.actor.emit(Connect(connection_id=connection.id))
        token = current_connection.set(connection)
        try:
            await show(agent, "on_connect", connection, request)
        finally:
            current_connection.reset(token)

    def _greet(self, connection: Connection) -> None:
        audience, state = self.audience, self.state
        if state.active is not None:
            audience.offer(connection, state.active.request_id)
        else:
            if state.accepted:
                audience.park(connection, next(reversed(state.accepted)))
            connection.send_all(Parcel((audience.greeting,)))
        recovering = self.actor.recovering
        if recovering is not None and self.actor.clock.now_ms() - recovering.at < RECOVERING_TTL_MS:
            connection.send(wire.Recovering(True, recovering.request_id))
        if connection.wants_protocol:
            has_state = self.actor.has_state
            name, agent = connection.called or self.actor.name, kebab(self.actor.cls.__name__)
            connection.send(wire.Identity(name, agent, state_follows=has_state))
            if has_state:
                connection.send(wire.State(self.actor.state_box.stored))
            connection.send(wire.McpServers(NO_MCP))
        audience.connections.append(connection)
        if self._closed is not None:
            connection.close(*self._closed)

    async def leave(self, connection: Connection, code: int, reason: str) -> None:
        """A connection is gone. Nothing stops because of it."""
        self.audience.forget(connection)
        self.actor.emit(Disconnect(connection_id=connection.id, code=code, reason=reason))
        try:
            await show(self.actor.agent, "on_close", connection, code, reason)
        except Exception as error:  # noqa: BLE001 - it is gone already
            self.actor.log_hook_error("on_close", error)

    def hear_no_more(self) -> None:
        """What clients send from now on is not heard. `close_all` follows, once it is known what to tell."""
        self._is_deaf = True

    def close_all(self, code: int, reason: str) -> None:
        """Close every connection, and those that are just coming."""
        self._closed = (code, reason)
        for connection in list(self.connections):
            connection.close(code, reason)

    # --- what clients send

    async def receive(self, connection: Connection, message: str | bytes | RawText) -> None:
        """Handle what arrived. Nothing a client sends raises out of here."""
        if self._is_over(connection):
            return
        token = current_connection.set(connection)
        try:
            frame = None if isinstance(message, bytes) else await decoded(message, self.actor.limits)
            if frame is None:
                given = message.text() if isinstance(message, RawText) else message
                if given is None:
                    connection.close(1007, "This is not UTF-8")
                else:
                    self._tell_misshapen(connection, given)
                    await show(self.actor.agent, "on_message", connection, given)
                return
            message = b""  # a long one is not kept while it is handled
            if isinstance(frame, Refused):
                self._too_much(connection, frame)
            else:
                await self._handle(connection, frame)
        except Exception as error:  # noqa: BLE001 - one bad frame must not end the connection
            self.actor.log_hook_error("on_message", error)
        finally:
            current_connection.reset(token)

    async def _handle(self, connection: Connection, frame: wire.ClientFrame) -> None:
        permission = needed(frame, self.actor.cls)
        if permission is not None and not connection.may(permission):
            self._audit.tell(connection, permission, target_of(frame), "no permission")
            self._refuse(connection, frame)
            return
        lock = self.actor.continuations.lock
        match frame:
            case wire.UseChat():
                await self._asking.request(connection, frame)
            case wire.CancelRequest(id):
                stopping.cancel(self.actor, id)
            case wire.ClearChat():
                await self._asking.clear(connection)
            case wire.ClientMessages():
                log.info("a client sent its own transcript; the server's counts")
            case wire.ToolAnswered():
                async with lock:
                    await self._asking.tool_answered(connection, frame)
            case wire.ApprovalAnswered():
                async with lock:
                    await self._asking.approved(connection, frame)
            case wire.ResumeRequest(probe):
                # An answer in one tab is stored and shown before another tab is told where things stand.
                async with lock:
                    self._resuming.probed(connection, probe)
            case wire.ResumeAck(id):
                await self._resuming.acked(connection, id)
            case wire.SetState(state):
                await self._set_state(connection, state)
            case wire.CallMethod():
                self._calls.begin(connection, frame)
            case _:
                assert_never(frame)

    # --- who may not

    def _is_over(self, connection: Connection) -> bool:
        """True for one that was closed from here, or whose time is over: what it still sends is not heard."""
        if not connection.is_closing and is_expired(connection, self.actor.clock):
            self._audit.tell(connection, "connect", reason="expired")
            connection.close(*EXPIRED)
        return connection.is_closing or self._is_deaf

    def _refuse(self, connection: Connection, frame: wire.ClientFrame) -> None:
        """Tell a client that it may not do this, and how things really are."""
        if is_about_the_view(frame):
            self.audience.correct(connection)
        answer = refused(frame, is_readonly=connection.is_readonly)
        if answer is not None:
            connection.send(answer)

    def _too_much(self, connection: Connection, refused: Refused) -> None:
        """Tell the sender of a frame that is over a bound, in the way that fits what it asked for."""
        told = answer_to(refused)
        if told is not None:
            if isinstance(told, wire.ResponseFrame):
                self.audience.correct(
                    connection
                )  # its list holds what was too much, and goes with each request
            connection.send(told)
        else:
            connection.close(POLICY_VIOLATION, refused.words[:MAX_REASON])
        self._audit.tell(connection, "frame", refused.type, refused.why)

    def _tell_misshapen(self, connection: Connection, message: str | bytes) -> None:
        """Tell observers of a frame of ours in another shape. Its sender gets no answer: so it is agreed."""
        type = misshapen(message) if isinstance(message, str) else None
        if type is not None:
            why = "its fields are not those of such a frame; it is ignored"
            self._audit.tell(connection, "frame", type, why)

    # --- state

    async def _set_state(self, connection: Connection, state: Any) -> None:
        most = self.actor.limits.state_bytes
        if len(encode_json(state)) > most:
            self._audit.tell(connection, "state", reason=f"more than {most} bytes")
            connection.send(wire.StateError(f"The state is longer than {most} bytes"))
            return
        try:
            await self.actor.set_state(state, source=connection)
        except Exception as error:  # noqa: BLE001 - whatever the validator says stays on the server
            level = (
                logging.ERROR if isinstance(error, InvalidSettings) else logging.INFO
            )  # our hook's mistake
            log.log(level, "a state update was rejected: %s", error)
            connection.send(wire.StateError("State update rejected"))

    def state_changed(self, state: Any, source: Any) -> None:
        """Tell everybody but the source."""
        parcel = Parcel((encode(wire.State(state)),))
        for connection in self.connections:
            if connection.wants_protocol and (
                not isinstance(source, Connection) or connection.key != source.key
            ):
                connection.send_all(parcel)
        self.actor.emit(StateUpdate())
