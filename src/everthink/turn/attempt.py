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
from ..calling import ask
from ..errors import UNTOLD, CommitRefused, ModelError, StoreError, StreamCut, StreamStalled, is_for_people
from ..hooks.values import (
    ChatErrorContext,
    Stage,
    TurnStatus,
)
from ..journal import queries
from ..journal.feed import (
    HistoryChanged,
    TurnEnded,
    TurnRewound,
    TurnStarted,
)
from ..journal.read import (
    Journal,
    keep_answer,
    read_journal,
)
from ..journal.turn import Turn
from ..journal.turn_input import encode_input
from ..masking import mask
from ..messages import Message, as_messages
from ..observe.events import ChatRequestFailed, ChatStreamCut, ChatTurnFinish, ChatTurnStart, MessageError
from ..session.session_queries import used
from ..session.tree import Plan
from ..store.port import Statement
from .assemble import assemble
from .host import Host
from .loop import Loop
from .outcome import Outcome, Postponed, reason_of
from .overflow import classified, make_room, overflow_of
from .running import Run
from .said_before import refuse_other_words

__all__ = [
    "Explained",
    "close",
    "closing",
    "end_unstarted",
    "explain",
    "perform",
    "remembered",
    "with_stamps",
]

log = logging.getLogger("everthink.turn")

SEGMENT_GRACE_MS = 10 * 60 * 1000
LONGEST_BREATH = 30.0
"""Seconds before a provider that breaks off again and again is asked once more."""


async def perform(host: Host, turn: Turn, abort: AbortController) -> Outcome | Postponed:
    """Run the turn to its end. Only being stopped from outside (shutdown) raises.

    A turn that was cut off is picked up first, and again whenever it stalls.
    """
    began = host.clock.monotonic()
    common: dict[str, Any] = {
        "request_id": turn.request_id,
        "trigger": turn.trigger,
        "admission": turn.admission,
        "continuation": turn.continuation or None,
        "generation": turn.generation,
        "identity": turn.identity,
    }
    host.emit(ChatTurnStart(**common))
    outcome: Outcome | Postponed | None = None
    try:
        while outcome is None:
            if turn.is_interrupted:
                if turn.cuts:
                    await _breathe(host, turn)
                outcome = await host.recovery.pick_up(turn)
            outcome = outcome or await _performed(host, turn, abort)
    except StoreError:
        raise  # the row is as it was: the next start takes it up
    except Exception as error:
        # Whatever it was, it must not be met again by every start: the turn is over, and everybody is told.
        log.exception("%s: turn %s failed where nothing was expected to", host.id, turn.id)
        outcome = await _failed(host, turn, error, "turn", None)
    finally:
        host.inflight = None
    if isinstance(outcome, Postponed):
        return outcome
    await _tidy(host, outcome)
    host.emit(
        ChatTurnFinish(
            **common,
            status=outcome.status,
            duration_ms=round((host.clock.monotonic() - began) * 1000),
            error=outcome.text,
            error_type=type(outcome.error).__name__ if outcome.error else None,
            stopped_by=outcome.stopped_by,
        )
    )
    return outcome


async def _tidy(host: Host, outcome: Outcome) -> None:
    """Shorten a conversation that this turn has made too long, before the next one is asked anything."""
    if outcome.message is None:
        return
    host.evictor.start_pass()
    try:
        if await host.session.compact_if_due():
            host.feed.publish(HistoryChanged())
    except asyncio.CancelledError:  # the process stops: the turn has ended, and the next one will do this
        log.info("%s stops before its conversation was shortened", host.id)


async def _performed(host: Host, turn: Turn, abort: AbortController) -> Outcome | None:
    """One attempt. `None`: it was cut off by a stall and is to be picked up."""
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
    run.signal.on_abort(lambda _: work.cancel())
    run.writer.on_failure = work.cancel
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        work.cancel()  # stopped from outside: the journal has all that was shown
        run.is_closed = True
        raise
    finally:
        run.unlink()
        host.inflight = None
    try:
        return await _ended(host, run, work)
    finally:
        run.is_closed = True


async def _work(run: Run, abort: AbortController) -> None:
    await run.host.session.compact_if_due()
    run.assembled = await assemble(run.host, run.turn)
    loop = Loop(run, run.assembled, abort)
    try:
        await loop.run()
    finally:
        run.writer.hold()
        if loop.abandon():
            run.writer.also(queries.abandoned(run.host.id, run.turn.id, now=run.host.clock.now_ms()))


