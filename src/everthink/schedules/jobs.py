"""The queue of an agent: callbacks that run one after the other, soon, in the order they were given.

    queue --> jobs row --> flusher: started, callback, removed --> the next one

A job is removed whether it succeeded or failed, so a bad one never stops those behind it. One that was
cut off by the end of its process runs again at the next start, so each runs at least once.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from ..backoff import backoff
from ..causes import is_superseded
from ..clock import moment_of
from ..errors import InvalidSettings, StoreClosed, StoreError
from ..messages import UNSET
from ..observe.events import QueueCreate, QueueError, QueueRetry
from ..settings import check_call
from ..store.port import Statement
from ..surface import nearest_method
from ..tasks import begin, stop
from . import job_queries as queries
from .callbacks import (
    as_retry,
    callback_name,
    find,
    options_of,
    packed,
    read_retry,
    run_stored,
    short_id,
    unpacked,
    write_retry,
)
from .job_queries import JobRow
from .parts import Parts
from .retry import Retry

__all__ = ["Job", "Jobs"]

log = logging.getLogger("everthink.runtime")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two looks at a database that is away."""


@dataclass(frozen=True, slots=True)
class Job:
    """A callback in the queue. `started_at` is there once it runs.

    `starts` is how often it was begun: 1 while it runs for the first time, more when an earlier process
    began it and died.
    """

    id: str
    callback: str
    payload: Any
    created_at: datetime
    started_at: datetime | None = None
    starts: int = 0
    retry: Retry | None = None


