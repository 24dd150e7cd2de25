"""Timers that survive: a callback of the agent, and when it is due.

    schedule --> alarms row --> waker: it is due --> run_due --> callback --> the row is removed or moved on

The callback runs first and the row goes afterwards, in one commit: a process that dies in between
runs it again, so what is due once happens at least once. `starts` is written before the callback, so
it can tell. One callback of an agent runs at a time.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast, get_args

from ..causes import is_superseded
from ..clock import moment_of
from ..errors import InvalidSchedule, StoreError
from ..holds import Hold
from ..observe.events import (
    AlarmMemoryLimitReset,
    ScheduleCancel,
    ScheduleCreate,
    ScheduleDuplicateWarning,
    ScheduleError,
    ScheduleExecute,
    ScheduleRetry,
)
from ..settings import check_call, setting
from ..store.port import Rows, Statement
from ..surface import check_words
from ..tasks import stop
from . import alarm_queries as queries
from .alarm_queries import AlarmRow
from .callbacks import (
    CallbackOutcome,
    as_retry,
    callback_name,
    options_of,
    packed,
    read_retry,
    run_stored,
    short_id,
    unpacked,
    write_retry,
)
from .parts import Parts
from .retry import Retry, is_out_of_memory, is_transient
from .when import (
    Kind,
    Moment,
    as_ms,
    cron_after,
    every,
    moment,
)

__all__ = ["Alarms", "Schedule"]

log = logging.getLogger("everthink.runtime")

MANY = 10
"""So many due one-shots of one callback look like a mistake."""
BATCH = 500
"""How many due rows one pass takes; what is left is still due afterwards."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A timer: which callback, with what, when.

    `time` is the moment it is meant for. `starts` is how often it was begun without an end: 1 while it
    runs for the first time, more when an earlier process began it and died, or it was put off.
    """

    id: str
    callback: str
    payload: Any
    type: Kind
    time: datetime
    delay_in_seconds: float | None = None
    cron: str | None = None
    interval_seconds: float | None = None
    retry: Retry | None = None
    starts: int = 0


@dataclass(frozen=True, slots=True)
class _Unwritten:
    """A callback that has run, and the statement that will say so. Until that is written the agent stays in
    memory, because only there it is known that the callback must not run again."""

    statement: Statement
    hold: Hold
    next_time: int | None


class Alarms:
    """The timers of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        # One at a time, so that callers who mean the same timer find the first one's row.
        self._creating = asyncio.Lock()
        self._pass: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.is_starting = False
        """True while the agent's `on_start` runs."""
        self._warned: tuple[str, ...] = ()
        self._unwritten: list[_Unwritten] = []

    # --- putting on and taking off

    async def schedule(
        self,
        when: Any,
        callback: Any,
        payload: Any = None,
        *,
        retry: Retry | None = None,
        idempotent: bool | None = None,
        is_ours: bool = False,
    ) -> Schedule:
        """Store a timer, unless an equal one is kept (`idempotent`), and see that it wakes the agent.

        `is_ours`: the callback is one of everthink itself.
        """
        name = callback if is_ours else callback_name(self._parts.agent, callback)
        due = moment(when, now=self._parts.clock.now_ms(), callback=name)
        if self.is_starting and idempotent is None and due.type != "cron" and name not in self._warned:
            self._warned += (name,)
            log.warning(
                "%s schedules %r in on_start: each start adds another row. Say idempotent=True to keep one,"
                " or idempotent=False if you mean it.",
                self._parts.id,
                name,
            )
        once = due.type == "cron" if idempotent is None else idempotent
        return await self._create(due, name, payload, retry, once=once)

    async def schedule_every(
        self, seconds: Any, callback: Any, payload: Any = None, *, retry: Retry | None = None
    ) -> Schedule:
        """Store a timer that comes again so long after its callback returned, or keep an equal one."""
        name = callback_name(self._parts.agent, callback)
        due = every(seconds, now=self._parts.clock.now_ms())
        return await self._create(due, name, payload, retry, once=True)

    async def _create(
        self, due: Moment, callback: str, payload: Any, retry: Retry | None, *, once: bool
    ) -> Schedule:
        parts = self._parts
        options_of(parts.agent, retry)
        retry = as_retry(retry)
        row = AlarmRow(
            short_id(),
            callback,
            packed(payload),
            due.type,
            due.time,
            due.time,
            due.delay_ms,
            due.cron,
            due.interval_ms,
            write_retry(retry),
            started_at=None,
            starts=0,
            strikes=0,
        )
        async with self._creating:
            known = await self._similar(row) if once else None
            if known is not None:
                parts.alarm_at(known.due_at)
                return _schedule(known)
            cls = type(parts.agent).__name__
            await parts.store.apply([queries.created(cls, row, now=parts.clock.now_ms())])
        parts.emit(ScheduleCreate(callback=callback, id=row.id))
        parts.alarm_at(row.due_at)
        return _schedule(row)

    async def _similar(self, row: AlarmRow) -> AlarmRow | None:
        query = queries.similar(
            type=row.type,
            callback=row.callback,
            payload=row.payload,
            cron=row.cron,
            interval_ms=row.interval_ms,
        )
        rows = await self._parts.store.fetch(query.sql, *query.params)
        return AlarmRow.of(rows[0]) if rows else None

    async def get(self, id: str) -> Schedule | None:
        """The timer with this id, as long as it is stored."""
        check_call("get_schedule", id=id)
        row = await self._row(id)
        return None if row is None else _schedule(row)

    async def _row(self, id: str) -> AlarmRow | None:
        rows = await self._parts.store.fetch(queries.BY_ID, id)
        return AlarmRow.of(rows[0]) if rows else None

    async def listed(
        self,
        *,
        id: str | None = None,
        type: Kind | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> list[Schedule]:
        """The timers of the agent, the earliest first, narrowed by what is given."""
        check_call("list_schedules", id=id, start=start, end=end)
        if type is not None:
            check_words("list_schedules: type", type, get_args(Kind))
        query = queries.listed(
            id=id,
            type=type,
            start=None if start is None else as_ms(start, kept=""),
            end=None if end is None else as_ms(end, kept=""),
        )
        rows = await self._parts.store.fetch(query.sql, *query.params)
        return [_schedule(AlarmRow.of(row)) for row in rows]

    async def cancel(self, id: str) -> bool:
        """Remove a timer. False when there is none of that id."""
        check_call("cancel_schedule", id=id)
        (rows,) = await self._parts.store.apply([queries.cancelled(id)])
        if not rows:
            return False
        self._parts.emit(ScheduleCancel(callback=rows[0][0], id=id))
        return True

    # --- life

    @contextmanager
    def starting(self) -> Generator[None]:
        """While the agent's `on_start` runs."""
        self.is_starting = True
        try:
            yield
        finally:
            self.is_starting = False

    async def stop(self, grace: float) -> None:
        """Begin nothing more; a callback that runs gets `grace` seconds and is then cancelled."""
        self._is_stopping = True
        await stop(self._pass, grace)

    async def run_due(self) -> None:
        """Run what is due. Raises when a failure around the application cut it short: try again later."""
        if self._pass is None or self._pass.done():
            # A context of its own: a callback belongs to no request and no turn, whoever woke the agent.
            self._pass = asyncio.create_task(
                self._run_due(), name=f"alarms of {self._parts.id}", context=contextvars.Context()
            )
        await asyncio.shield(self._pass)

    # --- a pass

    async def _run_due(self) -> None:
        parts = self._parts
        with parts.holds.take():
            try:
                await self._write_down()
                while not self._is_stopping:
                    rows = await parts.store.fetch(queries.DUE, parts.clock.now_ms(), BATCH)
                    await self._run_each([AlarmRow.of(row) for row in rows])
                    if len(rows) < BATCH:
                        return
            finally:
                await self._write_down()

    async def _run_each(self, due: list[AlarmRow]) -> None:
        self._warn_of_many(due)
        for row in due:
            if self._is_stopping:
                return
            await self._run(row)
        await self._write_down()

    async def _write_down(self, *more: Statement) -> Rows:
        """Write what has run, together with what comes next. Gives the rows of the last statement."""
        written = list(self._unwritten)
        commit = [*(one.statement for one in written), *more]
        if not commit:
            return []
        answers = await self._parts.store.apply(commit)
        del self._unwritten[: len(written)]
        for one in written:
            one.hold.release()
            if one.next_time is not None:
                self._parts.alarm_at(one.next_time)
        return answers[-1]

    def _warn_of_many(self, due: list[AlarmRow]) -> None:
        counts = Counter(row.callback for row in due if _is_one_shot(row))
        for callback, count in counts.items():
            if count >= MANY:
                log.warning(
                    "%s has %d timers for %r due at once; does each start add one? See idempotent=True.",
                    self._parts.id,
                    count,
                    callback,
                )
                self._parts.emit(ScheduleDuplicateWarning(callback=callback, count=count, type_="one-shot"))

    async def _run(self, row: AlarmRow) -> None:
        parts, now = self._parts, self._parts.clock.now_ms()
        if row.type == "interval" and row.started_at is not None and not self._is_hung(row, now):
            return await self._pass_over(row)
        claimed = await self._write_down(queries.started(row.id, now=now))
        if not claimed:
            return None  # cancelled by a callback before it
        parts.emit(ScheduleExecute(callback=row.callback, id=row.id))
        try:
            outcome = await run_stored(
                parts,
                row._replace(starts=claimed[0][0]),
                _schedule,
                ScheduleRetry,
                otherwise="its timer is taken as done",
            )
        except asyncio.CancelledError:
            await self._release(row)
            raise
        if outcome.error is not None and await self._keeps(row, outcome.error):
            return None
        self._settle(row)
        if outcome.error is not None:
            parts.emit(_failed(row, outcome))
            await parts.report(outcome.error)
        return None

    def _is_hung(self, row: AlarmRow, now: int) -> bool:
        assert row.started_at is not None
        return now >= row.started_at + setting(self._parts.agent, "hung_schedule_timeout") * 1000

    async def _pass_over(self, row: AlarmRow) -> None:
        """An interval that another process began, or that was cut off: it gets the time to end."""
        parts = self._parts
        until = cast("int", row.started_at) + round(setting(parts.agent, "hung_schedule_timeout") * 1000)
        wait = max(0, until - parts.clock.now_ms()) / 1000
        log.warning(
            "%s: the interval %r was begun by a process that did not tell its end, and may have died;"
            " it is passed over and begun again in %g s (hung_schedule_timeout)",
            parts.id,
            row.callback,
            wait,
        )
        await parts.store.apply([queries.put_off(row.id, until=until, strikes=row.strikes)])
        parts.alarm_at(until)

    async def _keeps(self, row: AlarmRow, error: BaseException) -> bool:
        """True when the row is to stay as it is. Raises when the whole pass is to be tried again."""
        if is_superseded(error) or (_is_one_shot(row) and is_transient(error)):
            await self._release(row)
            raise error
        if _is_one_shot(row) and is_out_of_memory(error):
            return await self._strike(row, error)
        return False

    async def _release(self, row: AlarmRow) -> None:
        """Say that a callback which was cut off does not run any more, so that the next pass may begin it.

        When this cannot be written, the next pass waits until the row counts as hung.
        """
        try:
            await self._parts.store.apply([queries.released(row.id)])
        except StoreError as error:
            log.info("%s: the timer %r stays marked as running: %s", self._parts.id, row.callback, error)

    async def _strike(self, row: AlarmRow, error: BaseException) -> bool:
        """Memory ran out: put the row off, or let it go when that happened too often."""
        parts, limit = self._parts, setting(self._parts.agent, "max_alarm_memory_limit_strikes")
        strikes = row.strikes + 1
        is_sealed = strikes >= limit
        if not is_sealed:
            until = parts.clock.now_ms() + min(300, 30 * strikes) * 1000
            await parts.store.apply([queries.put_off(row.id, until=until, strikes=strikes)])
            parts.alarm_at(until)
        parts.emit(
            AlarmMemoryLimitReset(
                strikes=strikes, limit=limit, sealed=is_sealed, error=str(error) or "out of memory"
            )
        )
        return not is_sealed

    def _settle(self, row: AlarmRow) -> None:
        """The callback has run: remove the row, or move it to its next time, with the next commit."""
        parts, time = self._parts, _next_time(row, self._parts.clock.now_ms())
        statement = queries.ended(row.id) if time is None else queries.moved(row.id, time=time)
        self._unwritten.append(_Unwritten(statement, parts.holds.take(), time))


def _next_time(row: AlarmRow, now: int) -> int | None:
    """When it is due again, or `None` when it is over."""
    if row.interval_ms is not None:
        return now + row.interval_ms
    if row.cron is None:
        return None
    try:
        # Not from `now` alone: a clock that was set back must not give the same time again.
        return cron_after(row.cron, max(now, row.time))
    except InvalidSchedule as error:
        log.error("the timer %s for %r comes to its end: %s", row.id, row.callback, error)
        return None


def _is_one_shot(row: AlarmRow) -> bool:
    return row.type in ("scheduled", "delayed")


def _failed(row: AlarmRow, outcome: CallbackOutcome) -> ScheduleError:
    error = outcome.error
    return ScheduleError(
        callback=row.callback,
        id=row.id,
        error=str(error) or type(error).__name__,
        attempts=outcome.attempts,
    )


def _schedule(row: AlarmRow) -> Schedule:
    return Schedule(
        row.id,
        row.callback,
        unpacked(row.payload),
        cast("Kind", row.type),
        moment_of(row.time),
        delay_in_seconds=None if row.delay_ms is None else row.delay_ms / 1000,
        cron=row.cron,
        interval_seconds=None if row.interval_ms is None else row.interval_ms / 1000,
        retry=read_retry(row.retry),
        starts=row.starts,
    )