async def _ended(host: Host, run: Run, work: asyncio.Future[None]) -> Outcome | None:
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
        stall = None if turn.signal.aborted else run.signal.reason
        if isinstance(stall, StreamStalled):
            return await _stalled(host, run, stall)
    elif failure is not None:
        status = "error"
    else:
        # Stopped while it said its last word: whoever stopped it was told so.
        status = "aborted" if turn.signal.aborted else "completed"
    if failure is not None and not isinstance(failure, Exception):
        raise failure
    if isinstance(failure, StreamCut) and not turn.signal.aborted:
        return await _cut(host, run, failure)
    if isinstance(failure, Exception):
        return await _broken_off(host, run, failure)
    return await _ended_as(host, run, status)


async def _ended_as(host: Host, run: Run, status: TurnStatus) -> Outcome:
    turn = run.turn
    reason = reason_of(turn) if status == "aborted" else None
    try:
        message = await _store(host, run, [*closing(host, turn, status, reason), *_used(host, run)])
    except StoreError as error:
        return await _failed(host, turn, error, "stream", run)
    close(host, TurnEnded(turn, status, streamed=run.writer.streamed, stored=message is not None))
    return Outcome(
        turn, status, message=message, output=run.output, stopped_by=run.stopped_by, fires_response=True
    )


def _used(host: Host, run: Run) -> list[Statement]:
    """Add what the provider reported to the session's totals."""
    taken, given = run.usage.input_tokens or 0, run.usage.output_tokens or 0
    if not taken and not given:
        return []
    return [used(host.id, host.session.id, input=taken, output=given, cost=0.0, now=host.clock.now_ms())]


async def _broken_off(host: Host, run: Run, failure: Exception) -> Outcome | None:
    """The answer broke off. `None`: there was no room for it, there is now, and it is to be tried again."""
    turn = run.turn
    stage: Stage = "stream" if run.assembled else "turn" if turn.is_read else "transcript"
    context = ChatErrorContext(stage, turn.is_applied, turn.request_id, identity=turn.identity)
    kind = await classified(host, failure, context)
    is_overflow = kind == "context_overflow" and run.assembled is not None
    if is_overflow and overflow_of(host.agent.context_overflow).reactive:
        try:
            if await _relieved(run) and host.generation == turn.generation:
                return await _try_again(host, run)
        except StoreError as error:
            failure = error
    if host.generation != turn.generation:
        return await end_unstarted(host, turn, "skipped")
    if turn.signal.aborted:
        return await _ended_as(host, run, "aborted")
    return await _failed(host, turn, failure, stage, run, kind)


async def _relieved(run: Run) -> bool:
    """Make room for another attempt, unless somebody stops the turn meanwhile."""
    if run.turn.signal.aborted:
        return False
    work = asyncio.ensure_future(make_room(run))
    leave = run.turn.signal.on_abort(lambda _: work.cancel())
    try:
        await asyncio.wait([work])
    finally:
        leave()
        work.cancel()
    return not work.cancelled() and work.result() and not run.turn.signal.aborted


async def _try_again(host: Host, run: Run) -> None:
    """Another attempt of the same turn. What it had said goes, unless a tool has run for it."""
    turn = run.turn
    run.is_closed = True
    await run.writer.close(_used(host, run))
    journal = await _journal(host, turn)
    if journal.fold.has_content and not journal.has_settled_results:
        turn.message_id = host.new_id()
        await host.store.apply(queries.rewound(host.id, turn.id, message_id=turn.message_id))
        host.feed.publish(TurnRewound(turn, at_once=True))
        journal = await _journal(host, turn)
    turn.journal = journal


async def _journal(host: Host, turn: Turn) -> Journal:
    return await read_journal(host, turn.id, message_id=turn.message_id, continuation=turn.continuation)


async def _cut(host: Host, run: Run, cut: StreamCut) -> Outcome | None:
    """The model's stream ended before the answer did. `None`: it goes on, as after a crash."""
    turn = run.turn
    host.emit(ChatStreamCut(request_id=turn.request_id, error=cut.what))
    turn.cuts = turn.cuts + 1 if run.is_silent else 0
    return await _stalled(host, run, cut)


