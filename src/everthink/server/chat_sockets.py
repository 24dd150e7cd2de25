"""Where an agent that chats and its connections meet: what is shown becomes frames, frames become deeds.

    feed --FeedEvent--> ChatSockets --frames--> connections     connection --frame--> ChatSockets --> chat

To whom a frame is handed: publishing.py tells what the agent shows, resuming.py whoever comes late,
asking.py does what is asked for. What is no part of a conversation is in agent_sockets.py.
"""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from ..access.access import Access
from ..access.permissions import is_about_the_view
from ..journal.feed import FeedEvent, RunTold, ServersChanged, StateChanged
from ..journal.feed_state import FeedState
from ..recovery.recover import RECOVERING_TTL_MS
from ..runtime.actor import Actor
from ..runtime.chat import Chat
from ..wire import frames as wire
from .agent_sockets import AgentSockets
from .asking import Asking
from .audience import ChatAudience
from .connections import Connection, Parcel
from .publishing import Publisher
from .resuming import Resuming, stored_bodies
from .waiting import Long

__all__ = ["ChatSockets"]

log = logging.getLogger("everthink.server")


class ChatSockets(AgentSockets):
    """The connections of one agent that chats."""

    def __init__(self, actor: Actor, chat: Chat, access: Access) -> None:
        self.chat = chat
        self.state = FeedState(chat.host.turns)
        self.audience = ChatAudience(chat.host, self.state)
        self._publisher = Publisher(chat.host, self.audience, self.state)
        self._resuming = Resuming(chat, self.audience, self.state)
        super().__init__(actor, access, self.audience)
        self._asking = Asking(chat, self.audience, self._audit)
        self._caught_up = asyncio.ensure_future(self._catch_up())

    async def _catch_up(self) -> None:
        """Learn what was said before anybody was connected."""
        host = self.chat.host
        for turn in host.turns:
            try:
                said = await stored_bodies(host, turn.id)
            except Exception:
                # Recovery will end it with an error; who connects must not be refused because of it.
                log.exception("%s: what turn %s has said is not shown", host.id, turn.id)
                continue
            if said and turn in host.turns and self.state.catch_up(turn, said):
                self._publisher.begin(turn)

    @property
    def told(self) -> Long:
        """The conversation for a window, as JSON."""
        return self.audience.told

    def _see(self, event: FeedEvent) -> None:
        if isinstance(event, StateChanged | ServersChanged | RunTold):
            super()._see(event)
        else:
            self._publisher.see(event)

    def erased(self, code: int, reason: str) -> None:
        """Whoever reads along, or has asked, hears that nothing more comes; then they are closed."""
        self._publisher.erased()
        super().erased(code, reason)

    # --- coming

    async def _ready(self) -> None:
        await self.chat.session.refresh()
        await asyncio.shield(self._caught_up)

    def _greet(self, connection: Connection) -> None:
        audience, state = self.audience, self.state
        if state.active is not None:
            audience.offer(connection, state.active.request_id)
        else:
            if state.accepted:
                audience.park(connection, next(reversed(state.accepted)))
            connection.send_all(Parcel((audience.greeting,)))
        recovering = self.chat.recovery.recovering
        if recovering is not None and self.actor.clock.now_ms() - recovering.at < RECOVERING_TTL_MS:
            connection.send(wire.Recovering(True, recovering.request_id))
        super()._greet(connection)

    # --- what clients send

    def _knows(self, frame: wire.ClientFrame) -> bool:
        return True

    async def _handle_chat(self, connection: Connection, frame: wire.ChatFrame) -> None:
        lock = self.chat.continuations.lock
        match frame:
            case wire.UseChat():
                await self._asking.request(connection, frame)
            case wire.CancelRequest(id):
                self.chat.cancel(id)
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
            case _:
                assert_never(frame)

    def _refuse(self, connection: Connection, frame: wire.ClientFrame) -> None:
        if is_about_the_view(frame):
            self.audience.correct(connection)
        super()._refuse(connection, frame)

    def _correct(self, connection: Connection, told: wire.ServerFrame) -> None:
        if isinstance(told, wire.ResponseFrame):
            self.audience.correct(connection)  # its list holds what was too much, and goes with each request
