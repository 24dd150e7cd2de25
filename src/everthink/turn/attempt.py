"""Perform one admitted turn: input into the conversation, assemble, loop, end.

    admission --> perform --> Outcome --> response hook, caller

The end of a turn is one commit: its last chunks, its message and its row. A failing turn stores
what it had first, then asks `on_chat_error` what to say. If the process is stopped in here the
row stays `running` and the journal holds what was shown: recovery goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..abort import AbortController
from ..backoff import backoff
from ..calling import awaited
from ..causes import is_superseded
from ..errors import CommitRefused, StoreError, StreamCut, StreamStalled
from ..hooks.values import (
    ChatErrorContext,
    Stage,
    TurnStatus,
)
from ..journal import queries
from ..journal.feed import (
    HistoryChanged,
    TurnStarted,
)
from ..journal.turn import SUBMITTED, Turn
from ..journal.turn_input import encode_input
from ..messages import Message, as_messages
from ..observe.events import ChatStreamCut, ChatTurnFinish, ChatTurnStart
from ..session.said_before import refuse_other_words
from ..store.port import Statement
from .assemble import assemble
from .ending import end_as, end_unstarted, fail, read_again, used_by
from .host import TurnHost
from .loop import Loop
from .outcome import Outcome, Postponed
from .overflow import make_room, overflow_of
from .running import Run
from .start_over import start_over

__all__ = ["perform", "with_stamps"]

log = logging.getLogger("everthink.turn")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before a provider that breaks off again and again is asked once more."""


async def perform(host: TurnHost, turn: Turn, abort: AbortController) -> Outcome | Postponed:
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
                    await _pause(host, turn)
                outcome = await host.recovery.decide(turn)
            outcome = outcome or await _performed(host, turn, abort)
    except StoreError:
        raise  # the row is as it was: the next start takes it up
    except Exception as error:
        # Whatever it was, it must not be met again by every start: the turn is over, and everybody is told.
        log.exception("%s: turn %s failed where nothing was expected to", host.id, turn.id)
        outcome = await fail(host, turn, error, "turn", None)
    finally:
        turn.fold = None
        host.drop_views()
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


async def _tidy(host: TurnHost, outcome: Outcome) -> None:
    """Shorten a conversation that this turn has made too long, before the next one is asked anything."""
    if outcome.message is None:
        return
    host.start_eviction()
    try:
        if await host.session.compact_if_due():
            host.feed.publish(HistoryChanged())
    except asyncio.CancelledError:  # the process stops: the turn has ended, and the next one will do this
        log.info("%s stops before its conversation was shortened", host.id)


async def _performed(host: TurnHost, turn: Turn, abort: AbortController) -> Outcome | None:
    """One attempt. `None`: it was cut off by a stall and is to be picked up."""
    try:
        if not await _apply_input(host, turn):
            return await end_unstarted(host, turn, _stopped(host, turn))
    except Exception as error:  # noqa: BLE001 - the input function or the store failed
        _leave_when_stopping(host, turn, error)
        return await fail(host, turn, error, "persist" if isinstance(error, StoreError) else "turn", None)
    if turn.signal.aborted:
        return await end_unstarted(host, turn, _stopped(host, turn), fires_response=turn.is_applied)
    run = Run(host, turn)
    turn.fold, turn.say, turn.alive = run.fold, run.say, run.note_progress
    turn.afterwards = run.writer.afterwards
    work = asyncio.ensure_future(_work(run, abort))
    run.signal.on_abort(lambda _: work.cancel())
    run.writer.on_failure = work.cancel
    try:
        await asyncio.wait([work])
    except asyncio.CancelledError:
        work.cancel()  # stopped from outside: the journal has all that was shown
        work.add_done_callback(lambda _: run.writer.drop())
        run.is_closed = True
        raise
    finally:
        run.unlink()
        turn.fold = turn.say = turn.alive = turn.afterwards = turn.waits_for = None
    over = turn.ending = asyncio.Event()
    try:
        return await _ended(host, run, work)
    finally:
        run.is_closed = True
        run.writer.drop()
        turn.ending = None
        over.set()


async def _work(run: Run, abort: AbortController) -> None:
    await run.host.session.compact_if_due()
    run.assembled = await assemble(run.host, run.turn)
    loop = Loop(run, run.assembled, abort)
    run.turn.waits_for = loop.waits_for
    try:
        await loop.run()
    finally:
        run.writer.hold()
        if loop.abandon():
            run.writer.also(queries.abandoned(run.turn.id, now=run.host.clock.now_ms()))


async def _ended(host: TurnHost, run: Run, work: asyncio.Future[None]) -> Outcome | None:
    turn = run.turn
    failure = None if work.cancelled() else work.exception()
    _leave_when_stopping(host, turn, failure)
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
        return await fail(host, turn, broken, "stream", run)
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
    return await end_as(host, run, status)