async def _breathe(host: Host, turn: Turn) -> None:
    """Let a provider that broke off without a word come to itself, unless somebody stops the turn."""
    seconds = min(LONGEST_BREATH, 2.0 ** (turn.cuts - 1))
    resting = asyncio.ensure_future(host.clock.sleep(seconds))
    leave = turn.signal.on_abort(lambda _: resting.cancel())
    try:
        await asyncio.wait([resting])
    finally:
        leave()
        resting.cancel()


async def _stalled(host: Host, run: Run, stall: StreamStalled | StreamCut) -> Outcome | None:
    turn = run.turn
    if not host.recovery.is_on:
        return await _failed(host, turn, stall, "stream", run)
    run.is_closed = True
    try:
        await run.writer.close([queries.interrupted(host.id, turn.id), *_used(host, run)])
    except StoreError as error:
        return await _failed(host, turn, error, "stream", run)
    host.recovery.interrupt(turn)
    return None


def closing(host: Host, turn: Turn, status: TurnStatus, error: str | None) -> list[Statement]:
    """What ends a turn, for its last commit."""
    ended = queries.ended(host.id, turn.id, status=status, error=error, now=host.clock.now_ms())
    return [ended, *host.recovery.closing(turn, status)]


def close(host: Host, ended: TurnEnded) -> None:
    """Tell everybody that a turn is over, once that is durable."""
    host.feed.publish(ended)
    host.recovery.closed(ended.turn, ended.status)


def _stopped(host: Host, turn: Turn) -> TurnStatus:
    return "skipped" if host.generation != turn.generation else "aborted"


async def _store(host: Host, run: Run, last: list[Statement]) -> Message | None:
    """Store the answer with the turn's last chunks and `last`, in one commit."""
    plan = Plan()
    if run.fold.has_content:
        plan = keep_answer(host.session, run.fold.message(), run.turn.parent, host.waiting_messages(run.turn))
    run.is_closed = True

    def confirm() -> None:
        host.session.confirm(plan, [[(message.id,)] for message, _, _ in plan.writes])

    run.writer.afterwards(confirm)
    try:
        await run.writer.close([*plan.statements, *plan.moves, *last, *_pruning(host)])
    except BaseException:
        host.session.fail(plan)
        raise
    if not plan.writes:
        return None
    try:
        await host.session.refresh()  # an answer to what is not in view changes what is
    except StoreError:
        log.exception("%s: the answer is stored; the conversation is read again later", host.id)
    host.feed.publish(HistoryChanged(run.turn, "answer"))
    return plan.writes[0][0]


async def _store_shown(host: Host, run: Run) -> Message | None:
    """Store what readers have seen of an answer whose chunks could not all be written."""
    run.is_closed = True
    turn = run.turn
    journal = await _journal(host, turn)
    if not journal.fold.has_content:
        return None
    await host.session.refresh()
    plan = keep_answer(host.session, journal.fold.message(), turn.parent, host.waiting_messages(turn))
    await host.session.write(plan)
    host.feed.publish(HistoryChanged(run.turn, "answer"))
    return plan.writes[0][0] if plan.writes else None


def _pruning(host: Host) -> list[Statement]:
    """Now and then: drop the chunks of turns that ended long ago."""
    now = host.clock.now_ms()
    if now < host.prunes_at:
        return []
    host.prunes_at = now + SEGMENT_GRACE_MS
    return [queries.pruned(host.id, before=now - SEGMENT_GRACE_MS)]


async def _failed(
    host: Host, turn: Turn, error: Exception, stage: Stage, run: Run | None, kind: str | None = None
) -> Outcome:
    """Store the partial answer, then ask what to say, then end the row."""
    message: Message | None = None
    is_kept = True
    if run is not None:
        try:
            message = await (_store_shown(host, run) if run.writer.is_broken else _store(host, run, []))
        except StoreError as broken:
            log.error("the partial answer of turn %s could not be stored: %s", turn.id, broken)
            is_kept = False
        except Exception:
            # No database will ever take it, and no later start could do better.
            log.exception("the partial answer of turn %s cannot be stored and is left out", turn.id)
    said = await explain(host, error, stage, turn.request_id, turn.is_applied, kind, identity=turn.identity)
    told, text = said.error, said.text
    if is_kept:  # otherwise it stays open, and the next start brings back what the journal holds
        try:
            last = [remembered(host, turn, said.shown), *(_used(host, run) if run else [])]
            await host.store.apply([*closing(host, turn, "error", text), *last])
        except StoreError as broken:
            log.error("turn %s failed and could not be ended: %s", turn.id, broken)
    streamed = run.writer.streamed if run else False
    close(host, TurnEnded(turn, "error", said.shown, streamed=streamed, stored=message is not None))
    return Outcome(
        turn, "error", error=told, text=text, stage=stage, message=message, fires_response=message is not None
    )


