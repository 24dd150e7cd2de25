"""Submissions: accept a turn now, run it later, ask how it went.

    submit_messages --> turns row `accepted` --> (queue) --> running --> completed | error | …

A submission is a turn somebody asks about later; it has no table and no queue of its own.
Every change of its row is conditional on the state before, so a late result never overwrites
a final one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast, get_args

import msgspec

from ..accepting import Acceptances, known_record
from ..clock import EPOCH, moment_of
from ..current import in_active_turn
from ..errors import InvalidTurn, SubmissionConflict
from ..journal import queries, turn_rows
from ..journal.turn import Trigger, Turn
from ..journal.turn_input import decode_input
from ..journal.turn_rows import TurnRow
from ..messages import (
    Message,
    MessageInput,
    as_messages,
    decode_json,
    encode_json,
    json_object,
)
from ..observe.events import (
    EventBody,
    SubmissionCreate,
    SubmissionError,
    SubmissionStatus,
)
from ..session.row_size import will_be_cut
from ..settings import check_call
from ..store.port import Statement
from ..surface import check_words
from ..turn.attempt import with_stamps
from ..turn.host import TurnHost, interrupted
from .admission import Door, Record
from .browser import Browser
from .submission import Status, Submission

__all__ = ["INVALID_TEXT", "AcceptedRun", "Submissions"]

log = logging.getLogger("everthink.submissions")

TERMINAL: frozenset[str] = frozenset({"completed", "error", "aborted", "skipped"})
INVALID_TEXT = "Stored submission messages are invalid"
SKIPPED_TEXT = "Submission was skipped by turn reset."
CONFLICT = "submission_id and idempotency_key refer to different submissions"


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """What is accepted together with a turn that a parent asks for, or a messenger brings."""

    statements: Callable[[str], Sequence[Statement]]
    """Given the turn's id: what is written in the same commit."""
    identity: Any
    """Who asked the parent."""
    trigger: Trigger = "agent-tool"
    at_once: bool = False
    """True when it need not wait for anything but the turns before it: where there is none, it has begun with
    the commit that accepts it."""