def _leave_when_stopping(host: TurnHost, turn: Turn, failure: BaseException | None) -> None:
    """Cut a turn that met what is closed already while its agent stops: it goes on at the next start."""
    if host.is_stopping and is_superseded(failure) and not turn.signal.aborted:
        log.info("turn %s of %s is cut: %s", turn.id, host.id, failure)
        raise asyncio.CancelledError


async def _broken_off(host: TurnHost, run: Run, failure: Exception) -> Outcome | None:
    """The answer broke off. `None`: there was no room for it, there is now, and it is to be tried again."""
    turn = run.turn
    stage: Stage = "stream" if run.assembled else "turn" if turn.is_read else "transcript"
    context = ChatErrorContext(stage, turn.is_applied, turn.request_id, identity=turn.identity)
    kind = await host.hooks.classify_chat_error(failure, context)
    is_overflow = kind == "context_overflow" and run.assembled is not None
    if is_overflow and overflow_of(host.hooks.agent.context_overflow).reactive:
        try:
            if await _has_made_room(run) and host.generation == turn.generation:
                return await _try_again(host, run)
        except StoreError as error:
            failure = error
    if host.generation != turn.generation:
        return await end_unstarted(host, turn, "skipped")
    if turn.signal.aborted:
        return await end_as(host, run, "aborted")
    return await fail(host, turn, failure, stage, run, kind)


async def _has_made_room(run: Run) -> bool:
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


async def _try_again(host: TurnHost, run: Run) -> None:
    """Another attempt of the same turn. What it had said goes, unless a tool has run for it."""
    turn = run.turn
    run.is_closed = True
    await run.writer.close(used_by(host, run))
    journal = await read_again(host, turn)
    if journal.fold.has_content and not journal.has_settled_results:
        journal = await start_over(host, turn, at_once=True)
    turn.journal = journal


async def _cut(host: TurnHost, run: Run, cut: StreamCut) -> Outcome | None:
    """The model's stream ended before the answer did. `None`: it goes on, as after a crash."""
    turn = run.turn
    host.emit(ChatStreamCut(request_id=turn.request_id, error=cut.what))
    turn.cuts = turn.cuts + 1 if run.is_silent else 0
    return await _stalled(host, run, cut)


async def _pause(host: TurnHost, turn: Turn) -> None:
    """Let a provider that broke off without a word come to itself, unless somebody stops the turn."""
    seconds = backoff(turn.cuts, first=FIRST_PAUSE, most=LONGEST_PAUSE)
    resting = asyncio.ensure_future(host.clock.sleep(seconds))
    leave = turn.signal.on_abort(lambda _: resting.cancel())
    try:
        await asyncio.wait([resting])
    finally:
        leave()
        resting.cancel()


async def _stalled(host: TurnHost, run: Run, stall: StreamStalled | StreamCut) -> Outcome | None:
    turn = run.turn
    if not host.recovery.is_on:
        return await fail(host, turn, stall, "stream", run)
    run.is_closed = True
    try:
        await run.writer.close([queries.interrupted(turn.id), *used_by(host, run)])
    except StoreError as error:
        return await fail(host, turn, error, "stream", run)
    host.recovery.interrupt(turn)
    return None


def _stopped(host: TurnHost, turn: Turn) -> TurnStatus:
    return "skipped" if host.generation != turn.generation else "aborted"


async def _apply_input(host: TurnHost, turn: Turn) -> bool:
    """Put the turn's messages into the conversation and its row to `running`. False: it may not begin."""
    if turn.trigger in SUBMITTED and turn.signal.aborted:
        return False
    messages: list[Message] = []
    if not turn.is_applied:
        messages = await _resolved(host, turn)
        if turn.trigger in SUBMITTED and turn.signal.aborted:
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
            kept = encode_input(turn, is_applied=True) if turn.trigger in SUBMITTED else None
            now = host.clock.now_ms()
            more = [queries.started(turn.id, question=turn.question, input=kept, now=now)]
            more += turn.brings.statements() if turn.brings is not None else []
        try:
            if plan.statements or more:
                await host.session.write(plan, *more)
        except BaseException as error:
            if turn.brings is not None and not turn.is_started:
                turn.brings.undo()
            if isinstance(error, CommitRefused):
                return False  # cancelled or reset at this very moment: the row is over already
            raise
    turn.is_applied = turn.is_started = True
    host.feed.publish(TurnStarted(turn))
    if turn.watch is not None:
        await turn.watch("running", None)
    if messages:
        host.feed.publish(HistoryChanged(turn, "input"))
    return True


async def _resolved(host: TurnHost, turn: Turn) -> list[Message]:
    if turn.compute_input is None:
        return turn.input
    await host.session.refresh()
    produced: Any = await awaited(turn.compute_input([message.copy() for message in host.session.path]))
    messages = as_messages(produced, new_id=host.new_id)
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
    return message.with_metadata(stamps)
