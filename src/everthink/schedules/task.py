"""A task that an agent declares, and what it is told when it runs.

get_scheduled_tasks --ScheduledTask--> declared.py --Declared--> tasks.py --TaskContext--> its handler
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from ..settings import check_fields

__all__ = ["ScheduledTask", "TaskContext"]


@dataclass(frozen=True, slots=True)
class TaskContext:
    """One occurrence of a task, for its handler."""

    task_id: str
    scheduled_for: datetime
    occurrence_key: str
    idempotency_key: str
    """The same however often this occurrence is tried: give it to whatever must happen once."""
    schedule: str
    schedule_kind: Literal["interval", "wall-clock"]
    timezone: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledTask:
    """Something an agent does again and again: a `prompt` it answers, or a `handler` it calls.

        ScheduledTask(schedule="every weekday at 09:00 in Europe/London", prompt="What is new?")

    A function for the prompt, and the handler, may be `async`; the handler gets a `TaskContext`. It is a
    function, a method of the agent, or the name of one.
    """

    schedule: str
    prompt: str | Callable[[], str | Awaitable[str]] | None = None
    handler: Callable[..., Any] | str | None = None
    timezone: str | None = None
    retry: Any = None
    """`Retry(max_attempts=…)`, or the same as a dict, around the action; three attempts unless given."""
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "ScheduledTask")
