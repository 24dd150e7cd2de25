"""Declared tasks become timers, and timers become turns or calls.

    get_scheduled_tasks() --reconcile--> row + one timer each --due--> run: prompt or handler --> next timer

One timer per task, for its next occurrence. A task that is late runs once, for the time it was meant
for; what was missed besides is not made up for. The action carries a key of its occurrence, so that
an occurrence which is tried again after a crash is the same one.
"""

from __future__ import annotations

import logging
from typing import Any, cast

from ..calling import call_hook
from ..clock import moment_of
from ..door.submissions import Submissions
from ..errors import InvalidScheduledTask
from ..hooks.runner import HookRunner
from ..settings import shown
from . import queries
from .alarms import Alarms
from .callbacks import options_of
from .declared import Declared, declare
from .occurrence import next_occurrence
from .parts import Parts
from .queries import TaskRow
from .retry import retrying
from .task import TaskContext

__all__ = ["CALLBACK", "Tasks"]

log = logging.getLogger("everthink.schedules")

CALLBACK = "_run_scheduled_task"
"""The method that a task's timer calls."""


class Tasks:
    """The declared tasks of one agent."""

    __slots__ = ("_alarms", "_hooks", "_parts", "_submissions")

    def __init__(self, parts: Parts, alarms: Alarms, submissions: Submissions, hooks: HookRunner) -> None:
        self._parts, self._alarms, self._submissions = parts, alarms, submissions
        self._hooks = hooks

    async def reconcile(self) -> None:
        """Bring timers in line with what is declared now. Raises when a declaration cannot be read."""
        parts = self._parts
        rows = {row[0]: TaskRow.of(row) for row in await parts.store.fetch(queries.ALL)}
        if not rows and not self._hooks.overrides("get_scheduled_tasks"):
            return
        declared = await self._declared()
        for task in declared.values():
            await self._bring_in_line(task, rows.pop(task.id, None))
        for row in rows.values():
            await self._take_back(row)
            await parts.store.apply([queries.forgotten(row.task_id)])

    async def _declared(self) -> dict[str, Declared]:
        tasks, zone = await self._hooks.get_scheduled_tasks(), await self._hooks.get_default_timezone()
        return declare(tasks, zone, self._hooks.agent)

    async def _bring_in_line(self, task: Declared, row: TaskRow | None) -> None:
        parts, now = self._parts, self._parts.clock.now_ms()
        if row is None or row.schedule_hash != task.schedule_hash:
            if row is not None:
                await self._take_back(row)
            hashes = {"schedule_hash": task.schedule_hash, "task_hash": task.task_hash}
            await parts.store.apply([queries.declared(task.id, **hashes, now=now)])
            await self._put_on(task, next_occurrence(task.schedule, now=now))
            return
        if row.alarm_id is None or await self._alarms.get(row.alarm_id) is None:
            # Cut off between row and timer, or somebody took the timer: the time that was meant stays.
            due = row.next_run_at if row.next_run_at is not None else next_occurrence(task.schedule, now=now)
            await self._put_on(task, due)
        if row.task_hash != task.task_hash:
            await parts.store.apply([queries.renamed(task.id, task_hash=task.task_hash, now=now)])

    async def _take_back(self, row: TaskRow) -> None:
        if row.alarm_id is not None:
            await self._alarms.cancel(row.alarm_id)

    async def _put_on(self, task: Declared, due: int) -> None:
        parts = self._parts
        payload = {"taskId": task.id, "scheduleHash": task.schedule_hash, "scheduledFor": due}
        alarm = await self._alarms.schedule(moment_of(due), CALLBACK, payload, idempotent=True, is_ours=True)
        row = queries.advanced(
            task.id,
            schedule_hash=task.schedule_hash,
            alarm_id=alarm.id,
            next_run_at=due,
            now=parts.clock.now_ms(),
        )
        await parts.store.apply([row])

    # --- an occurrence

    async def run(self, payload: Any) -> None:
        """Run the occurrence that a timer names, and put on the next timer. What it raises is reported."""
        id, schedule_hash, due = _read(payload)
        parts = self._parts
        rows = await parts.store.fetch(queries.ONE, id)
        row = TaskRow.of(rows[0]) if rows else None
        if row is None or row.schedule_hash != schedule_hash or (row.next_run_at or 0) > due:
            return  # a timer of an earlier declaration, or of an occurrence that is over
        try:
            declared = await self._declared()
        except Exception as error:  # noqa: BLE001 - the mistake of one start must not end the chain
            await parts.report(error)
            await self._come_again(row)
            return
        task = declared.get(id)
        if task is None or task.schedule_hash != schedule_hash:
            return
        try:
            options = options_of(parts.agent, task.task.retry)
            await retrying(lambda _: self._act(task, due), options, clock=parts.clock)
        except Exception as error:
            log.error("scheduled task %s of %s failed", id, parts.id, exc_info=error)
            await parts.report(error)
        now = parts.clock.now_ms()
        await self._put_on(task, next_occurrence(task.schedule, now=max(now, due), previous=due))

    async def _come_again(self, row: TaskRow) -> None:
        """The declarations cannot be read now: look again in a minute, for the same occurrence."""
        parts, due = self._parts, cast("int", row.next_run_at)
        payload = {"taskId": row.task_id, "scheduleHash": row.schedule_hash, "scheduledFor": due}
        alarm = await self._alarms.schedule(
            moment_of(parts.clock.now_ms() + 60_000), CALLBACK, payload, is_ours=True
        )
        await parts.store.apply(
            [
                queries.advanced(
                    row.task_id,
                    schedule_hash=row.schedule_hash,
                    alarm_id=alarm.id,
                    next_run_at=due,
                    now=parts.clock.now_ms(),
                )
            ]
        )

    async def _act(self, declared: Declared, due: int) -> None:
        parts, task = self._parts, declared.task
        occurrence = f"{declared.id}:{due}"
        key = f"think-schedule:{parts.id}:{occurrence}"
        if task.prompt is None:
            context = TaskContext(
                task_id=declared.id,
                scheduled_for=moment_of(due),
                occurrence_key=occurrence,
                idempotency_key=key,
                schedule=declared.schedule.text,
                schedule_kind=declared.kind,
                timezone=declared.zone,
                metadata=task.metadata,
            )
            await call_hook(cast("Any", task.handler), context)
            return
        text: Any = task.prompt if isinstance(task.prompt, str) else await call_hook(task.prompt)
        if not isinstance(text, str) or not text.strip():
            raise InvalidScheduledTask(
                f'The prompt of the scheduled task "{declared.id}" returned {shown(text)}.',
                kept="Nothing was asked; its next time stays.",
                next_step="Return text with something in it. To decide whether to ask, use a handler that"
                " calls self.submit_messages(…).",
            )
        marks = {
            **(task.metadata or {}),
            "source": "scheduled-task",
            "ownerKey": parts.id,
            "taskId": declared.id,
            "scheduledFor": due,
            "schedule": declared.schedule.text,
        }
        await self._submissions.accept(text, idempotency_key=key, metadata=marks)


def _read(payload: Any) -> tuple[str, str, int]:
    match payload:
        case {"taskId": str(id), "scheduleHash": str(hash_), "scheduledFor": int(due)}:
            return id, hash_, due
        case _:
            raise InvalidScheduledTask("Invalid declared scheduled task payload")
