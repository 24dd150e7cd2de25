"""How a turn ends: the only place that writes it into its row, and tells everybody.

    turn/attempt, recovery/, door/ --end_as, fail, end_where_cut, …--> one commit --> TurnEnded, Outcome

The end of a turn is one commit: its last chunks, its message and its row. A failing turn stores what it had
and that it fails first, then asks `on_chat_error` what to say, then ends its row; if the process dies in
between, the next one only asks for the words.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, cast

from ..errors import UNTOLD, EarlierFailure, ModelError, StoreError, TurnFailed, is_for_people
from ..hooks.values import ChatErrorContext, Stage, TurnStatus
from ..journal import queries
from ..journal.feed import HistoryChanged, TurnEnded
from ..journal.read import Journal, keep_answer, last_chunk, read_journal
from ..journal.turn import Failing, Turn
from ..masking import mask, shortened
from ..messages import Message, encode_json
from ..observe.events import ChatRequestFailed, MessageError
from ..session.session_queries import used
from ..session.tree import Plan
from ..store.port import Statement
from .host import TurnHost
from .outcome import Outcome, reason_of
from .running import Run

__all__ = [
    "SEGMENT_GRACE_MS",
    "Explained",
    "close",
    "closing",
    "end_as",
    "end_lost",
    "end_unstarted",
    "end_where_cut",
    "explain",
    "fail",
    "finish_failing",
    "read_again",
    "used_by",
]

log = logging.getLogger("everthink.turn")

LONGEST = 20_000
"""Characters of an error that are kept until people are told of it."""
SEGMENT_GRACE_MS = 10 * 60 * 1000
"""So long the chunks of a turn stay after its end, for readers who come back."""


# --- ways to end


async def end_as(host: TurnHost, run: Run, status: TurnStatus) -> Outcome:
    """End an attempt that was not cut off: its last chunks, its message and its row in one commit."""
    turn = run.turn
    reason = reason_of(turn) if status == "aborted" else None
    last = [*closing(host, turn, status, reason), *used_by(host, run)]
    if status == "completed" and host.said_all is not None:
        last += host.said_all(turn)
    try:
        message = await _store(host, run, last)
    except StoreError as error:
        return await fail(host, turn, error, "stream", run)
    close(host, TurnEnded(turn, status, streamed=run.writer.streamed, stored=message is not None))
    return Outcome(
        turn, status, message=message, output=run.output, stopped_by=run.stopped_by, fires_response=True
    )


async def fail(
    host: TurnHost, turn: Turn, error: Exception, stage: Stage, run: Run | None, kind: str | None = None
) -> Outcome:
    """Store the partial answer and that the turn fails; then ask what to say; then end the row."""
    message: Message | None = None
    is_kept = True
    if run is not None:
        first = [_failing(turn, error, stage, kind), *used_by(host, run)]
        try:
            store = _store_shown if run.writer.is_broken else _store
            message = await store(host, run, first)
        except StoreError as broken:
            log.error("the partial answer of turn %s could not be stored: %s", turn.id, broken)
            is_kept = False
        except Exception:
            # No database will ever take it, and no later start could do better.
            log.exception("the partial answer of turn %s cannot be stored and is left out", turn.id)
    explained = await explain(
        host, error, stage, turn.request_id, turn.is_applied, kind, identity=turn.identity
    )
    if is_kept:  # otherwise it stays open, and the next start brings back what the journal holds
        try:
            last = host.last_failure.note_turn(turn, explained.shown)
            await host.store.apply([*closing(host, turn, "error", explained.text), last])
        except StoreError as broken:
            log.error("turn %s failed and could not be ended: %s", turn.id, broken)
    streamed = run.writer.streamed if run else False
    close(host, TurnEnded(turn, "error", explained.shown, streamed=streamed, stored=message is not None))
    return Outcome(
        turn,
        "error",
        error=explained.error,
        text=explained.text,
        stage=stage,
        message=message,
        fires_response=message is not None,
    )


def _failing(turn: Turn, error: Exception, stage: Stage, kind: str | None) -> Statement:
    text = shortened(str(error) or type(error).__name__, LONGEST)
    failure = Failing(stage, text, kind, is_for_people(error))
    return queries.failing(turn.id, failure=encode_json(failure).decode())


async def finish_failing(host: TurnHost, turn: Turn, failure: Failing) -> Outcome:
    """End a turn whose process died while it failed: what it said is stored, only the words are missing."""
    message = host.session.find(turn.message_id) or await host.session.get_message(turn.message_id)
    last = await last_chunk(host.store, turn.id)
    has_partial = message is not None
    error = (
        TurnFailed(failure.text, request_id=turn.request_id, has_partial=has_partial)
        if failure.is_for_people
        else EarlierFailure(failure.text)
    )
    stage = cast("Stage", failure.stage)
    explained = await explain(
        host, error, stage, turn.request_id, turn.is_applied, failure.kind, identity=turn.identity
    )
    note = host.last_failure.note_turn(turn, explained.shown)
    await host.store.apply([*closing(host, turn, "error", explained.text), note])
    streamed = last >= 0
    close(host, TurnEnded(turn, "error", explained.shown, streamed=streamed, stored=has_partial))
    return Outcome(
        turn,
        "error",
        error=explained.error,
        text=explained.text,
        stage=stage,
        message=message,
        fires_response=has_partial,
    )


async def end_where_cut(
    host: TurnHost,
    turn: Turn,
    journal: Journal,
    status: TurnStatus,
    text: str | None,
    *,
    shown: str | None = None,
    keeps: bool = True,
) -> Outcome:
    """End a turn where it was cut off, keeping what it said. `shown`: what people read of a failure."""
    await host.session.refresh()
    # From here to the commit nothing is awaited, so a reset comes either before or after it.
    if host.generation != turn.generation:
        return await end_unstarted(host, turn, "skipped")
    plan, message = Plan(), None
    if keeps and journal.fold.has_content:
        message = journal.fold.message()
        plan = keep_answer(host.session, message, turn.parent, host.turns.waiting_messages(turn))
    last: list[Statement] = [queries.abandoned(turn.id, now=host.clock.now_ms())]
    if shown is not None:
        last.append(host.last_failure.note_turn(turn, shown))
    await host.session.write(plan, *closing(host, turn, status, text), *last)
    if message is not None:
        host.feed.publish(HistoryChanged(turn, "answer"))
    streamed = journal.next_seq > 0
    close(host, TurnEnded(turn, status, shown or text, streamed=streamed, stored=message is not None))
    return Outcome(turn, status, text=text, message=message, fires_response=message is not None)


async def end_unstarted(
    host: TurnHost, turn: Turn, status: TurnStatus, *, fires_response: bool = False, error: str | None = None
) -> Outcome:
    """End a turn that says nothing: aborted before it began, superseded, or reset."""
    text = error or (reason_of(turn) if status == "aborted" else None)
    await host.store.apply(closing(host, turn, status, text))
    close(host, TurnEnded(turn, status, streamed=False))
    return Outcome(turn, status, fires_response=fires_response)


async def end_lost(host: TurnHost, turn_id: str, text: str) -> None:
    """End a turn of which only the row is left: its input was a function that died with its process."""
    now = host.clock.now_ms()
    await host.store.apply([queries.ended(turn_id, status="skipped", error=text, now=now)])


# --- what is written, and told


def closing(host: TurnHost, turn: Turn, status: TurnStatus, error: str | None) -> list[Statement]:
    """What ends a turn, for its last commit."""
    ended = queries.ended(turn.id, status=status, error=error, now=host.clock.now_ms())
    return [ended, *host.recovery.closing(turn, status)]


def close(host: TurnHost, ended: TurnEnded) -> None:
    """Tell everybody that a turn is over, once that is durable."""
    host.feed.publish(ended)
    host.recovery.closed(ended.turn, ended.status)


async def _store(host: TurnHost, run: Run, last: list[Statement]) -> Message | None:
    """Store the answer with the turn's last chunks and `last`, in one commit."""
    plan = Plan()
    if run.fold.has_content:
        plan = keep_answer(
            host.session, run.fold.message(), run.turn.parent, host.turns.waiting_messages(run.turn)
        )
    run.is_closed = True

    def confirm() -> None:
        host.session.confirm(plan, [[(message.id,)] for message, _, _ in plan.writes])

    run.writer.afterwards(confirm)
    try:
        await run.writer.close([*plan.statements, *plan.moves, *last, *_pruning(host)])
    except BaseException:
        host.session.roll_back(plan)
        raise
    if not plan.writes:
        return None
    try:
        await host.session.refresh()  # an answer to what is not in view changes what is
    except StoreError:
        log.exception("%s: the answer is stored; the conversation is read again later", host.id)
    host.feed.publish(HistoryChanged(run.turn, "answer"))
    return plan.writes[0][0]


