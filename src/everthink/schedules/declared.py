"""Read the tasks that an agent declares: their schedules, their actions, and a hash that tells a changed one.

{name: ScheduledTask} --> declare --> {name: Declared}, or the first mistake
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import msgspec

from ..errors import InvalidScheduledTask, InvalidSettings
from ..messages import encode_json
from ..settings import as_settings, shown
from ..surface import can_take, is_tool, nearest_method, yields
from .callbacks import as_retry
from .phrase import Interval, Schedule, parse
from .task import ScheduledTask

__all__ = ["Declared", "declare"]

_ID = re.compile(r"[A-Za-z0-9_-]+")
_stable = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared task after its schedule was read."""

    id: str
    task: ScheduledTask
    schedule: Schedule
    schedule_hash: str
    task_hash: str

    @property
    def kind(self) -> Literal["interval", "wall-clock"]:
        """Which sort of schedule it has."""
        return "interval" if isinstance(self.schedule, Interval) else "wall-clock"

    @property
    def zone(self) -> str | None:
        """The zone of a time of day."""
        return None if isinstance(self.schedule, Interval) else self.schedule.zone


def declare(
    tasks: Mapping[str, Any],
    default_zone: str | None,
    agent: object = None,
) -> dict[str, Declared]:
    """Read all declared tasks; the first mistake is raised and none of them counts.

    A task may be a dict with the fields of a `ScheduledTask`, its handler the name of a method of `agent`.
    """
    if not isinstance(cast("Any", tasks), Mapping):
        raise InvalidScheduledTask(
            f"get_scheduled_tasks returned {shown(tasks)}.",
            kept="The timers there are stay.",
            next_step='It returns a dict of tasks by name: {"morning": ScheduledTask(…)}; {} for none.',
        )
    return {id: _declared(id, task, default_zone, agent) for id, task in tasks.items()}


def _declared(id: Any, given: Any, default_zone: Any, agent: object) -> Declared:
    task = _task(id, given)
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise InvalidScheduledTask(f'Invalid scheduled task id "{id}"; use letters, numbers, "_" or "-"')
    task = replace(task, retry=as_retry(task.retry, f'retry of the scheduled task "{id}"'))
    schedule = _schedule(id, task, default_zone)
    if (task.prompt is None) == (task.handler is None):
        raise InvalidScheduledTask(f'Scheduled task "{id}" must define exactly one of prompt or handler')
    task = replace(task, handler=_handler(id, task.handler, agent))
    if not isinstance(task.prompt, str):
        _check_action(id, "prompt", task.prompt, 0)
    options = None if task.retry is None else task.retry.to_json()
    schedule_hash = _hash([_plain(schedule), options])
    action = task.prompt if isinstance(task.prompt, str) else "<function>" if task.prompt else "handler"
    return Declared(id, task, schedule, schedule_hash, _hash([schedule_hash, action, task.metadata]))


def _task(id: Any, given: Any) -> ScheduledTask:
    if not isinstance(given, Mapping | ScheduledTask):
        raise InvalidScheduledTask(f'Scheduled task "{id}" is not a ScheduledTask')
    try:
        return as_settings(ScheduledTask, given, f'Scheduled task "{id}"')
    except InvalidSettings as error:
        raise InvalidScheduledTask(error.what, next_step=error.next_step) from error


def _schedule(id: str, task: ScheduledTask, default_zone: Any) -> Schedule:
    if default_zone is not None and not isinstance(default_zone, str):
        raise InvalidScheduledTask(
            f"default_timezone is {shown(default_zone)}.",
            next_step='It takes the name of a zone, such as "Europe/London", or None.',
        )
    try:
        return parse(task.schedule, zone=task.timezone, default_zone=default_zone)
    except InvalidScheduledTask as error:
        where = f'(scheduled task "{id}")'
        raise InvalidScheduledTask(error.what, kept=where, next_step=error.next_step) from None


def _handler(id: str, given: Any, agent: object) -> Callable[..., Any] | None:
    """A handler, found by its name when it is a text."""
    found = given
    if isinstance(given, str):
        found = getattr(agent, given, None)
        if not callable(found):
            near = nearest_method(agent, given)
            rather = f"Did you mean {near!r}?" if near else "Name a method of the agent, or give a function."
            raise InvalidScheduledTask(
                f'The handler of the scheduled task "{id}" is {given!r},'
                f" and {type(agent).__name__} has no such method.",
                next_step=rather,
            )
    _check_action(id, "handler", found, 1)
    return found


def _check_action(id: str, field: str, function: Any, count: int) -> None:
    given = "a TaskContext" if count else "nothing"
    if function is None:
        return
    if not callable(function):
        raise InvalidScheduledTask(
            f'The {field} of the scheduled task "{id}" is {shown(function)}.',
            next_step=f"It takes a text or a function, which is given {given}.",
        )
    if yields(function) or is_tool(function):
        why = "is a tool" if is_tool(function) else "has a `yield`, so that calling it runs nothing of it"
        raise InvalidScheduledTask(
            f'The {field} of the scheduled task "{id}", {shown(function)}, {why}.',
            next_step=f"Give a plain or async function, which is given {given}.",
        )
    if not can_take(function, count):
        raise InvalidScheduledTask(
            f'The {field} of the scheduled task "{id}", {shown(function)}, cannot be called.',
            next_step=f"It is given {given}.",
        )


def _plain(schedule: Schedule) -> dict[str, Any]:
    if isinstance(schedule, Interval):
        return {"minutes": schedule.minutes}
    return {
        "days": sorted(schedule.days),
        "at": f"{schedule.hour:02}:{schedule.minute:02}",
        "zone": schedule.zone,
    }


def _hash(value: Any) -> str:
    plain = msgspec.json.decode(encode_json(value))
    return hashlib.sha256(_stable(plain)).hexdigest()[:32]