class Jobs:
    """The queue of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._task: asyncio.Future[None] | None = None
        self._is_open = False
        self._is_stopped = False
        # Set by whoever adds a job, taken back by the flusher before it looks.
        self._has_news = False

    # --- putting in and taking out

    async def queue(self, callback: Any, payload: Any = None, *, retry: Retry | None = None) -> str:
        """Store a job behind those there are, and begin with it when its turn comes. Returns its id."""
        parts = self._parts
        name = callback_name(parts.agent, callback)
        options_of(parts.agent, retry)
        retry = as_retry(retry)
        now = parts.clock.now_ms()
        row = JobRow(short_id(), name, packed(payload), write_retry(retry), now, started_at=None, starts=0)
        await parts.store.apply([queries.queued(row)])
        parts.emit(QueueCreate(callback=name, id=row.id))
        if self._is_stopped:
            parts.wake_at(now)  # code that outlived this instance: the next one does it
        self._flush()
        return row.id

    async def dequeue(self, id: str) -> bool:
        """Drop one job. False when there is none of that id."""
        check_call("dequeue", id=id)
        return bool(await self._drop(queries.dropped(id)))

    async def dequeue_all(self) -> int:
        """Drop every job. Returns how many there were."""
        return await self._drop(queries.dropped_all())

    async def dequeue_all_by_callback(self, callback: str | Callable[..., Any]) -> int:
        """Drop the jobs of one method. Returns how many there were."""
        name = callback if isinstance(callback, str) else callback_name(self._parts.agent, callback)
        dropped = await self._drop(queries.dropped_by_callback(name))
        if not dropped and find(self._parts.agent, name) is None:
            # No error: an earlier version of the agent may have had it.
            near = nearest_method(self._parts.agent, name)
            log.warning(
                "%s has no method %r%s", self._parts.id, name, f": {near!r} was meant?" if near else ""
            )
        return dropped

    async def _drop(self, statement: Statement) -> int:
        (rows,) = await self._parts.store.apply([statement])
        return len(rows)

    async def get(self, id: str) -> Job | None:
        """The job with this id, as long as it waits or runs."""
        check_call("get_queue", id=id)
        rows = await self._parts.store.fetch(queries.BY_ID, id)
        return _job(JobRow.of(rows[0])) if rows else None

    async def matching(self, key: str | None = None, value: Any = UNSET) -> list[Job]:
        """The jobs that wait or run, in order: all, or those whose payload holds `value` under `key`."""
        if key is not None and value is UNSET:
            raise InvalidSettings(
                f"get_queues({key!r}) has a key of payloads, and no value to look for.",
                next_step=f"Write get_queues({key!r}, value). One job by its id: get_queue(id).",
            )
        rows = await self._parts.store.fetch(queries.ALL)
        jobs = [_job(JobRow.of(row)) for row in rows]
        return jobs if key is None else [job for job in jobs if _has(job.payload, key, value)]

    # --- life

    async def open(self) -> None:
        """Go on with what an earlier process left. Jobs that `on_start` added run from here on."""
        self._is_open = True
        if self._has_news or await self._parts.store.fetch(queries.ANY, self._parts.id):
            self._flush()

    def refuse(self) -> None:
        """Begin nothing more. `stop` follows."""
        self._is_open, self._is_stopped = False, True

    async def stop(self, grace: float) -> None:
        """Begin nothing more; a callback that runs gets `grace` seconds and is then cancelled."""
        self.refuse()
        await stop(self._task, grace)

    @property
    def running(self) -> list[asyncio.Future[Any]]:
        """Whoever works on the queue."""
        return [] if self._task is None or self._task.done() else [self._task]

    async def idle(self) -> None:
        """Return once the queue is empty or stopped. For tests."""
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    # --- the flusher

    def _flush(self) -> None:
        self._has_news = True
        if self._is_open and (self._task is None or self._task.done()):
            # A context of its own: a job belongs to no request and no turn, whoever queued it.
            self._task = begin(
                self._run(),
                f"the queue of {self._parts.id}",
                tell=self._parts.emit,
                context=contextvars.Context(),
            )

    async def _run(self) -> None:
        parts = self._parts
        finished: list[Statement] = []
        with parts.holds.take():
            while self._is_open and (self._has_news or finished):
                self._has_news = False
                row = await self._next(finished)
                finished = []
                if row is None:
                    continue
                self._has_news = True
                if await self._perform(row):
                    finished = [queries.dropped(row.id)]
            if finished:
                await self._write(finished)

    async def _next(self, finished: Sequence[Statement]) -> JobRow | None:
        """Remove what is done and take the next one, in one commit."""
        parts = self._parts
        rows = await self._write([*finished, queries.claimed(now=parts.clock.now_ms())])
        return JobRow.of(rows[-1][0]) if rows and rows[-1] else None

    async def _write(self, commit: Sequence[Statement]) -> list[Any]:
        """Write, however long the database is away: a job that is done must not run again."""
        failures = 0
        while True:
            try:
                return await self._parts.store.apply(commit)
            except StoreClosed:
                self._is_open = False
                return []
            except StoreError as error:
                failures += 1
                pause = backoff(failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
                log.warning("the queue of %s waits %g s for the database: %s", self._parts.id, pause, error)
            await self._parts.clock.sleep(pause)

    async def _perform(self, row: JobRow) -> bool:
        """Run one job. False when it was cut off by our own end and belongs to the next process."""
        parts = self._parts
        outcome = await run_stored(parts, row, _job, QueueRetry, otherwise="the job is removed")
        error = outcome.error
        if error is None:
            return True
        if is_superseded(error) and not self._is_open:
            return False
        parts.emit(
            QueueError(
                callback=row.callback,
                id=row.id,
                error=str(error) or type(error).__name__,
                attempts=outcome.attempts,
            )
        )
        await parts.report(error)
        return True


def _job(row: JobRow) -> Job:
    return Job(
        row.id,
        row.callback,
        unpacked(row.payload),
        moment_of(row.created_at),
        started_at=None if row.started_at is None else moment_of(row.started_at),
        starts=row.starts,
        retry=read_retry(row.retry),
    )


def _has(payload: Any, key: str, value: Any) -> bool:
    """True when the payload is an object that holds this value under the key. `True` is not 1."""
    if not isinstance(payload, dict) or key not in payload:
        return False
    found: Any = cast("dict[str, Any]", payload)[key]
    return found == value and isinstance(found, bool) is isinstance(value, bool)
