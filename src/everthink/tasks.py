"""Work that nobody awaits: what it raises is logged with its traceback, and told.

    work --begin--> task --raises--> the log, tell(TaskFailed)

`tests/shape/test_tasks.py` knows every other place that starts a task, and who awaits it there.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from .observe.events import TaskFailed

__all__ = ["Tell", "begin", "stop"]

log = logging.getLogger("everthink.tasks")

T = TypeVar("T")
Tell = Callable[[TaskFailed], object]


def begin(
    work: Awaitable[T], what: str, *, tell: Tell, context: contextvars.Context | None = None
) -> asyncio.Future[T]:
    """Start `work` beside everything else. `what` is how it is called when it fails."""

    def done(task: asyncio.Future[T]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("%s failed, and nobody waited for it", what, exc_info=error)
        tell(TaskFailed(task=what, error=str(error) or type(error).__name__, error_type=type(error).__name__))

    if context is not None:
        task: asyncio.Future[T] = asyncio.create_task(_whole(work), name=what, context=context)
    else:
        task = asyncio.ensure_future(work)
    task.add_done_callback(done)
    return task


async def _whole(work: Awaitable[T]) -> T:
    return await work


async def stop(task: asyncio.Future[Any] | None, grace: float) -> None:
    """Let a task end: it gets `grace` seconds, is then cancelled, and has a second for that."""
    if task is None or task.done():
        return
    if grace > 0:
        await asyncio.wait({task}, timeout=grace)
    task.cancel()
    await asyncio.wait({task}, timeout=1)
