"""Accept something once, whoever asks again under the same id or key.

    submit_messages, start_fiber --id, key--> known_record --> the one there is, or None: a new one is stored

What is being accepted goes on when the caller stops waiting: there is no row that nobody runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from .causes import is_superseded

__all__ = ["Acceptances", "known_record"]

T = TypeVar("T")
Find = Callable[[str], Awaitable[T | None]]


class Acceptances(Generic[T]):
    """What one agent is accepting of one kind."""

    __slots__ = ("_tasks", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held from the look for a record until the new one is stored: of two callers the second finds it."""
        self._tasks: set[asyncio.Task[T]] | None = None  # an agent that accepts nothing needs none

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns. It comes to its end also when nobody waits for that any more."""
        task = asyncio.create_task(work)
        self._tasks = self._tasks if self._tasks is not None else set()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_unheard)
            raise

    async def settled(self) -> None:
        """Return once nothing is being accepted."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))


def _unheard(task: asyncio.Task[Any]) -> None:
    """Nobody waits any more. Where the process stops, the next one goes on; anything else is told."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not is_superseded(error):
        told = {"message": "nobody heard why something was not accepted", "exception": error, "task": task}
        task.get_loop().call_exception_handler(told)


async def known_record(
    id: str | None,
    key: str | None,
    *,
    by_id: Find[T],
    by_key: Find[T],
    names: Callable[[T], tuple[str, str | None]],
    conflict: Callable[[], Exception],
) -> T | None:
    """The record that is stored under this id or this key. `names` gives the id and the key of one.

    Raises `conflict` when the id and the key are those of two records, or the record has another key.
    """
    with_id = await by_id(id) if id is not None else None
    with_key = await by_key(key) if key is not None else None
    if with_key is not None and id is not None and names(with_key)[0] != id:
        raise conflict()
    if with_id is not None and key is not None and names(with_id)[1] not in (None, key):
        raise conflict()
    return with_id or with_key
