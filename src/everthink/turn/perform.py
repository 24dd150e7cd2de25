"""Perform one admitted turn: input into the conversation, assemble, loop, end.

    admission --> perform --> Outcome --> response hook, caller

The end of a turn is one commit: its last chunks, its message and its row. A failing turn stores
what it had first, then asks `on_chat_error` what to say. If the process is stopped in here the
row stays `running` and the journal holds what was shown: recovery goes on from there.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, cast

from ..abort import AbortController
from ..errors import CommitRefused, ModelError, StoreError, StreamStalled
from ..messages import Message, as_messages
from ..observe.events import ChatRequestFailed, ChatTurnFinish, ChatTurnStart, MessageError
from ..session.tree import Plan
from ..store.port import Statement
from . import queries
from .assemble import assemble
from .audience import HistoryChanged, TurnEnded, TurnStarted
from .fold import fold
from .hooks import ChatErrorContext, ChatResponse, Stage, TurnResult, TurnStatus, call_hook
from .loop import Loop
from .run import Run
from .segments import unpack
from .turn import Host, Turn

__all__ = ["Outcome", "end_unstarted", "explain", "perform", "with_stamps"]

log = logging.getLogger("everthink.turn")

SEGMENT_GRACE_MS = 10 * 60 * 1000


@dataclass(slots=True)
class Outcome:
    """How a turn ended. `error` is the exception, `text` what people may read of it."""

    turn: Turn
    status: TurnStatus
    error: BaseException | None = None
    text: str | None = None
    stage: Stage = "stream"
    message: Message | None = None
    output: Any = None
    fires_response: bool = False

    @property
    def is_setup_failure(self) -> bool:
        """True when the turn failed before the model was asked."""
        return self.status == "error" and self.stage in ("turn", "persist")

    def raise_setup_failure(self) -> None:
        """Raise what kept the turn from being set up, if anything did."""
        if self.is_setup_failure and self.error is not None:
            raise self.error

    def result(self) -> TurnResult:
        """What the turn APIs give back."""
        return TurnResult(
            request_id=self.turn.request_id,
            status=self.status,
            continuation=self.turn.continuation,
            error=self.text if self.status != "aborted" else _reason(self.turn),
            message=self.message.copy() if self.message else None,
            output=self.output,
        )

    def response(self) -> ChatResponse | None:
        """What `on_chat_response` is given; `None` when it does not fire."""
        if not self.fires_response or self.status == "skipped":
            return None
        message = self.message or Message(self.turn.message_id, "assistant", [])
        return ChatResponse(
            message.copy(), self.turn.request_id, self.turn.continuation, self.status, self.text, self.output
        )


async def perform(host: Host, turn: Turn, abort: AbortController) -> Outcome:
    """Run the turn to its end. Only being stopped from outside (shutdown) raises."""
    began = host.clock.monotonic()
    common: dict[str, Any] = {
        "request_id": turn.request_id,
        "trigger": turn.trigger,
        "admission": turn.admission,
        "continuation": turn.continuation or None,
        "generation": turn.generation,
    }
    host.emit(ChatTurnStart(**common))
    outcome = await _performed(host, turn, abort)
    host.emit(
        ChatTurnFinish(
            **common,
            status=outcome.status,
            duration_ms=round((host.clock.monotonic() - began) * 1000),
            error=outcome.text,
            error_type=type(outcome.error).__name__ if outcome.error else None,
        )
    )
    return outcome


async def _performed(host: Host, turn: Turn, abort: AbortController) -> Outcome:
    try:
        if not await _apply_input(host, turn):
            return await end_unstarted(host, turn, _stopped(host, turn))
    except Exception as error:  # noqa: BLE001 - the input function or the store failed
        return await _failed(host, turn, error, "persist" if isinstance(error, StoreError) else "turn", None)
    if turn.signal.aborted:
        return await end_unstarted(host, turn, _stopped(host, turn), fires_response=turn.is_applied)
    run = Run(host, turn)
    host.inflight = run.fold
    work = asyncio.ensure_future(_work(run, abort))
    unlink = turn.signal.on_abort(lambda _: work.cancel())
    run.writer.on_failure = work.cancel
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        work.cancel()  # stopped from outside: the journal has all that was shown
        run.is_closed = True
        raise
    finally:
        unlink()
        host.inflight = None
    try:
        return await _ended(host, run, work)
    finally:
        run.is_closed = True


async def _work(run: Run, abort: AbortController) -> None:
    run.assembled = await assemble(run.host, run.turn)
    loop = Loop(run, run.assembled, abort)
    try:
        await loop.run()
    finally:
        run.writer.hold()
        if loop.abandon():
            run.writer.also(queries.abandoned(run.host.id, run.turn.id, now=run.host.clock.now_ms()))


async def _ended(host: Host, run: Run, work: asyncio.Future[None]) -> Outcome:
    turn = run.turn
    failure = None if work.cancelled() else work.exception()
    broken: StoreError | None = None
    try:
        await run.writer.pause()
        await host.session.refresh()
    except StoreError as error:
        broken = error
    # From here to the last commit nothing is awaited, so a reset comes either before or after it.
    if host.generation != turn.generation:
        # Cleared or reset meanwhile: nothing of this turn belongs into the new conversation.
        return await end_unstarted(host, turn, "skipped")
    if broken is not None:
        return await _failed(host, turn, broken, "stream", run)
    if work.cancelled():
        status: TurnStatus = "aborted"
        if isinstance(turn.signal.reason, StreamStalled):
            return await _failed(host, turn, turn.signal.reason, "stream", run)
    elif failure is not None:
        status = "error"
    else:
        status = "completed"
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    if isinstance(failure, Exception):
        return await _failed(host, turn, failure, "stream" if run.assembled else "turn", run)
    reason = _reason(turn) if status == "aborted" else None
    try:
        message = await _store(
            host, run, [queries.ended(host.id, turn.id, status=status, error=reason, now=host.clock.now_ms())]
        )
    except StoreError as error:
        return await _failed(host, turn, error, "stream", run)
    host.audience.show(TurnEnded(turn, status, streamed=run.writer.streamed, stored=message is not None))
    return Outcome(turn, status, message=message, output=run.output, fires_response=True)


def _stopped(host: Host, turn: Turn) -> TurnStatus:
    return "skipped" if host.generation != turn.generation else "aborted"


def _reason(turn: Turn) -> str | None:
    return None if turn.signal.reason is None else str(turn.signal.reason)


async def _store(host: Host, run: Run, last: list[Statement]) -> Message | None:
    """Store the answer with the turn's last chunks and `last`, in one commit."""
    plan = Plan()
    if run.fold.has_content:
        message = run.fold.message()
        # A client that sends again while this turn streams posts the answer as far as it has seen it.
        plan = (
            host.session.plan_update(message)
            if host.session.expects(message.id)
            else host.session.plan_append([message], run.turn.parent)
        )
    run.is_closed = True

    def confirm() -> None:
        host.session.confirm(plan, [[(message.id,)] for message, _, _ in plan.writes])

    run.writer.afterwards(confirm)
    try:
        await run.writer.close([*plan.statements, *last, *_pruning(host)])
    except BaseException:
        host.session.fail()
        raise
    if not plan.writes:
        return None
    host.audience.show(HistoryChanged(run.turn, "answer"))
    return plan.writes[0][0]


