"""One fiber that runs in this process: what is known of it besides its row.

fibers --FiberRun--> fn(ctx)         current_fiber: the innermost one that this code is part of
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from typing import Any, Self, TypeVar

from ..abort import AbortController
from ..current import current_fiber, current_turn
from ..holds import Hold
from ..json_values import check_json
from .values import FiberContext, as_json

__all__ = ["FiberRun", "FiberTask", "Keep", "Wrap"]

T = TypeVar("T")

Wrap = Callable[[Any], Any]
"""What the framework puts around the checkpoints of a fiber of its own."""


class FiberRun:
    """A fiber that runs in this process."""

    __slots__ = (
        "_keep",
        "abort",
        "has_begun",
        "has_failed",
        "hold",
        "id",
        "is_cut",
        "is_over",
        "is_settling",
        "managed",
        "name",
        "outer",
        "settled",
        "task",
        "turn",
        "wrap",
    )

    def __init__(self, keep: Keep, id: str, name: str, *, managed: bool, wrap: Wrap | None = None) -> None:
        self._keep = keep
        self.id, self.name, self.managed, self.wrap = id, name, managed, wrap
        self.abort = AbortController()
        self.task: asyncio.Task[Any] | None = None
        self.settled = asyncio.Event()
        """Set once its end is stored (its function may still run when it was cancelled), or it was cut."""
        self.has_begun = self.is_settling = self.is_over = False
        self.has_failed = False
        """Its own function raised, and that is stored: for whoever awaits it to see."""
        self.is_cut = False
        """The process is stopping: the row stays open."""
        self.hold: Hold | None = None
        self.outer: object = None
        self.turn: object = None

    def begin(self, snapshot: Any = None) -> FiberContext:
        """This task is the fiber from here on."""
        self.has_begun = True
        self.outer, self.turn = current_fiber.get(), current_turn()
        current_fiber.set(self)
        return FiberContext(self.id, self.name, self.abort.signal, snapshot, self.stash)

    def end(self) -> None:
        """Its function has returned, or never will."""
        self.is_over = True
        self.settled.set()
        if self.hold is not None:
            self.hold.release()
        # A fiber that starts the next one, which starts the next one, must not keep them all in memory.
        self.outer = self.turn = None

    def belongs_to(self, keep: Keep) -> bool:
        """True for a fiber of the agent that keeps its checkpoints there."""
        return self._keep == keep

    def checkpoint(self, data: Any) -> str:
        """What is stored for `data`."""
        if self.wrap is None:
            return as_json(data, "checkpoint")
        check_json(data, "checkpoint")
        return as_json(self.wrap(data), "checkpoint")

    async def stash(self, data: Any) -> None:
        """Keep a checkpoint. It is durable when this returns."""
        await self._keep(self, data)


class FiberTask(asyncio.Task[T]):
    """The task of a fiber. It knows whether somebody waits for it, who will then see how it ends."""

    def __init__(self, work: Coroutine[Any, Any, T], name: str) -> None:
        self.is_awaited = False
        super().__init__(work, name=name)

    def add_done_callback(self, fn: Callable[[Self], object], /, *, context: Context | None = None) -> None:
        """What `await`, `gather` and `wait` do."""
        self.is_awaited = True
        super().add_done_callback(fn, context=context)

    def at_end(self, fn: Callable[[], object]) -> None:
        """Call this when it has ended. It does not count as waiting."""
        super().add_done_callback(lambda _: fn())


Keep = Callable[[FiberRun, Any], Awaitable[None]]
"""Stores a checkpoint of a fiber."""
