"""Submissions: accept a turn now, run it later, ask how it went.

    submit_messages --> turns row `accepted` --> (queue) --> running --> completed | error | …

A submission is a turn somebody asks about later; it has no table and no queue of its own.
Every change of its row is conditional on the state before, so a late result never overwrites
a final one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

import msgspec

from .errors import InvalidTurn, StoreError, SubmissionConflict
from .messages import Message, MessageInput, as_messages, encode_json
from .observe.events import EventBody, SubmissionCreate, SubmissionError, SubmissionStatus
from .store.port import Row
from .turn import queries
from .turn.admission import Door, House, Record
from .turn.envelope import opened
from .turn.hooks import call_hook
from .turn.perform import with_stamps
from .turn.turn import Turn

__all__ = ["Status", "Submission", "Submissions"]

log = logging.getLogger("everthink.submissions")

Status = Literal["pending", "running", "completed", "error", "aborted", "skipped"]
TERMINAL: frozenset[str] = frozenset({"completed", "error", "aborted", "skipped"})
SKIPPED_TEXT = "Submission was skipped by turn reset."
CONFLICT = "submission_id and idempotency_key refer to different submissions"


@dataclass(frozen=True, slots=True)
class Submission:
    """How a submission stands. `accepted` is False when the id or key was known already."""

    submission_id: str
    status: Status
    created_at: int
    request_id: str | None = None
    idempotency_key: str | None = None
    metadata: dict[str, Any] | None = None
    error: str | None = None
    started_at: int | None = None
    completed_at: int | None = None
    accepted: bool = False


class Desk(House, Protocol):
    """A house that takes submissions."""

    door: Door

    async def submission_changed(self, submission: Submission) -> None:
        """Call the agent's `on_submission_status`."""
        ...


class Submissions:
    """The submissions of one agent."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        # Final states told already: a cancelled turn ends once more when it notices.
        self._told: set[str] = set()

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
        given = [with_stamps(m, channel, None) for m in as_messages(messages, new_id=desk.new_id)]
        if not given:
            raise InvalidTurn("submit_messages requires at least one message.", kept="Nothing was stored.")
        text = None if metadata is None else encode_json(metadata).decode()
        known = await self._known(submission_id, idempotency_key)
        if known is not None:
            return known
        turn = self._turn(given, submission_id or desk.new_id(), channel)
        try:
            await desk.door.admit(turn, record=Record(text, idempotency_key))
        except StoreError:
            # Two callers with one key at the same moment: the second finds the first's row.
            known = await self._known(submission_id, idempotency_key)
            if known is None:
                raise
            return known
        desk.emit(
            SubmissionCreate(
                submission_id=turn.id, request_id=turn.request_id, idempotency_key=idempotency_key
            )
        )
        submission = await self.inspect(turn.id)
        assert submission is not None
        pending = _replace(submission, accepted=True, status="pending", started_at=None, completed_at=None)
        await self._tell(pending)
        return pending

    def _turn(self, messages: list[Message], id: str, channel: str | None) -> Turn:
        turn = self._desk.door.turn("submission", input=messages, request_id=id, id=id, channel=channel)

        async def watch(status: str, error: str | None) -> None:
            await self._changed(id, status)

        turn.watch = watch
        return turn

    async def _known(self, id: str | None, key: str | None) -> Submission | None:
        by_id = await self._row(queries.SUBMISSION, id) if id is not None else None
        by_key = await self._row(queries.SUBMISSION_BY_KEY, key) if key is not None else None
        if by_key is not None and id is not None and by_key.submission_id != id:
            raise SubmissionConflict(CONFLICT)
        if by_id is not None and key is not None and by_id.idempotency_key not in (None, key):
            raise SubmissionConflict(CONFLICT)
        return by_id or by_key

    async def resume(self, row: Row) -> bool:
        """Queue an accepted row of an earlier process again. False when its input is unreadable."""
        desk, id = self._desk, cast("str", row[0])
        try:
            envelope = opened(row[5])
        except msgspec.DecodeError:
            envelope = None
        if envelope is None or envelope.messages is None:
            error = "Stored submission messages are invalid"
            await desk.store.apply(
                [queries.ended(desk.id, id, status="error", error=error, now=desk.clock.now_ms())]
            )
            return False
        turn = self._turn(envelope.messages, id, envelope.channel)
        desk.door.enter(turn, desk.queue.reserve(turn.request_id))
        return True

    # --- asking

    async def inspect(self, submission_id: str) -> Submission | None:
        """How a submission stands, or `None` when there is none of that id."""
        return await self._row(queries.SUBMISSION, submission_id)

    async def list(
        self, *, status: Status | Sequence[Status] | None = None, limit: int = 50
    ) -> list[Submission]:
        """Submissions, newest first."""
        wanted = _statuses(status)
        rows = await self._desk.store.fetch(queries.SUBMISSIONS, self._desk.id)
        found = [_submission(row) for row in rows]
        return [s for s in found if wanted is None or s.status in wanted][: max(1, min(100, limit))]

    async def _row(self, sql: str, value: str) -> Submission | None:
        rows = await self._desk.store.fetch(sql, self._desk.id, value)
        return _submission(rows[0]) if rows else None

    # --- cancelling and deleting

    async def cancel(self, submission_id: str, reason: object = None) -> None:
        """Stop a submission. One that has not begun never does; one that runs keeps what it said."""
        desk = self._desk
        known = await self.inspect(submission_id)
        if known is None or known.status in TERMINAL:
            return
        text = None if reason is None else str(reason)
        rows = await desk.store.apply(
            [queries.ended(desk.id, submission_id, status="aborted", error=text, now=desk.clock.now_ms())]
        )
        desk.aborts.cancel(known.request_id or submission_id, reason)
        if rows[0]:
            await self._changed(submission_id, "aborted")

    async def delete(self, submission_id: str) -> bool:
        """Forget a submission that is over. Its id and key are new again afterwards."""
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
        wanted = (_statuses(status) or TERMINAL) & TERMINAL
        rows = await self._desk.store.fetch(queries.SUBMISSIONS, self._desk.id)
        over = [s for row in rows if (s := _submission(row)).status in wanted]
        if completed_before is not None:
            over = [s for s in over if s.completed_at is not None and s.completed_at < completed_before]
        over.sort(key=lambda s: s.completed_at or 0)
        ids = [s.submission_id for s in over[: max(1, min(500, limit))]]
        deleted = await self._desk.store.apply(queries.deleted(self._desk.id, ids)) if ids else []
        return sum(bool(rows) for rows in deleted[::3])

    # --- telling

    async def skipped(self, ids: Sequence[str]) -> None:
        """Tell that a reset skipped these."""
        for id in ids:
            await self._changed(id, "skipped")

    async def _changed(self, id: str, status: str) -> None:
        if status in TERMINAL:
            if id in self._told:
                self._told.discard(id)
                return
            self._told.add(id)
        submission = await self.inspect(id)
        if submission is None:
            return
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
            desk.complain("on_submission_status", error)


def _statuses(status: Status | Sequence[Status] | None) -> frozenset[str] | None:
    if status is None:
        return None
    return frozenset([status] if isinstance(status, str) else status)


_STATUS: dict[str, Status] = {"accepted": "pending", "interrupted": "running"}


def _submission(row: Row) -> Submission:
    metadata: Any = None
    if row[6]:
        try:
            metadata = msgspec.json.decode(row[6])
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


def _replace(submission: Submission, **changes: Any) -> Submission:
    fields = {name: getattr(submission, name) for name in Submission.__dataclass_fields__}
    return Submission(**{**fields, **changes})