async def _store_shown(host: Host, run: Run) -> Message | None:
    """Store what readers have seen of an answer whose chunks could not all be written."""
    run.is_closed = True
    rows = await host.store.fetch(queries.SEGMENTS, host.id, run.turn.id)
    shown = fold((chunk for row in rows for chunk in unpack(row[0])), id=run.turn.message_id)
    if not shown.has_content:
        return None
    await host.session.refresh()
    plan = host.session.plan_append([shown.message()], run.turn.parent)
    await host.session.write(plan)
    host.audience.show(HistoryChanged(run.turn, "answer"))
    return plan.writes[0][0] if plan.writes else None


def _pruning(host: Host) -> list[Statement]:
    """Now and then: drop the chunks of turns that ended long ago."""
    now = host.clock.now_ms()
    if now < host.prunes_at:
        return []
    host.prunes_at = now + SEGMENT_GRACE_MS
    return [queries.pruned(host.id, before=now - SEGMENT_GRACE_MS)]


async def _failed(host: Host, turn: Turn, error: Exception, stage: Stage, run: Run | None) -> Outcome:
    """Store the partial answer, then ask what to say, then end the row."""
    message: Message | None = None
    is_kept = True
    if run is not None:
        try:
            message = await (_store_shown(host, run) if run.writer.is_broken else _store(host, run, []))
        except StoreError as broken:
            log.error("the partial answer of turn %s could not be stored: %s", turn.id, broken)
            is_kept = False
    told, text = await explain(host, error, stage, turn.request_id, turn.is_applied)
    if is_kept:  # otherwise it stays open, and the next start brings back what the journal holds
        try:
            failure = {
                "id": turn.request_id,
                "turn": turn.id,
                "error": text,
                "messageIds": turn.answers,
                "continuation": turn.continuation,
            }
            await host.store.apply(
                [
                    queries.ended(host.id, turn.id, status="error", error=text, now=host.clock.now_ms()),
                    host.remember("lastFailure", failure),
                ]
            )
            host.last_failure = failure
        except StoreError as broken:
            log.error("turn %s failed and could not be ended: %s", turn.id, broken)
    streamed = run.writer.streamed if run else False
    host.audience.show(TurnEnded(turn, "error", text, streamed=streamed, stored=message is not None))
    return Outcome(
        turn, "error", error=told, text=text, stage=stage, message=message, fires_response=message is not None
    )


