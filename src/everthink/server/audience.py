"""Who is connected to one agent, and what is sent to many of them at once.

    AgentSockets --frame--> Audience --Parcel--> connections
    publishing, resuming --frame--> ChatAudience: those who read a conversation along

A frame is encoded once, whoever reads it. Somebody who joins in the middle of a stream is held out of live
chunks until the stream has been told from its start.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from ..access.audit import Auditor
from ..address import Address
from ..chunks import NOTHING_NEW
from ..empty import NONE
from ..journal.feed_state import FeedState
from ..limits import Limits
from ..messages import Message, encode_json
from ..turn.host import TurnHost
from ..wire import frames as wire
from ..wire.codec import encode
from .connections import Connection, Parcel
from .waiting import Latest, Long

__all__ = ["AgentAuditor", "Audience", "ChatAudience"]

CORRECTED_EVERY = 1.0
"""Seconds between two snapshots for a client that asks for what it may not do."""


class Audience:
    """The connections of one agent."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.connections: list[Connection] = []
        self.present: list[Connection] = []
        """Those who are being greeted as well: their ids are taken."""

    def names_for(self, asked: str | None, mark: str | None) -> tuple[str, str]:
        """The id and the key of a connection that calls itself `asked`, of the person with this mark.

        A client that comes back has the id that it had, be its old socket still there; one that another
        person has now is not given again. The key is the same whoever else is there.
        """
        fresh = str(uuid.uuid4())
        if not asked or not asked.isprintable() or len(asked) > self._limits.id_chars:
            asked = fresh
        is_taken = any(c.id == asked and c.mark != mark for c in self.present)
        return fresh if is_taken else asked, asked if mark is None else f"{asked}\n{mark}"

    def has(self, key: str | None) -> bool:
        """True when a connection of this key is here."""
        return key is not None and any(c.key == key for c in self.connections)

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        for present in (self.connections, self.present):
            if connection in present:
                present.remove(connection)

    def broadcast(self, message: str, *, without: Iterable[str] = ()) -> None:
        """Send text to every connection except those ids."""
        left_out, parcel = set(without), Parcel((message,))
        for connection in self.connections:
            if connection.id not in left_out:
                connection.send_all(parcel)

    def tell(
        self,
        frame: wire.ServerFrame,
        *,
        without: str | None = None,
        only: str | None = None,
        among: set[Connection] | None = None,
    ) -> None:
        """Send a frame to all, or to those with and without a key, or to some."""
        readers = [c for c in self.connections if c.key != without and (only is None or c.key == only)]
        if among is not None:
            readers = [c for c in readers if c in among]
        if readers:
            parcel = Parcel((encode(frame),))
            for connection in readers:
                connection.send_all(parcel)


def _greeted(messages: Sequence[Message]) -> bytes:
    return encode_json(wire.ChatMessages(list(messages), connect=True))


class ChatAudience(Audience):
    """The connections of one agent that chats."""

    def __init__(self, host: TurnHost, state: FeedState) -> None:
        super().__init__(host.limits)
        self._host, self._state = host, state
        self.held: frozenset[Connection] = NONE
        """Offered the stream and not acked: they get no live chunks."""
        self.parked: dict[Connection, None] = {}
        """Told that something will stream: they are offered it when it does."""
        self.expecting: frozenset[Connection] = NONE
        """Those who asked for the stream before it began: their windows go on with it themselves."""
        self.apart: frozenset[Connection] = NONE
        """Those who last answered the question of a tool by a result."""
        # Were shown how things are because they may not change them; True: and tried again since.
        self._corrected: dict[Connection, bool] = {}
        # The conversation as those read it who have just come, and who ask for it.
        self._greeting, self._told = Latest(), Latest()

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        super().forget(connection)
        self._corrected.pop(connection, None)
        self.held -= {connection}
        self.parked.pop(connection, None)
        self.expecting -= {connection}
        self.apart -= {connection}

    @property
    def going_on_apart(self) -> frozenset[Connection]:
        """Windows that go on with the stream themselves after they answered a tool's question.

        They take their answer for the tool's result. What follows is a new message to them, in which the
        call is not known: they are told of it by the message that holds it.
        """
        return self.apart & self.expecting

    # --- the conversation

    @property
    def messages(self) -> list[Message]:
        """The conversation for a window.

        Without the answer of a continuation that streams, be its beginning stored because somebody wrote in
        the middle: windows add what they are streamed to the message before.
        """
        path, active = self._host.session.path, self._state.active
        if active is None or not active.continuation:
            return list(path)
        return [message for message in path if message.id != active.message_id]

    @property
    def told(self) -> Long:
        """The same as JSON."""
        return self._told.of(self.messages, encode_json)

    @property
    def greeting(self) -> Long:
        """The same as the frame for somebody who has just come."""
        return self._greeting.of(self.messages, _greeted)

    # --- showing it

    def snapshot(self, *, without: str | None = None, among: set[Connection] | None = None) -> None:
        """Show the conversation as it is now."""
        self.tell(wire.ChatMessages(self.messages), without=without, among=among)
        active = self._state.active
        if active is not None and active.continuation:
            # The window that goes on by itself has let its answer go: it shows it again with the next chunk.
            readers = {c for c in self.connections if c not in self.held}
            again = wire.ResponseFrame(active.request_id, NOTHING_NEW, False, continuation=True)
            self.tell(again, without=without, among=readers if among is None else readers & among)

    def correct(self, connection: Connection) -> None:
        """Show a client the conversation as it is, now and at most once in a while."""
        if connection in self._corrected:
            self._corrected[connection] = True
            return
        self._corrected[connection] = False
        connection.send(wire.ChatMessages(self.messages))

        def again() -> None:
            if self._corrected.pop(connection, False):
                self.correct(connection)

        self._host.clock.call_later(CORRECTED_EVERY, again, housekeeping=True)

    # --- offering the stream

    def offer(self, connection: Connection, id: str, probe: str | None = None, *, holds: bool = True) -> None:
        """Offer somebody a stream. `holds`: no live chunks until they ack."""
        if holds:
            self.held |= {connection}
        connection.offers.offer(id)
        connection.send(wire.StreamResuming(id, probe))

    def park(self, connection: Connection, id: str, probe: str | None = None) -> None:
        """Tell somebody that something will stream: they are offered it when it does."""
        self.parked[connection] = None
        connection.send(wire.StreamPending(id, probe))

    def dismiss(self) -> None:
        """Nothing will stream for those who were told to wait."""
        for connection in self.parked:
            connection.send(wire.ResumeNone())
        self.parked.clear()


class AgentAuditor:
    """Tells the observers of one agent's app."""

    def __init__(self, auditor: Auditor, agent: Address) -> None:
        self._auditor, self._agent = auditor, agent

    def tell(
        self, connection: Connection, action: str, target: str | None = None, reason: str | None = None
    ) -> None:
        """Tell observers what somebody did; with a `reason`, why they may not."""
        who = {"identity": connection.who, "connection_id": connection.id, "address": connection.address}
        if reason is None:
            self._auditor.did(self._agent, action, target=target, **who)
        else:
            self._auditor.refused(self._agent, action, reason, target=target, **who)