async def _store_shown(host: TurnHost, run: Run, more: list[Statement]) -> Message | None:
    """Store what readers have seen of an answer whose chunks could not all be written, and `more`."""
    run.is_closed = True
    turn = run.turn
    journal = await read_again(host, turn)
    if not journal.fold.has_content:
        await host.store.apply(more)
        return None
    await host.session.refresh()
    plan = keep_answer(host.session, journal.fold.message(), turn.parent, host.turns.waiting_messages(turn))
    await host.session.write(plan, *more)
    host.feed.publish(HistoryChanged(run.turn, "answer"))
    return plan.writes[0][0] if plan.writes else None


def _pruning(host: TurnHost) -> list[Statement]:
    """Now and then: drop the chunks of turns that ended long ago."""
    now = host.clock.now_ms()
    if now < host.prunes_at:
        return []
    host.prunes_at = now + SEGMENT_GRACE_MS
    return [queries.pruned(before=now - SEGMENT_GRACE_MS)]


def used_by(host: TurnHost, run: Run) -> list[Statement]:
    """Add what the provider reported to the session's totals."""
    input_tokens, output_tokens = run.usage.input_tokens or 0, run.usage.output_tokens or 0
    if not input_tokens and not output_tokens:
        return []
    now = host.clock.now_ms()
    return [used(host.session.id, input=input_tokens, output=output_tokens, cost=0.0, now=now)]


async def read_again(host: TurnHost, turn: Turn) -> Journal:
    """What the journal holds of a turn."""
    return await read_journal(host.store, turn.id, message_id=turn.message_id, continuation=turn.continuation)


# --- words


@dataclass(frozen=True, slots=True)
class Explained:
    """A failure in words: `text` for code that asks, `shown` for people in a chat window."""

    error: BaseException
    text: str
    shown: str


async def explain(
    host: TurnHost,
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
    answer = await host.hooks.on_chat_error(error, context)
    # Whatever was raised, and whoever wrote its words: no key in it is stored or shown.
    text = mask(str(answer)) or type(answer).__name__
    if not is_for_people(error):
        log.error("%s: a turn failed at stage %s", host.id, stage, exc_info=error)
    # Observers get the error itself; what people read may say less.
    detail = str(error) or type(error).__name__
    host.emit(MessageError(error=detail))
    host.emit(
        ChatRequestFailed(request_id=request_id, stage=stage, messages_persisted=persisted, error=detail)
    )
    shown = text if answer is not error or is_for_people(error) else UNTOLD
    return Explained(answer if isinstance(answer, BaseException) else error, text, shown)
