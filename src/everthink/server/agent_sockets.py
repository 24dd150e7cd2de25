"""Where an agent and its connections meet: who comes and goes, its state, its methods.

    connection --frame--> AgentSockets --> state, @exposed methods, on_message
    feed --StateChanged--> AgentSockets --frames--> connections

What every agent offers to clients, chat or not. `ChatSockets` adds the conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from ..access.access import Access
from ..access.expiry import EXPIRED, is_expired
from ..access.permissions import answer_to, needed, refused, target_of
from ..address import kebab
from ..children.showing import RunViews
from ..current import current_connection
from ..errors import InvalidSettings
from ..journal.feed import FeedEvent, RunTold, ServersChanged, StateChanged
from ..messages import encode_json
from ..observe.events import Connect, Disconnect, StateUpdate
from ..runtime.actor import Actor
from ..wire import frames as wire
from ..wire.codec import Refused, encode, misshapen
from .arriving import RawText, decoded
from .audience import AgentAuditor, Audience
from .connections import Connection, Parcel
from .rpc import Calls

__all__ = ["AgentSockets"]

log = logging.getLogger("everthink.server")

POLICY_VIOLATION = 1008
MAX_REASON = 120
"""A close frame has no room for more."""
DOES_NOT_CHAT = "This agent does not chat."
NO_MCP: dict[str, Any] = {"servers": {}, "tools": [], "prompts": [], "resources": []}


class AgentSockets:
    """The connections of one agent."""

    def __init__(self, actor: Actor, access: Access, audience: Audience | None = None) -> None:
        self.actor = actor
        self._present = audience or Audience(actor.limits)
        self._audit = AgentAuditor(access.audit, actor.address)
        self._calls = Calls(actor, access, self._audit)
        # True while the agent is being erased: nobody is heard, and nobody told before it is so.
        self._is_deaf = False
        self._tells_servers = False
        self._runs: RunViews[Connection] = RunViews(_send_together)
        # How connections were closed when the agent left memory.
        self._closed: tuple[int, str] | None = None
        actor.feed.join(self._see)

    # --- what others ask of it

    @property
    def connections(self) -> list[Connection]:
        """Those who are connected."""
        return self._present.connections

    def names_for(self, asked: str | None, mark: str | None) -> tuple[str, str]:
        """The id and the key of a connection that calls itself `asked`: see `Audience`."""
        return self._present.names_for(asked, mark)

    def broadcast(self, message: str, *, without: Iterable[str] = ()) -> None:
        """Send text to every connection except those ids."""
        self._present.broadcast(message, without=without)

    def _see(self, event: FeedEvent) -> None:
        """Tell those who are connected of what the agent shows."""
        if isinstance(event, StateChanged):
            self._tell_state(event)
        elif isinstance(event, ServersChanged):
            self._tell_servers_soon()
        elif isinstance(event, RunTold):
            self._runs.tell(event, [one for one in self.connections if one.wants_protocol])

    # --- coming and going

    async def join(self, connection: Connection, request: Any) -> None:
        """Greet a new connection. Raises what the agent's connect hook raised."""
        self._present.present.append(connection)
        hooks = self.actor.hooks
        reads = await hooks.should_connection_be_readonly(connection, request)
        connection.is_readonly = reads or not connection.permissions
        connection.wants_protocol = await hooks.should_send_protocol_messages(connection, request)
        await self._ready()
        if (servers := self.actor.used_servers()) is not None:
            await servers.open()
        self._greet(connection)
        if connection.wants_protocol and self.actor.has_runs:
            try:
                await self._runs.greet(connection, self.actor.store)
            except Exception:  # who connects must not be refused because of what was once said
                log.exception("%s: the runs of its children are not shown", self.actor.id)
        self.actor.emit(Connect(connection_id=connection.id))
        token = current_connection.set(connection)
        try:
            await hooks.on_connect(connection, request)
        finally:
            current_connection.reset(token)

    async def _ready(self) -> None:
        """Wait for what a greeting needs."""

    def _greet(self, connection: Connection) -> None:
        if connection.wants_protocol:
            state, name = self.actor.state, connection.called or self.actor.name
            connection.send(wire.Identity(name, kebab(self.actor.cls.__name__), state_follows=state.exists))
            if state.exists:
                connection.send(wire.State(state.stored))
            connection.send(wire.McpServers(self._listing()))
        self.connections.append(connection)
        if self._closed is not None:
            connection.close(*self._closed)

    async def leave(self, connection: Connection, code: int, reason: str) -> None:
        """A connection is gone. Nothing stops because of it."""
        self._present.forget(connection)
        self.actor.emit(Disconnect(connection_id=connection.id, code=code, reason=reason))
        await self.actor.hooks.on_close(connection, code, reason)

    def hear_no_more(self) -> None:
        """What clients send from now on is not heard. `close_all` follows, once it is known what to tell."""
        self._is_deaf = True

    def close_all(self, code: int, reason: str) -> None:
        """Close every connection, and those that are just coming."""
        self._closed = (code, reason)
        for connection in list(self.connections):
            connection.close(code, reason)

    def erased(self, code: int, reason: str) -> None:
        """The agent is deleted, durably: close every connection for that."""
        self.close_all(code, reason)

    # --- what clients send

    async def receive(self, connection: Connection, message: str | bytes | RawText) -> None:
        """Handle what arrived. Nothing a client sends raises out of here."""
        if self._is_over(connection):
            return
        token = current_connection.set(connection)
        try:
            frame = None if isinstance(message, bytes) else await decoded(message, self.actor.limits)
            if isinstance(frame, Refused):
                self._too_much(connection, frame)
            elif frame is None or not self._knows(frame):
                await self._pass_on(connection, message)
            else:
                message = b""  # a long one is not kept while it is handled
                await self._handle(connection, frame)
        except Exception as error:  # noqa: BLE001 - one bad frame must not end the connection
            self.actor.hooks.log_error("on_message", error)
        finally:
            current_connection.reset(token)

    async def _pass_on(self, connection: Connection, message: str | bytes | RawText) -> None:
        """Give the agent what is no part of the protocol."""
        given = message.text() if isinstance(message, RawText) else message
        if given is None:
            connection.close(1007, "This is not UTF-8")
        else:
            self._tell_misshapen(connection, given)
            await self.actor.hooks.on_message(connection, given)

    def _knows(self, frame: wire.ClientFrame) -> bool:
        """True for a frame that is for this agent; others are its own affair."""
        return isinstance(frame, wire.SetState | wire.CallMethod | wire.ResumeRequest | wire.UseChat)

    async def _handle(self, connection: Connection, frame: wire.ClientFrame) -> None:
        permission = needed(frame, self.actor.cls)
        if permission is not None and not connection.may(permission):
            self._audit.tell(connection, permission, target_of(frame), "no permission")
            self._refuse(connection, frame)
        elif isinstance(frame, wire.SetState):
            await self._set_state(connection, frame.state)
        elif isinstance(frame, wire.CallMethod):
            self._calls.begin(connection, frame)
        else:
            await self._handle_chat(connection, frame)

    async def _handle_chat(self, connection: Connection, frame: wire.ChatFrame) -> None:
        """A frame about the conversation, which this agent does not have. Nobody waits for an answer."""
        if isinstance(frame, wire.ResumeRequest):
            connection.send(wire.ResumeNone("idle", frame.probe_id))
        elif isinstance(frame, wire.UseChat):
            connection.send(wire.ResponseFrame(frame.id, DOES_NOT_CHAT, True, error=True))

    # --- who may not

    def _is_over(self, connection: Connection) -> bool:
        """True for one that was closed from here, or whose time is over: what it still sends is not heard."""
        if not connection.is_closing and is_expired(connection.until, self.actor.clock):
            self._audit.tell(connection, "connect", reason="expired")
            connection.close(*EXPIRED)
        return connection.is_closing or self._is_deaf

    def _refuse(self, connection: Connection, frame: wire.ClientFrame) -> None:
        """Tell a client that it may not do this."""
        answer = refused(frame, is_readonly=connection.is_readonly)
        if answer is not None:
            connection.send(answer)

    def _too_much(self, connection: Connection, refused: Refused) -> None:
        """Tell the sender of a frame that is over a bound, in the way that fits what it asked for."""
        told = answer_to(refused)
        if told is not None:
            self._correct(connection, told)
            connection.send(told)
        else:
            connection.close(POLICY_VIOLATION, refused.words[:MAX_REASON])
        self._audit.tell(connection, "frame", refused.type, refused.why)

    def _correct(self, connection: Connection, told: wire.ServerFrame) -> None:
        """Show a client how things are before it is told that something is too much."""

    def _tell_misshapen(self, connection: Connection, message: str | bytes) -> None:
        """Tell observers of a frame of ours in another shape. Its sender gets no answer: so it is agreed."""
        type = misshapen(message) if isinstance(message, str) else None
        if type is not None:
            why = "its fields are not those of such a frame; it is ignored"
            self._audit.tell(connection, "frame", type, why)

    # --- MCP servers

    def _listing(self) -> dict[str, Any]:
        servers = self.actor.used_servers()
        return NO_MCP if servers is None else servers.listing()

    def _tell_servers_soon(self) -> None:
        """Tell everybody how the servers stand: once for all that changes at a time."""
        if not self._tells_servers:
            self._tells_servers = True
            asyncio.get_running_loop().call_soon(self._tell_servers)

    def _tell_servers(self) -> None:
        self._tells_servers = False
        parcel = Parcel((encode(wire.McpServers(self._listing())),))
        for connection in self.connections:
            if connection.wants_protocol:
                connection.send_all(parcel)

    # --- state

    async def _set_state(self, connection: Connection, state: Any) -> None:
        most = self.actor.limits.state_bytes
        if len(encode_json(state)) > most:
            self._audit.tell(connection, "state", reason=f"more than {most} bytes")
            connection.send(wire.StateError(f"The state is longer than {most} bytes"))
            return
        try:
            await self.actor.state.set(state, source=connection)
        except Exception as error:  # noqa: BLE001 - whatever the validator says stays on the server
            is_our_mistake = isinstance(error, InvalidSettings)
            log.log(
                logging.ERROR if is_our_mistake else logging.INFO, "a state update was rejected: %s", error
            )
            connection.send(wire.StateError("State update rejected"))

    def _tell_state(self, changed: StateChanged) -> None:
        """Tell everybody but the source."""
        parcel, source = Parcel((encode(wire.State(changed.state)),)), changed.source
        for connection in self.connections:
            if connection.wants_protocol and (
                not isinstance(source, Connection) or connection.key != source.key
            ):
                connection.send_all(parcel)
        self.actor.emit(StateUpdate())


def _send_together(connections: Sequence[Connection], frames: Sequence[wire.ServerFrame]) -> None:
    parcel = Parcel([encode(frame) for frame in frames])
    for connection in connections:
        connection.send_all(parcel)
