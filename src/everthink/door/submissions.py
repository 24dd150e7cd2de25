"""Submissions: accept a turn now, run it later, ask how it went.

    submit_messages --> turns row `accepted` --> (queue) --> running --> completed | error | …

A submission is a turn somebody asks about later; it has no table and no queue of its own.
Every change of its row is conditional on the state before, so a late result never overwrites
a final one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, cast, get_args

import msgspec

from ..calling import call_hook
from ..current import in_active_turn
from ..errors import InvalidTurn, SubmissionConflict
from ..journal import queries
from ..journal.turn import Turn
from ..journal.turn_input import decode_input
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
from ..store.port import Row
from ..surface import check_words
from ..turn.attempt import with_stamps
from .admission import (
    Door,
    House,
    Record,
)

__all__ = ["INVALID_TEXT", "Status", "Submission", "Submissions"]

log = logging.getLogger("everthink.submissions")

Status = Literal["pending", "running", "completed", "error", "aborted", "skipped"]
TERMINAL: frozenset[str] = frozenset({"completed", "error", "aborted", "skipped"})
INVALID_TEXT = "Stored submission messages are invalid"
SKIPPED_TEXT = "Submission was skipped by turn reset."
CONFLICT = "submission_id and idempotency_key refer to different submissions"


@dataclass(frozen=True, slots=True)
class Submission:
    """How a submission stands. `accepted` is False when the id or key was known already."""

    submission_id: str
    status: Status
    created_at: int
    """Milliseconds since 1970, as are the other times."""
    request_id: str | None = None
    """The turn's id."""
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None
    error: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    accepted: bool = False
    cut: tuple[str, ...] = ()
    """When it was just accepted: the ids of its messages that are too large for a row, and stored in part."""


class Desk(House, Protocol):
    """A house that takes submissions."""

    door: Door
    last_body: dict[str, Any] | None

    async def submission_changed(self, submission: Submission) -> None:
        """Call the agent's `on_submission_status`."""
        ...