@dataclass(slots=True)
class _Open:
    """A submission whose turn is not over. Its end is told once, though a cancelled turn ends twice."""

    is_told: bool = False
    is_left: bool = False
    """True when the agent left memory before it was over."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Submissions:
    """The submissions of one agent."""

    __slots__ = ("_acceptances", "_browser", "_door", "_held", "_host", "_open")

    def __init__(self, host: TurnHost, door: Door, browser: Browser) -> None:
        self._host, self._door, self._browser = host, door, browser
        self._acceptances = Acceptances[Submission]()
        # Accepted, but the hook is still being told: they queue up after that, in this order.
        self._held: list[Turn] = []
        self._open: dict[str, _Open] = {}

    async def accept(
        self,
        messages: Sequence[MessageInput] | MessageInput,
        *,
        submission_id: str | None = None,
        idempotency_key: str | None = None,
        metadata: dict[str, Any] | None = None,
        channel: str | None = None,
        run: AcceptedRun | None = None,
    ) -> Submission:
        """Accept once; the row is durable when this returns. `run`: a parent asks for it, or a
        messenger brings it."""
        host = self._host
        if callable(messages):
            raise InvalidTurn(
                "submit_messages cannot take a function input: it could not be stored.",
                next_step="Pass the messages themselves.",
            )
        check_call(
            "submit_messages", submission_id=submission_id, idempotency_key=idempotency_key, channel=channel
        )
        given = [with_stamps(m, channel, None) for m in as_messages(messages, new_id=host.new_id)]
        if not given:
            raise InvalidTurn("submit_messages requires at least one message.", kept="Nothing was stored.")
        marks = json_object(metadata, "metadata")
        text = None if marks is None else encode_json(marks).decode()
        record = Record(text, idempotency_key)
        return await self._acceptances.see_through(self._accept(given, submission_id, channel, record, run))

    async def _accept(
        self,
        messages: list[Message],
        id: str | None,
        channel: str | None,
        record: Record,
        run: AcceptedRun | None,
    ) -> Submission:
        host = self._host
        async with self._acceptances.lock:
            known = await self._known(id, record.key)
            if known is not None:
                return known
            if id is not None:
                # One of that id may have been deleted while its turn still ends: its signal is not ours.
                host.aborts.remove(id)
            turn = self._turn(messages, id or host.new_id(), channel, run.trigger if run else "submission")
            if run is not None:
                turn.identity = run.identity
            if run is not None and run.at_once and not self._held:
                turn.body = self._browser.body
                await self._door.admitting(turn, record=record, more=run.statements(turn.id))
            else:
                await self._door.record(turn, record, await self._with_it(turn, run))
                self._held.append(turn)
        submission = _accepted(turn, record)
        try:
            if run is None:
                created: dict[str, Any] = {
                    "submission_id": turn.id,
                    "request_id": turn.id,
                    "idempotency_key": record.key,
                }
                host.emit(SubmissionCreate(**created))
                await self._tell(submission)
        finally:
            self._queue_up_to(turn)
        cut = tuple(message.id for message in messages if will_be_cut(message))
        return replace(submission, accepted=True, cut=cut)

    async def _with_it(self, turn: Turn, run: AcceptedRun | None) -> Sequence[Statement]:
        """What is written in the commit that accepts a turn."""
        if run is not None:
            return run.statements(turn.id)
        addressed = self._host.addressed if turn.channel is not None else None
        return () if addressed is None else await addressed(turn)

    def _queue_up_to(self, turn: Turn) -> None:
        """Queue what was accepted before `turn`, and `turn`: a slow hook must not change the order."""
        while self._held and self._held[0].seq <= turn.seq and not self._door.is_closed:
            held = self._held.pop(0)
            self._door.enqueue(held, self._door.queue.reserve(held.request_id, held.generation))

    def _turn(self, messages: list[Message], id: str, channel: str | None, trigger: Trigger) -> Turn:
        host = self._host
        turn = self._door.new_turn(trigger, input=messages, request_id=id, id=id, channel=channel)

        async def prepared() -> bool:
            if turn.is_started:
                return True  # with its acceptance, or before it was cut off: it keeps what it began with
            turn.body = self._browser.body  # what the conversation is led with when its time has come
            may_begin = host.may_begin_delivered if trigger == "messenger" else None
            return may_begin is None or await may_begin(turn)

        turn.gate = prepared
        self.watch(turn)
        return turn

    def watch(self, turn: Turn) -> None:
        """Tell how `turn` goes, as the submission it is."""
        id = turn.id
        known = self._open[id] = _Open()

        async def watch(status: str, error: str | None) -> None:
            if status == "running":
                if turn.trigger == "submission":
                    await self.tell(id, "running")
                return
            if self._open.get(id) is known:
                del self._open[id]
            if turn.trigger == "submission":
                await self._tell_end(id, known)
            else:
                known.over.set()  # a parent sees to it

        turn.watch = watch

    async def _known(self, id: str | None, key: str | None) -> Submission | None:
        return await known_record(
            id,
            key,
            by_id=self._of_id,
            by_key=self._of_key,
            names=lambda known: (known.submission_id, known.idempotency_key),
            conflict=lambda: SubmissionConflict(CONFLICT),
        )

    async def resume(self, row: TurnRow) -> bool:
        """Queue an accepted row of an earlier process again. False: it has no input. Raises `Unreadable`."""
        host, id = self._host, row.id
        stored = decode_input(row.input)
        if stored.messages is None:
            await host.store.apply(
                [queries.ended(id, status="error", error=INVALID_TEXT, now=host.clock.now_ms())]
            )
            await self.tell(id)
            return False
        answer_id = row.answer_id
        turn = self._turn(stored.messages, id, stored.channel, row.trigger)
        turn.identity = stored.identity
        turn.message_id, turn.seq, turn.created_at = answer_id, row.seq, row.created_at
        if row.stop is not None:
            host.aborts.cancel(turn.request_id, row.stop or None)
        self._door.enqueue(turn, self._door.queue.reserve(turn.request_id))
        return True

    # --- asking

    async def inspect(self, submission_id: str) -> Submission | None:
        """How a submission stands, or `None` when there is none of that id."""
        check_call("inspect_submission", submission_id=submission_id)
        return await self._of_id(submission_id)

    async def list(
        self, *, status: Status | Sequence[Status] | None = None, limit: int = 50
    ) -> list[Submission]:
        """Submissions, newest first."""
        check_call("list_submissions", limit=limit)
        wanted = None if status is None else _statuses(status)
        found = await self._all()
        if wanted is not None:
            found = [s for s in found if s.status in wanted]
        return found[: max(1, min(100, limit))]

    async def wait(self, submission_id: str) -> Submission | None:
        """Return once the submission is over. Raises `NestedTurn` where that would never be, and
        `TurnInterrupted` when the agent leaves memory before."""
        check_call("wait_for_submission", submission_id=submission_id)
        known = self._open.get(submission_id)
        if known is not None:
            if not known.over.is_set():
                self._door.refuse_waiting("wait_for_submission")
            await known.over.wait()
            if known.is_left:
                raise interrupted(self._host, submission_id)
        return await self.inspect(submission_id)

    def leave(self) -> None:
        """The agent has left memory: nobody waits here for what goes on elsewhere, or nowhere."""
        for known in self._open.values():
            known.is_left = not known.over.is_set()
            known.over.set()

    async def _of_id(self, id: str) -> Submission | None:
        row = await turn_rows.submission(self._host.store, id)
        return None if row is None else _submission(row)

    async def _of_key(self, key: str) -> Submission | None:
        row = await turn_rows.of_key(self._host.store, key)
        return None if row is None else _submission(row)

    async def _all(self) -> list[Submission]:
        return [_submission(row) for row in await turn_rows.submissions(self._host.store)]

    # --- cancelling and deleting

    async def cancel(self, submission_id: str, reason: object = None) -> None:
        """Stop a submission. One that has not begun never does; one that runs ends with what it said.

        Its end is durable when this returns, unless the caller is part of a turn: nobody waits for itself.
        """
        check_call("cancel_submission", submission_id=submission_id)
        host, is_open = self._host, self._open.get(submission_id)
        known = await self.inspect(submission_id)
        if known is None or known.status in TERMINAL:
            return
        text, request_id = None if reason is None else str(reason), known.request_id or submission_id
        now = host.clock.now_ms()
        written = host.store.apply(
            [
                queries.ended_early(submission_id, status="aborted", error=text, now=now),
                queries.stopped(request_id, reason=text),
            ]
        )
        host.aborts.cancel(request_id, reason)
        [ended, *_] = await written
        if ended:
            await self._tell_end(submission_id, is_open)
        elif is_open is not None and not in_active_turn(host.id):
            await is_open.over.wait()

    async def delete(self, submission_id: str) -> bool:
        """Forget a submission that is over. Its id and key are new again afterwards."""
        check_call("delete_submission", submission_id=submission_id)
        if await self.inspect(submission_id) is None:
            return False
        rows = await self._host.store.apply(queries.deleted([submission_id]))
        return bool(rows[0])

    async def delete_many(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        completed_before: datetime | None = None,
        limit: int = 100,
    ) -> int:
        """Forget submissions that are over, those completed first first. Returns how many."""
        check_call("delete_submissions", completed_before=completed_before, limit=limit)
        wanted = TERMINAL if status is None else _statuses(status)
        over = [s for s in await self._all() if s.status in wanted & TERMINAL]
        if completed_before is not None:
            over = [s for s in over if s.completed_at is not None and s.completed_at < completed_before]
        over.sort(key=lambda s: s.completed_at or EPOCH)
        ids = [s.submission_id for s in over[: max(1, min(500, limit))]]
        deleted = await self._host.store.apply(queries.deleted(ids)) if ids else []
        return sum(map(len, deleted))  # only a deleted turn gives its id back

    # --- telling

    async def skipped(self, ids: Sequence[str]) -> None:
        """Tell that a reset skipped these."""
        for id in ids:
            if (known := self._open.get(id)) is not None:
                await self._tell_end(id, known)

    async def _tell_end(self, id: str, known: _Open | None) -> None:
        if known is not None:
            if known.is_told:
                return
            known.is_told = True
            known.over.set()
        await self.tell(id)

    async def tell(self, id: str, status: Status | None = None) -> None:
        """Tell how the row stands (unless it left `status` already: whoever changed it tells)."""
        submission = await self.inspect(id)
        if submission is not None and status in (None, submission.status):
            await self._tell(submission)

    async def _tell(self, submission: Submission) -> None:
        host = self._host
        common: Any = {"submission_id": submission.submission_id, "request_id": submission.request_id}
        events: list[EventBody] = [SubmissionStatus(**common, status=submission.status)]
        if submission.status == "error" and submission.error:
            events.append(SubmissionError(**common, error=submission.error))
            log.error(
                "submission %s failed: %s %s",
                submission.submission_id,
                submission.error,
                submission.metadata or "",
            )
        for event in events:
            host.emit(event)
        await host.hooks.on_submission_status(submission)


def _statuses(status: Status | Sequence[Status]) -> frozenset[str]:
    check_words("status", status, get_args(Status))
    return frozenset([status] if isinstance(status, str) else status)


def _accepted(turn: Turn, record: Record) -> Submission:
    """A submission as its row is, which was just written."""
    created = moment_of(turn.created_at)
    return Submission(
        submission_id=turn.id,
        request_id=turn.request_id,
        status="running" if turn.is_started else "pending",
        idempotency_key=record.key,
        metadata=_metadata_in(record.metadata),
        created_at=created,
        started_at=created if turn.is_started else None,
    )


_STATUS: dict[str, Status] = {"accepted": "pending", "interrupted": "running", "failing": "running"}


def _submission(row: TurnRow) -> Submission:
    return Submission(
        submission_id=row.id,
        request_id=row.request_id,
        status=cast("Status", _STATUS.get(row.status, row.status)),
        idempotency_key=row.idempotency_key,
        metadata=_metadata_in(row.metadata),
        error=row.error,
        created_at=moment_of(row.created_at),
        started_at=None if row.started_at is None else moment_of(row.started_at),
        completed_at=None if row.ended_at is None else moment_of(row.ended_at),
    )


def _metadata_in(text: str | None) -> dict[str, Any] | None:
    """What a row keeps of it. Nothing, when somebody else wrote there."""
    try:
        found: Any = decode_json(text) if text else None
    except msgspec.DecodeError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