async def explain(
    host: Host, error: Exception, stage: Stage, request_id: str | None, persisted: bool
) -> tuple[BaseException, str]:
    """Ask `on_chat_error` what to say of a failure, and tell observers. Once per failed turn."""
    overflows = isinstance(error, ModelError) and error.kind == "context_overflow"
    context = ChatErrorContext(stage, persisted, request_id, "context_overflow" if overflows else None)
    told: Any = error
    try:
        answer = await call_hook(host.agent.on_chat_error, error, context)
        told = error if answer is None else answer
    except Exception as raised:  # noqa: BLE001 - the original error matters more
        host.complain("on_chat_error", raised)
    text = str(told) or type(told).__name__
    # Observers get the error itself; what people read may say less.
    detail = str(error) or type(error).__name__
    host.emit(MessageError(error=detail))
    host.emit(
        ChatRequestFailed(request_id=request_id, stage=stage, messages_persisted=persisted, error=detail)
    )
    return told if isinstance(told, BaseException) else error, text


async def end_unstarted(
    host: Host, turn: Turn, status: TurnStatus, *, fires_response: bool = False, error: str | None = None
) -> Outcome:
    """End a turn that says nothing: aborted before it began, superseded, or reset."""
    text = error or (_reason(turn) if status == "aborted" else None)
    await host.store.apply(
        [queries.ended(host.id, turn.id, status=status, error=text, now=host.clock.now_ms())]
    )
    host.audience.show(TurnEnded(turn, status, streamed=False))
    return Outcome(turn, status, fires_response=fires_response)


async def _apply_input(host: Host, turn: Turn) -> bool:
    """Put the turn's messages into the conversation and its row to `running`. False: it may not begin."""
    if turn.trigger == "submission" and turn.signal.aborted:
        return False
    messages: list[Message] = []
    if not turn.is_applied:
        messages = await _resolved(host, turn)
        if turn.trigger == "submission" and turn.signal.aborted:
            return False
        turn.message_ids = [message.id for message in messages]
    if not (turn.is_applied and turn.is_started):
        await host.session.refresh()
        if host.generation != turn.generation:
            return False
        plan = host.session.plan_append(messages)
        more = [] if turn.is_started else [queries.started(host.id, turn.id, now=host.clock.now_ms())]
        try:
            if plan.statements or more:
                await host.session.write(plan, *more)
        except CommitRefused:
            return False  # cancelled or reset at this very moment: the row is over already
    turn.is_applied = turn.is_started = True
    host.audience.show(TurnStarted(turn))
    if turn.watch is not None:
        await turn.watch("running", None)
    if messages:
        host.audience.show(HistoryChanged(turn, "input"))
    return True


async def _resolved(host: Host, turn: Turn) -> list[Message]:
    if turn.compute_input is None:
        return turn.input
    await host.session.refresh()
    produced = turn.compute_input([message.copy() for message in host.session.path])
    if inspect.isawaitable(produced):
        produced = await cast("Awaitable[Any]", produced)
    messages = as_messages(cast("Any", produced), new_id=host.new_id)
    return [with_stamps(message, turn.channel, turn.metadata) for message in messages]


def with_stamps(message: Message, channel: str | None, metadata: dict[str, Any] | None) -> Message:
    """A user message stamped with the turn's channel and metadata."""
    if message.role != "user" or (channel is None and metadata is None):
        return message
    stamps: dict[str, Any] = dict(message.metadata or {})
    if channel is not None:
        stamps["channel"] = channel
    if metadata is not None:
        stamps["turnMetadata"] = metadata
    return Message(message.id, message.role, message.parts, stamps, createdAt=message.createdAt)
