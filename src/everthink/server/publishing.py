"""What an agent shows becomes frames for those who read along.

    feed --FeedEvent--> Publisher --frames--> Audience

What the events mean for the turns is `FeedState`'s to say; here is who is told of it, and in which order:
windows rely on it.
"""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from typing import Literal, assert_never

from ..empty import NONE
from ..journal.feed import (
    AgentLeft,
    ChunksStored,
    Cleared,
    ContinuationDropped,
    FeedEvent,
    HistoryChanged,
    MessageUpdated,
    RecoveryChanged,
    RunProgressed,
    RunTold,
    ServersChanged,
    SessionTold,
    StateChanged,
    TurnAccepted,
    TurnEnded,
    TurnRewound,
    TurnStarted,
)
from ..journal.feed_state import Ended, FeedState, Said
from ..journal.turn import Turn
from ..session.compaction import CompactionFailed, SessionNews
from ..turn.host import TurnHost
from ..wire import frames as wire
from .audience import ChatAudience
from .connections import Connection
from .resuming import chunk_frames, replayed_frames, without_elsewhere

__all__ = ["Publisher", "clearing"]

ERASED = "This conversation was deleted."
"""What people are told of an answer that is cut off so."""
clearing: contextvars.ContextVar[str | None] = contextvars.ContextVar("everthink_clearing", default=None)
"""The connection whose clear this is: it has emptied its own window already."""