def remembered(host: Host, turn: Turn, text: str) -> Statement:
    """Keep what failed: a chat window that comes later is told."""
    host.last_failure = {
        "id": turn.request_id,
        "turn": turn.id,
        "error": text,
        "messageIds": turn.answers,
        "continuation": turn.continuation,
    }
    return host.save_value("lastFailure", host.last_failure)


@dataclass(frozen=True, slots=True)
class Explained:
    """A failure in words: `text` for code that asks, `shown` for people in a chat window."""

    error: BaseException
    text: str
    shown: str


async def explain(
    host: Host,
    error: Exception,
    stage: Stage,
    request_id: str | None,
    persisted: bool,
    kind: str | None = None,
    *,
    identity: Any = None,
) -> Explained:
    """Ask `on_chat_error` what to say of a failure, and tell observers. Once per failed turn.

    What we raise is written to be read; what the application or a library raises may hold anything,
    and is shown only when `on_chat_error` chose the words.
    """
    if kind is None and isinstance(error, ModelError) and error.kind == "context_overflow":
        kind = error.kind
    context = ChatErrorContext(stage, persisted, request_id, kind, identity)
    told: Any = error
    try:
        answer = await ask("on_chat_error", host.agent.on_chat_error, error, context)
        told = error if answer is None else answer
    except Exception as raised:  # noqa: BLE001 - the original error matters more
        host.log_hook_error("on_chat_error", raised)
    # Whatever was raised, and whoever wrote its words: no key in it is stored or shown.
    text = mask(str(told)) or type(told).__name__
    if not is_for_people(error):
        log.error("%s: a turn failed at stage %s", host.id, stage, exc_info=error)
    # Observers get the error itself; what people read may say less.
    detail = str(error) or type(error).__name__
    host.emit(MessageError(error=detail))
    host.emit(
        ChatRequestFailed(request_id=request_id, stage=stage, messages_persisted=persisted, error=detail)
    )
    shown = text if told is not error or is_for_people(error) else UNTOLD
    return Explained(told if isinstance(told, BaseException) else error, text, shown)


async def end_unstarted(
    host: Host, turn: Turn, status: TurnStatus, *, fires_response: bool = False, error: str | None = None
) -> Outcome:
    """End a turn that says nothing: aborted before it began, superseded, or reset."""
    text = error or (reason_of(turn) if status == "aborted" else None)
    await host.store.apply(closing(host, turn, status, text))
    close(host, TurnEnded(turn, status, streamed=False))
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
    if not (turn.is_applied and turn.is_started):
        await host.session.note_stored_ids(messages)
        if host.generation != turn.generation:
            return False
        if turn.compute_input is not None:
            refuse_other_words(host.session, messages)
        plan = host.session.plan_append(messages)
        if not turn.is_applied:
            turn.message_ids = plan.new
        turn.question, turn.cut = host.session.tip, [*turn.cut, *plan.cut]
        more: list[Statement] = []
        if not turn.is_started:
            # Its body and its tools are known only now.
            kept = encode_input(turn, is_applied=True) if turn.trigger == "submission" else None
            now = host.clock.now_ms()
            more = [queries.started(host.id, turn.id, question=turn.question, input=kept, now=now)]
        try:
            if plan.statements or more:
                await host.session.write(plan, *more)
        except CommitRefused:
            return False  # cancelled or reset at this very moment: the row is over already
    turn.is_applied = turn.is_started = True
    host.feed.publish(TurnStarted(turn))
    if turn.watch is not None:
        await turn.watch("running", None)
    if messages:
        host.feed.publish(HistoryChanged(turn, "input"))
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
