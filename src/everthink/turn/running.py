"""What a turn is while it runs: its accumulator, its writer, and the one way to say something.

    turn/loop, turn/calls --say(chunk)--> fold + writer

Folding and writing happen without an await in between, so the message in memory and the chunks in
the journal can never disagree.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

from .. import chunks as ui
from ..abort import AbortController, AbortSignal
from ..clock import Timer
from ..errors import StreamStalled, TooDeep
from ..hooks.values import (
    ChunkContext,
    OnChunk,
    StoppedBy,
)
from ..journal.feed import MessageUpdated
from ..journal.fold import (
    Accumulator,
    CrossMessage,
    is_replay,
)
from ..journal.interactions import holder_of, settled_across
from ..journal.turn import Turn
from ..journal.writer import StreamWriter
from ..messages import DEEPEST, depth_of
from ..models.port import ModelMessage, Usage
from ..observe.events import ChatStreamStalled
from ..store.port import Statement
from .assemble import Assembled
from .host import TurnHost

__all__ = ["Run", "StallTimer"]

_DEEPEST = DEEPEST - 8
"""A chunk's values lie deeper in the message that it becomes part of."""
_MAY_REPEAT = frozenset(
    {ui.ToolInputStart, ui.ToolInputDelta, ui.ToolInputAvailable, ui.ToolOutputDenied, ui.ToolApprovalRequest}
)


class StallTimer:
    """Aborts a turn that has said nothing for too long."""

    def __init__(self, host: TurnHost, turn: Turn, seconds: float, abort: AbortController) -> None:
        self._host, self._turn, self._seconds, self._abort = host, turn, seconds, abort
        self._timer: Timer | None = None

    def reset(self) -> None:
        """Something was said: wait anew."""
        self.stop()
        self._timer = self._host.clock.call_later(self._seconds, self._expire)

    def stop(self) -> None:
        """Wait no longer."""
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        self._host.emit(
            ChatStreamStalled(request_id=self._turn.request_id, timeout_ms=round(self._seconds * 1000))
        )
        self._abort.abort(StreamStalled(self._seconds))


class Run:
    """A running turn."""

    def __init__(self, host: TurnHost, turn: Turn) -> None:
        self.host, self.turn = host, turn
        journal = turn.journal
        self.fold = journal.fold if journal else Accumulator(turn.message_id, continuation=turn.continuation)
        self._first = journal.next_seq if journal else 0
        self.writer = StreamWriter(
            turn, store=host.store, clock=host.clock, feed=host.feed, first=self._first
        )
        # Of this attempt: fires when the turn is aborted, and when it is given up to be picked up again.
        self.abort = AbortController()
        self.unlink = turn.signal.on_abort(lambda signal: self.abort.abort(signal.reason))
        self.assembled: Assembled | None = None
        self.output: Any = None
        self.stopped_by: StoppedBy | None = None
        self.asked: Sequence[ModelMessage] = ()
        """What the model was asked last."""
        self.usage = Usage()
        """What the provider reported for the steps of this attempt."""
        self.watches_chunks = host.hooks.hears("on_chunk")
        self._stall_timer: StallTimer | None = None
        # Once closed nothing more is said: a tool that ignored the abort finishes in vain.
        self.is_closed = False

    @property
    def signal(self) -> AbortSignal:
        """Fires when this attempt should stop."""
        return self.abort.signal

    @property
    def is_silent(self) -> bool:
        """True when this attempt has said nothing that a reader would notice."""
        return self.writer.next_seq <= self._first + 2  # a start, and the start of a step

    def note_progress(self) -> None:
        """Something came from the model, though nothing that is said."""
        if self._stall_timer is not None:
            self._stall_timer.reset()

    def say(self, chunk: ui.Chunk, *statements: Statement) -> None:
        """Fold a chunk, journal it with its statements, and have it shown once durable.

        Raises when it has no JSON form; then nothing was said.
        """
        if self.is_closed:
            return
        if type(chunk) in _MAY_REPEAT and is_replay(chunk, self.fold):
            return
        # Written first: what cannot be kept is not part of the message either.
        body = ui.encode(chunk)
        if len(body) > _DEEPEST and depth_of(body) > _DEEPEST:
            raise TooDeep(_DEEPEST)
        action = self.fold.apply(chunk)
        if type(action) is CrossMessage:
            statements = (*statements, *self._across(action))
        self.writer.put(chunk, body, *statements)
        if self._stall_timer is not None:
            self._stall_timer.reset()

    @contextlib.contextmanager
    def watched(self, seconds: float) -> Generator[None]:
        """Give the attempt up when nothing is said for `seconds`; 0 never does."""
        if seconds <= 0:
            yield
            return
        stall_timer = self._stall_timer = StallTimer(self.host, self.turn, seconds, self.abort)
        stall_timer.reset()
        try:
            yield
        finally:
            self._stall_timer = None
            stall_timer.stop()

    def _across(self, outcome: CrossMessage) -> list[Statement]:
        session = self.host.session
        # A regeneration may go on from a message of another branch: it is told the outcome, too.
        history = self.assembled.history if self.assembled is not None else []
        holder = holder_of(reversed(session.path), outcome.tool_call_id)
        holder = holder or holder_of(reversed(history), outcome.tool_call_id)
        parts = settled_across(holder.parts, outcome) if holder else None
        if holder is None or parts is None:
            return []
        changed = holder.with_parts(parts)
        plan = session.plan_update(changed)

        def confirm() -> None:
            session.confirm(plan, [[(changed.id,)]])
            self.host.feed.publish(MessageUpdated(changed))

        # In memory at once: the next outcome in this batch builds on it. Readers see it after the commit.
        session.apply_early(changed)
        history[:] = [changed if message.id == changed.id else message for message in history]
        self.writer.afterwards(confirm)
        return plan.statements

    async def tell(self, chunk: OnChunk) -> None:
        """Let `on_chunk` see a piece of the answer. What it raises changes nothing."""
        if self.watches_chunks:
            await self.host.hooks.on_chunk(ChunkContext(chunk))