@dataclass(slots=True)
class _Open:
    """A submission whose turn is not over. Its end is told once, though a cancelled turn ends twice."""

    is_told: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Submissions:
    """The submissions of one agent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # One at a time, so that callers with the same id or key find the first one's row.
        self._accepting = asyncio.Lock()
        # Accepted, but the hook is still being told: they queue up after that, in this order.
        self._held: list[Turn] = []
        self._tasks: set[asyncio.Task[Submission]] = set()
        self._open: dict[str, _Open] = {}

    async def accept(
        self,
        messages: Sequence[MessageInput] | MessageInput,
        *,
        submission_id: str | None = None,
        idempotency_key: str | None = None,
        metadata: dict[str, Any] | None = None,
        channel: str | None = None,
    ) -> Submission:
        """Accept once; the row is durable when this returns."""
        desk = self._desk
        if callable(messages):
            raise InvalidTurn(
                "submit_messages cannot take a function input: it could not be stored.",
                next_step="Pass the messages themselves.",
            )
        check_call(
            "submit_messages", submission_id=submission_id, idempotency_key=idempotency_key, channel=channel
        )
        given = [with_stamps(m, channel, None) for m in as_messages(messages, new_id=desk.new_id)]
        if not given:
            raise InvalidTurn("submit_messages requires at least one message.", kept="Nothing was stored.")
        marks = json_object(metadata, "metadata")
        text = None if marks is None else encode_json(marks).decode()
        # A task of its own: a caller that stops waiting must not leave a row that nobody runs.
        task = asyncio.create_task(self._accept(given, submission_id, channel, Record(text, idempotency_key)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _accept(
        self, messages: list[Message], id: str | None, channel: str | None, record: Record
    ) -> Submission:
        desk = self._desk
        async with self._accepting:
            known = await self._known(id, record.key)
            if known is not None:
                return known
            if id is not None:
                # One of that id may have been deleted while its turn still ends: its signal is not ours.
                desk.aborts.remove(id)
            turn = self._turn(messages, id or desk.new_id(), channel)
            await desk.door.record(turn, record)
            self._held.append(turn)
        try:
            submission = await self.inspect(turn.id)
            assert submission is not None
            desk.emit(SubmissionCreate(submission_id=turn.id, request_id=turn.id, idempotency_key=record.key))
            await self._tell(submission)
        finally:
            self._queue_up_to(turn)
        cut = tuple(message.id for message in messages if will_be_cut(message))
        return replace(submission, accepted=True, cut=cut)

    def _queue_up_to(self, turn: Turn) -> None:
        """Queue what was accepted before `turn`, and `turn`: a slow hook must not change the order."""
        desk = self._desk
        while self._held and self._held[0].seq <= turn.seq and not desk.door.is_closed:
            held = self._held.pop(0)
            desk.door.enqueue(held, desk.queue.reserve(held.request_id, held.generation))

    def _turn(self, messages: list[Message], id: str, channel: str | None) -> Turn:
        desk = self._desk
        turn = desk.door.new_turn("submission", input=messages, request_id=id, id=id, channel=channel)

        async def prepared() -> bool:
            # What the conversation is led with when its time has come; one that was cut off keeps its own.
            if not turn.is_started:
                turn.body = desk.last_body
            return True

        turn.gate = prepared
        self.watch(turn)
        return turn

    def watch(self, turn: Turn) -> None:
        """Tell how `turn` goes, as the submission it is."""
        id = turn.id
        known = self._open[id] = _Open()

        async def watch(status: str, error: str | None) -> None:
            if status == "running":
                await self.tell(id, "running")
                return
            if self._open.get(id) is known:
                del self._open[id]
            await self._tell_end(id, known)

        turn.watch = watch

    async def _known(self, id: str | None, key: str | None) -> Submission | None:
        by_id = await self._row(queries.SUBMISSION, id) if id is not None else None
        by_key = await self._row(queries.SUBMISSION_BY_KEY, key) if key is not None else None
        if by_key is not None and id is not None and by_key.submission_id != id:
            raise SubmissionConflict(CONFLICT)
        if by_id is not None and key is not None and by_id.idempotency_key not in (None, key):
            raise SubmissionConflict(CONFLICT)
        return by_id or by_key

    async def resume(self, row: Row) -> bool:
        """Queue an accepted row of an earlier process again. False: it has no input. Raises `Unreadable`."""
        desk, id = self._desk, cast("str", row[0])
        envelope = decode_input(row[5])
        if envelope.messages is None:
            await desk.store.apply(
                [queries.ended(desk.id, id, status="error", error=INVALID_TEXT, now=desk.clock.now_ms())]
            )
            await self.tell(id)
            return False
        turn = self._turn(envelope.messages, id, envelope.channel)
        turn.message_id, turn.seq, turn.created_at = row[8], row[13], row[10]
        if row[16] is not None:
            desk.aborts.cancel(turn.request_id, row[16] or None)
        desk.door.enqueue(turn, desk.queue.reserve(turn.request_id))
        return True

    # --- asking

    async def inspect(self, submission_id: str) -> Submission | None:
        """How a submission stands, or `None` when there is none of that id."""
        check_call("inspect_submission", submission_id=submission_id)
        return await self._row(queries.SUBMISSION, submission_id)

    async def list(
        self, *, status: Status | Sequence[Status] | None = None, limit: int = 50
    ) -> list[Submission]:
        """Submissions, newest first."""
        check_call("list_submissions", limit=limit)
        wanted = None if status is None else _statuses(status)
        rows = await self._desk.store.fetch(queries.SUBMISSIONS, self._desk.id)
        found = [_submission(row) for row in rows]
        if wanted is not None:
            found = [s for s in found if s.status in wanted]
        return found[: max(1, min(100, limit))]

    async def wait(self, submission_id: str) -> Submission | None:
        """Return once the submission is over. Raises `NestedTurn` where that would never be."""
        check_call("wait_for_submission", submission_id=submission_id)
        known = self._open.get(submission_id)
        if known is not None:
            if not known.over.is_set():
                self._desk.door.refuse_waiting("wait_for_submission")
            await known.over.wait()
        return await self.inspect(submission_id)

    async def _row(self, sql: str, value: str) -> Submission | None:
        rows = await self._desk.store.fetch(sql, self._desk.id, value)
        return _submission(rows[0]) if rows else None

    # --- cancelling and deleting

    async def cancel(self, submission_id: str, reason: object = None) -> None:
        """Stop a submission. One that has not begun never does; one that runs ends with what it said.

        Its end is durable when this returns, unless the caller is part of a turn: nobody waits for itself.
        """
        check_call("cancel_submission", submission_id=submission_id)
        desk, is_open = self._desk, self._open.get(submission_id)
        known = await self.inspect(submission_id)
        if known is None or known.status in TERMINAL:
            return
        text, request_id = None if reason is None else str(reason), known.request_id or submission_id
        now = desk.clock.now_ms()
        written = desk.store.apply(
            [
                queries.ended_early(desk.id, submission_id, status="aborted", error=text, now=now),
                queries.stopped(desk.id, request_id, reason=text),
            ]
        )
        desk.aborts.cancel(request_id, reason)
        [ended, *_] = await written
        if ended:
            await self._tell_end(submission_id, is_open)
        elif is_open is not None and not in_active_turn(desk.id):
            await is_open.over.wait()

    async def delete(self, submission_id: str) -> bool:
        """Forget a submission that is over. Its id and key are new again afterwards."""
        check_call("delete_submission", submission_id=submission_id)
        if await self.inspect(submission_id) is None:
            return False
        rows = await self._desk.store.apply(queries.deleted(self._desk.id, [submission_id]))
        return bool(rows[0])

    async def delete_many(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        completed_before: int | None = None,
        limit: int = 100,
    ) -> int:
        """Forget submissions that are over, those completed first first. Returns how many."""
        check_call("delete_submissions", completed_before=completed_before, limit=limit)
        wanted = TERMINAL if status is None else _statuses(status)
        rows = await self._desk.store.fetch(queries.SUBMISSIONS, self._desk.id)
        over = [s for row in rows if (s := _submission(row)).status in wanted & TERMINAL]
        if completed_before is not None:
            over = [s for s in over if s.completed_at is not None and s.completed_at < completed_before]
        over.sort(key=lambda s: s.completed_at or 0)
        ids = [s.submission_id for s in over[: max(1, min(500, limit))]]
        deleted = await self._desk.store.apply(queries.deleted(self._desk.id, ids)) if ids else []
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
        desk = self._desk
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
            desk.emit(event)
        try:
            await call_hook(desk.submission_changed, submission)
        except Exception as error:  # noqa: BLE001 - the row is committed; a hook cannot change that
            desk.log_hook_error("on_submission_status", error)


def _statuses(status: Status | Sequence[Status]) -> frozenset[str]:
    check_words("status", status, get_args(Status))
    return frozenset([status] if isinstance(status, str) else status)


_STATUS: dict[str, Status] = {"accepted": "pending", "interrupted": "running"}


def _submission(row: Row) -> Submission:
    metadata: Any = None
    if row[6]:
        try:
            metadata = decode_json(row[6])
        except msgspec.DecodeError:
            metadata = None
    return Submission(
        submission_id=row[0],
        request_id=row[1],
        status=cast("Status", _STATUS.get(row[3], row[3])),
        idempotency_key=row[7],
        metadata=cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else None,
        error=row[9],
        created_at=row[10],
        started_at=row[11],
        completed_at=row[12],
    )
