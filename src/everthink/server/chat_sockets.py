"""Where an agent and its connections meet: what is shown becomes frames, frames become deeds.

    feed --FeedEvent--> ChatSockets --frames--> connections     connection --frame--> ChatSockets --> agent

Readers who join in the middle are held out of live chunks until they ack; then they get all
chunks from the start and go on live, without a gap: both happen in one breath of the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, assert_never

from ..address import kebab
from ..calling import ask, call_hook
from ..chunks import NOTHING_NEW
from ..current import current_connection
from ..door.requests import (
    ChatRequest,
    Dropped,
    accept_request,
    bounded_tools,
    trailing,
)
from ..errors import AgentError, CommitInDoubt, InvalidSettings, LeaseLost
from ..journal.feed import (
    ChunksStored,
    Cleared,
    FeedEvent,
    HistoryChanged,
    MessageUpdated,
    RecoveryChanged,
    SessionTold,
    TurnAccepted,
    TurnEnded,
    TurnRewound,
    TurnStarted,
)
from ..journal.turn import Turn
from ..messages import Message, encode_json
from ..observe.events import Audit, Connect, Disconnect, StateUpdate
from ..recovery.recover import RECOVERING_TTL_MS
from ..runtime import control, stopping
from ..runtime.actor import Actor
from ..runtime.rpc import callable_of
from ..session.compaction import CompactionFailed, SessionNews
from ..store.port import Statement
from ..turn.attempt import explain
from ..wire import frames as wire
from ..wire.body import read_body
from ..wire.codec import Refused, encode
from ..wire.resume import Ended, Failed, Ignore, Nothing, Offer, Replay, View, Wait, answer_ack, answer_probe
from .connections import Connection, Parcel
from .expiry import EXPIRED, is_expired
from .permissions import answer_to, is_about_the_view, needed, refused, target_of
from .reading import RawText, decoded
from .replays import Over, chunk_frames, replayed_frames, stored_bodies, tell_end, tell_failure
from .rpc import answer_call
from .waiting import Latest, Long

if TYPE_CHECKING:
    from .access import Access

__all__ = ["ChatSockets"]

log = logging.getLogger("everthink.server")

NOT_OPEN = "no question of this id is open"
MAX_OVER = 16
"""So many turns that ended are remembered: an ack comes late by a moment, not by a day."""
CORRECTED_EVERY = 1.0
"""Seconds between two snapshots for a client that asks for what it may not do."""
POLICY_VIOLATION = 1008
MAX_REASON = 120
"""A close frame has no room for more."""
# The connection whose clear this is: it has emptied its own window already.
_clearing: contextvars.ContextVar[str | None] = contextvars.ContextVar("everthink_clearing", default=None)
NO_MCP: dict[str, Any] = {"servers": {}, "tools": [], "prompts": [], "resources": []}


def _greeted(messages: Sequence[Message]) -> bytes:
    return encode_json(wire.ChatMessages(list(messages), connect=True))


class ChatSockets:
    """The connections of one agent."""

    def __init__(self, actor: Actor, access: Access | None = None) -> None:
        self.actor, self._access = actor, access
        self.connections: list[Connection] = []
        # Those who are being greeted as well: their ids are taken.
        self._present: list[Connection] = []
        # Were shown how things are because they may not change them; True: and tried again since.
        self._corrected: dict[Connection, bool] = {}
        self.continuations = actor.continuations
        self.continuations.refused = self._refused
        # The turn that streams and its chunks so far.
        self._active: Turn | None = None
        self._bodies: list[str] = []
        # Turns that began anew in the middle of their stream.
        self._restarted: set[str] = set()
        # Turns that were cut off and overtaken by another one, with their chunks.
        self._overtaken: dict[str, tuple[Turn, list[str]]] = {}
        # Turns that are accepted and have said nothing yet, oldest first.
        self._accepted = {turn.request_id: turn for turn in actor.door.turns}
        # Offered the stream and not acked: they get no live chunks.
        self._held: set[Connection] = set()
        # Told that something will stream: they are offered it when it does.
        self._parked: dict[Connection, None] = {}
        # Those who asked for the stream before it began: their windows go on with it themselves.
        self._expecting: set[Connection] = set()
        # The conversation as those read it who have just come, and who ask for it.
        self._greeting, self._told = Latest(), Latest()
        # True while the agent is being erased: nobody is heard, and nobody told before it is so.
        self._is_deaf = False
        # How connections were closed when the agent left memory.
        self._closed: tuple[int, str] | None = None
        # Turns that ended, by request, for acks that come late.
        self._over: dict[str, Over] = {}
        actor.feed.join(self._see)
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
            if said and turn in self.actor.door.turns:
                if self._active is not turn:
                    self._begin(turn)
                self._bodies[: len(said)] = said

    # --- what the agent shows

    def _see(self, shown: FeedEvent) -> None:
        match shown:
            case ChunksStored():
                self._chunks(shown)
            case TurnAccepted(turn):
                self._accepted[turn.request_id] = turn
            case TurnStarted():
                pass
            case TurnEnded():
                self._ended(shown)
            case HistoryChanged(turn, what):
                if what == "input":
                    asked = turn is not None and turn.trigger == "ws-chat"
                    self._snapshot(without=turn.origin if turn and asked else None)
                    if turn is not None and asked and turn.cut:
                        self._show_cut(turn)
                elif what == "other":
                    self._snapshot()
            case MessageUpdated(message):
                self._all(wire.MessageChanged(message))
            case RecoveryChanged(turn, recovering):
                self._all(wire.Recovering(recovering, turn.request_id))
            case TurnRewound(turn, at_once):
                self._rewind(turn, at_once)
            case SessionTold(news):
                self._all(_session_frame(news))
            case Cleared():
                self._accepted.clear()
                self._refused()
                self._all(wire.ClearChat(), without=_clearing.get())
            case _:
                assert_never(shown)

    def _chunks(self, shown: ChunksStored) -> None:
        turn = shown.turn
        if self._active is not turn:
            self._begin(turn)
        # What was said before anybody was connected is filled in by `_catch_up`, and may reach further.
        self._bodies += [""] * (shown.first_seq - len(self._bodies))
        known = len(self._bodies) - shown.first_seq
        self._bodies += shown.bodies[known:]
        readers = [c for c in self.connections if c not in self._held]
        if not readers:
            return
        first, bodies = shown.first_seq + known, shown.bodies[known:]
        if first == 0 and turn.id in self._restarted:
            self._begin_anew(turn, bodies, readers)
        parcel = chunk_frames(turn.request_id, bodies, first, continuation=turn.continuation)
        for connection in readers:
            connection.send_all(parcel)

    def _begin_anew(self, turn: Turn, bodies: Sequence[str], readers: Iterable[Connection]) -> None:
        """Windows that watch forget the first beginning: a start that is told again empties their answer.

        The one that asked cannot, and is put right at the end.
        """
        watching = {c for c in readers if c.key != turn.origin}
        start = replayed_frames(turn.request_id, bodies[:1], continuation=turn.continuation, is_late=False)
        for connection in watching:
            connection.send_all(start)
        self._snapshot(among=watching)

    def _begin(self, turn: Turn) -> None:
        if self._active is not None:
            self._overtaken[self._active.id] = (self._active, self._bodies)
        self._active, self._bodies = self._overtaken.pop(turn.id, (turn, []))
        self._accepted.pop(turn.request_id, None)
        waiting = list(self._parked)
        self._expecting = set(waiting)
        if turn.trigger == "auto-continuation":
            # Whoever answered is part of it, asked or not.
            waiting += [c for c in self.connections if c.key == turn.origin and c not in waiting]
        self._parked.clear()
        for connection in waiting:
            self._offer(connection, turn.request_id)

    def _ended(self, ended: TurnEnded) -> None:
        turn, status = ended.turn, ended.status
        self._accepted.pop(turn.request_id, None)
        self._overtaken.pop(turn.id, None)
        was_active = self._active is turn
        # One that was cleared away in mid-stream was stopped, for those who watched.
        outcome = "aborted" if status == "skipped" and was_active else status
        self._over[turn.request_id] = Over(ended, outcome)
        while len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]
        if was_active:
            self._active, self._bodies = None, []
            self._held.clear()
            if self._overtaken:
                self._active, self._bodies = self._overtaken.popitem()[1]
        if status == "skipped" and not was_active:
            stale = turn.generation != self.actor.generation
            self._all(self._done(turn, "skipped"), only=None if stale else turn.origin)
        elif status == "error" and not ended.streamed:
            self._all(self._failure(turn, ended.error or "", done=True))
        else:
            if status == "error":
                self._all(self._failure(turn, ended.error or "", done=False))
            silent = status == "completed" and not ended.stored and not turn.continuation
            done = self._done(turn, outcome, "No response was generated." if silent else "")
            self._over_and_stored(done, is_stored=ended.stored)
            if turn.id in self._restarted:
                # The hook of the tab that asked has put both beginnings into one answer: it is told last.
                self._snapshot()
        self._restarted.discard(turn.id)
        if not was_active and not self._accepted:
            self._refused()

    def _over_and_stored(self, done: wire.ResponseFrame, *, is_stored: bool) -> None:
        """Tell the end of a stream and the conversation as it is now.

        The conversation comes first: who reacts to the end finds it. Not so for windows that watch somebody
        else's continuation: they have added it to the message before, and while they believe that it streams
        they keep that beside the message in which it is stored.
        """
        watching = set(self.connections) - self._expecting
        if not (done.continuation and is_stored):
            watching = set[Connection]()
        self._all(done, among=watching)
        if is_stored:
            self._snapshot()
        self._all(done, among=set(self.connections) - watching)

    def _rewind(self, turn: Turn, at_once: bool) -> None:
        """The turn starts over: what was shown of it is over, and it streams anew."""
        self._overtaken.pop(turn.id, None)
        if self._active is not turn:
            return
        if at_once:
            self._bodies = []  # its next chunk is another start, under the message's new id
            self._restarted.add(turn.id)
            return
        self._all(self._done(turn, "recovering"))
        self._snapshot()
        self._active, self._bodies = None, []
        self._held.clear()
        self._accepted[turn.request_id] = turn

    def _refused(self) -> None:
        """Nothing will stream for those who were told to wait."""
        for connection in self._parked:
            connection.send(wire.ResumeNone())
        self._parked.clear()

    def _done(
        self,
        turn: Turn,
        outcome: Literal["completed", "error", "aborted", "skipped", "recovering"],
        body: str = "",
    ) -> wire.ResponseFrame:
        return wire.ResponseFrame(
            turn.request_id,
            body,
            True,
            outcome=outcome,
            continuation=turn.continuation,
            message_ids=turn.answers or None,
        )

    def _failure(self, turn: Turn, text: str, *, done: bool) -> wire.ResponseFrame:
        return wire.ResponseFrame(
            turn.request_id,
            text,
            done,
            error=True,
            continuation=turn.continuation,
            message_ids=turn.answers or None,
        )

    # --- sending

    def _all(
        self,
        frame: wire.ServerFrame,
        *,
        without: str | None = None,
        only: str | None = None,
        among: set[Connection] | None = None,
    ) -> None:
        readers = [c for c in self.connections if c.key != without and (only is None or c.key == only)]
        if among is not None:
            readers = [c for c in readers if c in among]
        if readers:
            parcel = Parcel((encode(frame),))
            for connection in readers:
                connection.send_all(parcel)

    def _snapshot(self, *, without: str | None = None, among: set[Connection] | None = None) -> None:
        self._all(wire.ChatMessages(self.messages), without=without, among=among)
        active = self._active
        if active is not None and active.continuation:
            # The window that goes on by itself has let its answer go: it shows it again with the next chunk.
            readers = {c for c in self.connections if c not in self._held}
            again = wire.ResponseFrame(active.request_id, NOTHING_NEW, False, continuation=True)
            self._all(again, without=without, among=readers if among is None else readers & among)

    def _show_cut(self, turn: Turn) -> None:
        """Show whoever asked what was stored of a message that was too large; the others see nothing else."""
        for message in self.actor.session.path:
            if message.id in turn.cut:
                self._all(wire.MessageChanged(message), only=turn.origin)

    @property
    def messages(self) -> list[Message]:
        """The conversation for a window.

        Without the answer of a continuation that streams, be its beginning stored because somebody wrote in
        the middle: windows add what they are streamed to the message before.
        """
        path, active = self.actor.session.path, self._active
        if active is None or not active.continuation:
            return list(path)
        return [message for message in path if message.id != active.message_id]

    @property
    def told(self) -> Long:
        """The same as JSON."""
        return self._told.of(self.messages, encode_json)

    def broadcast(self, message: str, *, without: Iterable[str] = ()) -> None:
        """Send text to every connection except those ids."""
        left_out, parcel = set(without), Parcel((message,))
        for connection in self.connections:
            if connection.id not in left_out:
                connection.send_all(parcel)

    # --- coming and going

    def names_for(self, asked: str | None, mark: str | None) -> tuple[str, str]:
        """The id and the key of a connection that calls itself `asked`, of the person with this mark.

        A client that comes back has the id that it had, be its old socket still there; one that another
        person has now is not given again. The key is the same whoever else is there.
        """
        fresh = str(uuid.uuid4())
        if not asked or not asked.isprintable() or len(asked) > self.actor.limits.id_chars:
            asked = fresh
        is_taken = any(c.id == asked and c.mark != mark for c in self._present)
        return fresh if is_taken else asked, asked if mark is None else f"{asked}\n{mark}"

    async def join(self, connection: Connection, request: Any) -> None:
        """Greet a new connection. Raises what the agent's connect hook raised."""
        self._present.append(connection)
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
            await call_hook(agent.on_connect, connection, request)
        finally:
            current_connection.reset(token)

    def _greet(self, connection: Connection) -> None:
        if self._active is not None:
            self._offer(connection, self._active.request_id)
        else:
            if self._accepted:
                self._parked[connection] = None
                connection.send(wire.StreamPending(next(reversed(self._accepted))))
            connection.send_all(Parcel((self._greeting.of(self.messages, _greeted),)))
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
        self.connections.append(connection)
        if self._closed is not None:
            connection.close(*self._closed)

    async def leave(self, connection: Connection, code: int, reason: str) -> None:
        """A connection is gone. Nothing stops because of it."""
        for present in (self.connections, self._present):
            if connection in present:
                present.remove(connection)
        self._corrected.pop(connection, None)
        self._held.discard(connection)
        self._parked.pop(connection, None)
        self._expecting.discard(connection)
        self.actor.emit(Disconnect(connection_id=connection.id, code=code, reason=reason))
        try:
            await call_hook(self.actor.agent.on_close, connection, code, reason)
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
                    await call_hook(self.actor.agent.on_message, connection, given)
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

    async def _handle(self, connection: Connection, frame: wire.ClientFrame) -> bool:
        permission = needed(frame, self.actor.cls)
        if permission is not None and not connection.may(permission):
            self._audit(connection, permission, target_of(frame), "no permission")
            self._refuse(connection, frame)
            return True
        match frame:
            case wire.UseChat():
                await self._request(connection, frame)
            case wire.CancelRequest(id):
                stopping.cancel(self.actor, id)
            case wire.ClearChat():
                await self._clear(connection)
                self._audit(connection, "clear")
            case wire.ClientMessages():
                log.info("a client sent its own transcript; the server's counts")
            case wire.ToolAnswered():
                async with self.continuations.lock:
                    await self._tool_answered(connection, frame)
            case wire.ApprovalAnswered():
                async with self.continuations.lock:
                    await self._approved(connection, frame)
            case wire.ResumeRequest(probe):
                # An answer in one tab is stored and shown before another tab is told where things stand.
                async with self.continuations.lock:
                    self._probed(connection, probe)
            case wire.ResumeAck(id):
                await self._acked(connection, id)
            case wire.SetState(state):
                await self._set_state(connection, state)
            case wire.CallMethod():
                self._begin_call(connection, frame)
            case _:
                assert_never(frame)
        return True

    # --- who may not

    def _is_over(self, connection: Connection) -> bool:
        """True for one that was closed from here, or whose time is over: what it still sends is not heard."""
        if not connection.is_closing and is_expired(connection, self.actor.clock):
            self._audit(connection, "connect", reason="expired")
            connection.close(*EXPIRED)
        return connection.is_closing or self._is_deaf

    def _refuse(self, connection: Connection, frame: wire.ClientFrame) -> None:
        """Tell a client that it may not do this, and how things really are."""
        if is_about_the_view(frame):
            self._correct(connection)
        answer = refused(frame, connection)
        if answer is not None:
            connection.send(answer)

    def _too_much(self, connection: Connection, refused: Refused) -> None:
        """Tell the sender of a frame that is over a bound, in the way that fits what it asked for."""
        told = answer_to(refused)
        if told is not None:
            if isinstance(told, wire.ResponseFrame):
                self._correct(connection)  # its list holds what was too much, and goes with each request
            connection.send(told)
        else:
            connection.close(POLICY_VIOLATION, refused.words[:MAX_REASON])
        self._audit(connection, "frame", refused.type, refused.why)

    def _correct(self, connection: Connection) -> None:
        """Show a client the conversation as it is, now and at most once in a while."""
        if connection in self._corrected:
            self._corrected[connection] = True
            return
        self._corrected[connection] = False
        connection.send(wire.ChatMessages(self.messages))

        def again() -> None:
            if self._corrected.pop(connection, False):
                self._correct(connection)

        self.actor.clock.call_later(CORRECTED_EVERY, again, housekeeping=True)

    def _audit(
        self, connection: Connection, action: str, target: str | None = None, reason: str | None = None
    ) -> None:
        """Tell observers what somebody did, or why they may not."""
        who: dict[str, Any] = {
            "identity": connection.who,
            "connection_id": connection.id,
            "address": connection.address,
        }
        cls, name = self.actor.cls.__name__, self.actor.name
        if self._access is None:
            body = Audit(action=action, allowed=reason is None, target=target, reason=reason, **who)
            self.actor.emit(body)
        elif reason is None:
            self._access.audit.did(cls, name, action, target=target, **who)
        else:
            self._access.audit.refused(cls, name, action, reason, target=target, **who)

    def _begin_call(self, connection: Connection, frame: wire.CallMethod) -> None:
        most = self.actor.limits.calls_at_once
        if connection.calls >= most:
            why = f"{most} calls of this connection run already; wait for one of them"
            connection.send(wire.CallResult(frame.id, success=False, error=why))
            self._audit(connection, "call", frame.method, f"{most} calls at once")
            return
        connection.calls += 1
        self.actor.background(self._call(connection, frame))

    async def _call(self, connection: Connection, frame: wire.CallMethod) -> None:
        try:
            await self._answer_call(connection, frame)
        finally:
            connection.calls -= 1

    async def _answer_call(self, connection: Connection, frame: wire.CallMethod) -> None:
        actor = self.actor
        why = await self._access.may_call(connection, actor.cls, actor.name) if self._access else None
        is_offered = callable_of(actor.cls, frame.method) is not None
        reason = "not authorized" if why is not None else None if is_offered else "not callable"
        self._audit(connection, "call", frame.method, reason)
        if why is not None:
            connection.send(wire.CallResult(frame.id, success=False, error=why))
        else:
            await answer_call(actor, connection, frame)

    async def _request(self, connection: Connection, frame: wire.UseChat) -> None:
        try:
            body = read_body(
                frame,
                new_id=self.actor.new_id,
                limits=self.actor.limits,
                trusts=self.actor.trusts_clients,
            )
        except AgentError as error:
            said = await explain(self.actor, error, "parse", frame.id, False, identity=connection.who)
            self._correct(connection)  # what cannot be read is in its list, and goes with each request
            connection.send(wire.ResponseFrame(frame.id, said.shown, True, error=True))
            return
        if body is None:
            return
        frame.init.body = None  # it may be long, and has been read
        tools = connection.client_tools if body.client_tools is None else body.client_tools
        request = ChatRequest(
            frame.id,
            body.messages,
            "regenerate-message" if body.regenerates else "submit-message",
            tools,
            body.custom,
            channel="web",
            origin=connection.key,
            is_readonly=connection.is_readonly,
            identity=connection.who,
            may_clear="clear" in connection.permissions,
        )
        try:
            accepted = await accept_request(self.actor, request)
            connection.client_tools = tools
        except (CommitInDoubt, LeaseLost) as error:
            # The agent has left memory, this socket is closed: the window comes back and sees what is stored.
            log.info("the request %s is not answered: %s", frame.id, error)
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the window must not wait for ever
            said = await explain(self.actor, error, "persist", frame.id, False, identity=connection.who)
            if body.messages and self.actor.session.find(body.messages[-1].id) is not None:
                self._correct(connection)  # it shows a change of what was said; nothing new is lost by it
            connection.send(wire.ResponseFrame(frame.id, said.shown, True, error=True))
            return
        if isinstance(accepted, Dropped):
            connection.send(wire.ChatMessages(self.messages))
            ids = trailing(body.messages) or None
            connection.send(wire.ResponseFrame(frame.id, "", True, outcome="skipped", message_ids=ids))

    async def _clear(self, connection: Connection) -> None:
        token = _clearing.set(connection.key)
        try:
            for one in self.connections:
                one.client_tools = []
            self.actor.open_tools, self.actor.last_body, self.actor.tools_by = [], None, None
            forget = [self.actor.save_value(key, None) for key in ("openTools", "openToolsBy", "lastBody")]
            await self.actor.store.apply(forget)
            await control.clear(self.actor)
        finally:
            _clearing.reset(token)

    async def _tool_answered(self, connection: Connection, frame: wire.ToolAnswered) -> None:
        actor, more = self.actor, self._wish(connection, frame.auto_continue)
        if frame.client_tools:
            try:
                bounded_tools(frame.client_tools, actor.limits)
            except AgentError as error:
                log.info("a tool result is ignored: %s", error)
                return
            more.append(actor.save_value("openTools", frame.client_tools))
            more.append(actor.save_value("openToolsBy", connection.mark))
        output, failed, text = frame.output, frame.state == "output-error", frame.error_text
        size = len(encode_json([output, text]))
        if size > actor.limits.tool_result_bytes:
            output, failed = None, True
            text = f"The result has {size} bytes, more than {actor.limits.tool_result_bytes}."
        changed = await control.apply_result(
            actor,
            frame.tool_call_id,
            output,
            is_error=failed,
            error_text=text,
            more=more,
            is_strangers=True,
            by=connection.who,
        )
        if changed:
            if frame.client_tools:
                connection.client_tools = actor.open_tools = frame.client_tools
                actor.tools_by = connection.mark
            self._answered(connection, frame.auto_continue)
        else:
            self._audit(connection, "answer", frame.tool_call_id, NOT_OPEN)

    async def _approved(self, connection: Connection, frame: wire.ApprovalAnswered) -> None:
        more = self._wish(connection, frame.auto_continue)
        changed = await control.apply_approval(
            self.actor,
            frame.tool_call_id,
            frame.approved,
            more=more,
            is_strangers=True,
            by=connection.who,
        )
        if changed:
            self._audit(connection, "approval" if frame.approved else "denial", frame.tool_call_id)
            self._answered(connection, frame.auto_continue)
        else:
            self._audit(connection, "approval", frame.tool_call_id, NOT_OPEN)

    def _wish(self, connection: Connection, goes_on: bool) -> list[Statement]:
        if not goes_on:
            return []
        wish = self.continuations.wish(
            connection.key, is_readonly=connection.is_readonly, identity=connection.who
        )
        return [wish]

    def _answered(self, connection: Connection, goes_on: bool) -> None:
        self.continuations.answered(
            auto_continue=goes_on,
            owner=connection.key,
            is_readonly=connection.is_readonly,
            identity=connection.who,
        )

    # --- resuming

    def _view(self) -> View:
        active, armed = self._active, self.continuations.pending
        waiting = next((t for t in self._accepted.values() if t.trigger == "auto-continuation"), None)
        accepted = next((t for t in reversed(self._accepted.values()) if t is not waiting), None)
        owner = active.origin if active and active.trigger == "auto-continuation" else None
        failure = self.actor.last_failure
        pending = (armed.request_id, armed.owner) if armed else None
        if waiting is not None:
            pending = (waiting.request_id, waiting.origin)
        return View(
            active=active.request_id if active else None,
            active_owner=owner if self._is_here(owner) else None,
            continuation=pending[0] if pending else None,
            continuation_owner=pending[1] if pending and self._is_here(pending[1]) else None,
            failed=failure["id"] if failure else None,
            accepted=accepted.request_id if accepted else None,
        )

    def _is_here(self, id: str | None) -> bool:
        return id is not None and any(c.key == id for c in self.connections)

    def _probed(self, connection: Connection, probe: str | None) -> None:
        view = self._view()
        if connection in self._held:
            # It was offered the stream when it came, and perhaps before anybody in it listened.
            view = dataclasses.replace(view, active_owner=None)
        match answer_probe(view, connection.key):
            case Offer(id, holds):
                self._offer(connection, id, probe, holds=holds)
            case Wait(id):
                self._parked[connection] = None
                connection.send(wire.StreamPending(id, probe))
            case Nothing(reason):
                connection.send(wire.ResumeNone("idle" if reason == "idle" else "continuation-owned", probe))

    def _offer(
        self, connection: Connection, id: str, probe: str | None = None, *, holds: bool = True
    ) -> None:
        if holds:
            self._held.add(connection)
        connection.offers.offer(id)
        connection.send(wire.StreamResuming(id, probe))

    async def _acked(self, connection: Connection, id: str) -> None:
        answer = answer_ack(self._view(), id)
        # What is not known costs nothing to say; the rest is told once for each offer.
        is_long = not isinstance(answer, Ignore) and (not isinstance(answer, Ended) or id in self._over)
        if is_long and not connection.offers.take(id, self.actor.limits.replays):
            self._held.discard(connection)  # it goes on live from here
            return
        match answer:
            case Replay():
                self._replay(connection)
            case Failed():
                if self.actor.last_failure is not None:
                    await tell_failure(self.actor, connection, self.actor.last_failure)
            case Ended():
                await tell_end(self.actor, connection, id, self._over.get(id))
            case Ignore():
                pass

    def _replay(self, connection: Connection) -> None:
        turn = self._active
        assert turn is not None
        id, continues = turn.request_id, turn.continuation
        is_late = connection not in self._expecting
        connection.send_all(replayed_frames(id, self._bodies, continuation=continues, is_late=is_late))
        connection.send(
            wire.ResponseFrame(id, "", False, replay=True, replay_complete=True, continuation=continues)
        )
        self._held.discard(connection)

    # --- state and calls

    async def _set_state(self, connection: Connection, state: Any) -> None:
        most = self.actor.limits.state_bytes
        if len(encode_json(state)) > most:
            self._audit(connection, "state", reason=f"more than {most} bytes")
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


def _session_frame(news: SessionNews) -> wire.ServerFrame:
    if isinstance(news, CompactionFailed):
        return wire.SessionError(news.for_people)
    compacted = None if news.tokens_before is None else wire.Compacted(news.tokens_before)
    return wire.SessionStatus(news.phase, news.token_estimate, news.token_threshold, compacted)