class Publisher:
    """Tells the audience of one agent what happens."""

    def __init__(self, host: TurnHost, audience: ChatAudience, state: FeedState) -> None:
        self._host, self._audience, self._state = host, audience, state

    def see(self, shown: FeedEvent) -> None:
        """Tell of an event."""
        if isinstance(shown, TurnRewound):
            self._rewind(shown)
            return
        change = self._state.apply(shown)
        if isinstance(change, Said):
            self._say(change)
        elif isinstance(change, Ended):
            self._end(change)
        else:
            self._tell(shown)

    def _tell(self, shown: FeedEvent) -> None:
        tell = self._audience.tell
        match shown:
            case TurnAccepted() | TurnStarted() | ChunksStored() | TurnRewound() | TurnEnded():
                pass  # those who read along are told of what it changed
            case HistoryChanged():
                self._history(shown)
            case MessageUpdated(message):
                tell(wire.MessageChanged(message))
            case RecoveryChanged(turn, recovering):
                tell(wire.Recovering(recovering, turn.request_id))
            case SessionTold(news):
                tell(_session_frame(news))
            case ContinuationDropped():
                self._audience.dismiss()
            case StateChanged() | ServersChanged() | RunTold() | RunProgressed():
                pass  # `AgentSockets` tells of it
            case AgentLeft():
                pass  # its sockets are closed by whoever made it leave
            case Cleared():
                self._audience.dismiss()
                tell(wire.ClearChat(), without=clearing.get())
            case _:
                assert_never(shown)

    # --- a turn streams

    def begin(self, turn: Turn) -> None:
        """A turn streams from now on: whoever waits for it is offered it."""
        audience = self._audience
        waiting = list(audience.parked)
        audience.expecting = frozenset(waiting)
        if turn.trigger == "auto-continuation":
            # Whoever answered is part of it, asked or not.
            waiting += [c for c in audience.connections if c.key == turn.origin and c not in waiting]
        audience.parked.clear()
        for connection in waiting:
            audience.offer(connection, turn.request_id)

    def _say(self, said: Said) -> None:
        turn = said.turn
        if said.has_begun:
            self.begin(turn)
        readers = [c for c in self._audience.connections if c not in self._audience.held]
        if not readers:
            return
        if said.is_anew:
            self._begin_anew(turn, said.bodies, readers)
        parcel = chunk_frames(turn.request_id, said.bodies, said.first, continuation=turn.continuation)
        apart = self._audience.going_on_apart & set(readers) if turn.continuation else NONE
        for connection in readers:
            if connection not in apart:
                connection.send_all(parcel)
        if apart:
            bodies = without_elsewhere(self._state.bodies, said.first)
            parcel = chunk_frames(turn.request_id, bodies, said.first, continuation=True)
            for connection in apart:
                connection.send_all(parcel)

    def _begin_anew(self, turn: Turn, bodies: Sequence[str], readers: Sequence[Connection]) -> None:
        """Windows that watch forget the first beginning: a start that is told again empties their answer.

        The one that asked cannot, and is put right at the end.
        """
        watching = {c for c in readers if c.key != turn.origin}
        start = replayed_frames(turn.request_id, bodies[:1], continuation=turn.continuation, is_late=False)
        for connection in watching:
            connection.send_all(start)
        self._audience.snapshot(among=watching)

    def _rewind(self, shown: TurnRewound) -> None:
        """The turn starts over: what was shown of it is over, and it streams anew."""
        if self._state.active is shown.turn and not shown.at_once:
            # Windows are told before it is so: what they show is still that of the stream.
            self._audience.tell(_done(shown.turn, "recovering"))
            self._audience.snapshot()
            self._audience.held = NONE
        self._state.apply(shown)

    # --- its end

    def _end(self, ended: Ended) -> None:
        shown = ended.event
        turn, status = shown.turn, shown.status
        if ended.was_active:
            self._audience.held = NONE
        if status == "skipped" and not ended.was_active:
            stale = turn.generation != self._host.generation
            self._audience.tell(_done(turn, "skipped"), only=None if stale else turn.origin)
        elif status == "error" and not shown.streamed:
            self._audience.tell(_failure(turn, shown.error or "", done=True))
        else:
            self._end_stream(ended)
        if not ended.was_active and not self._state.accepted:
            self._audience.dismiss()

    def _end_stream(self, ended: Ended) -> None:
        shown = ended.event
        turn, status = shown.turn, shown.status
        if status == "error":
            self._audience.tell(_failure(turn, shown.error or "", done=False))
        silent = status == "completed" and not shown.stored and not turn.continuation
        done = _done(turn, ended.outcome, "No response was generated." if silent else "")
        # A continuation in which a tool asked again has said nothing, and has changed the message before.
        asked = status == "completed" and turn.continuation and not shown.stored
        self._over_and_stored(done, is_stored=shown.stored or asked)
        if ended.was_restarted:
            # The hook of the tab that asked has put both beginnings into one answer: it is told last.
            self._audience.snapshot()

    def _over_and_stored(self, done: wire.ResponseFrame, *, is_stored: bool) -> None:
        """Tell the end of a stream and the conversation as it is now.

        The conversation comes first: who reacts to the end finds it. Not so for windows that watch somebody
        else's continuation: they have added it to the message before, and while they believe that it streams
        they keep that beside the message in which it is stored.
        """
        audience = self._audience
        watching = set(audience.connections) - audience.expecting
        if not (done.continuation and is_stored):
            watching = set[Connection]()
        audience.tell(done, among=watching)
        if is_stored:
            audience.snapshot()
        audience.tell(done, among=set(audience.connections) - watching)

    def erased(self) -> None:
        """The agent is deleted: what was asked for, or streams, comes to no other end."""
        tell, active = self._audience.tell, self._state.active
        for turn in self._state.accepted.values():
            tell(_failure(turn, ERASED, done=True))
        if active is not None:
            tell(_failure(active, ERASED, done=False))
            tell(_done(active, "error"))

    # --- the conversation

    def _history(self, shown: HistoryChanged) -> None:
        turn = shown.turn
        if shown.what == "input":
            asked = turn is not None and turn.trigger == "ws-chat"
            self._audience.snapshot(without=turn.origin if turn and asked else None)
            if turn is not None and asked and turn.cut:
                self._show_cut(turn)
        elif shown.what == "other":
            self._audience.snapshot()

    def _show_cut(self, turn: Turn) -> None:
        """Show whoever asked what was stored of a message that was too large; the others see nothing else."""
        for message in self._host.session.path:
            if message.id in turn.cut:
                self._audience.tell(wire.MessageChanged(message), only=turn.origin)


def _done(
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


def _failure(turn: Turn, text: str, *, done: bool) -> wire.ResponseFrame:
    return wire.ResponseFrame(
        turn.request_id,
        text,
        done,
        error=True,
        continuation=turn.continuation,
        message_ids=turn.answers or None,
    )


def _session_frame(news: SessionNews) -> wire.ServerFrame:
    if isinstance(news, CompactionFailed):
        return wire.SessionError(news.for_people)
    compacted = None if news.tokens_before is None else wire.Compacted(news.tokens_before)
    return wire.SessionStatus(news.phase, news.token_estimate, news.token_threshold, compacted)
