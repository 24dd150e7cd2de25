"""One fiber that runs in this process: what is known of it besides its row.

fibers --FiberRun--> fn(ctx)         current_fiber: the innermost one that this code is part of
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from ..abort import AbortController
from ..current import current_fiber, current_turn
from ..holds import Hold
from ..json_values import check_json
from .values import FiberContext, as_json

__all__ = ["FiberRun", "Keep", "Wrap"]

Wrap = Callable[[Any], Any]
"""What the framework puts around the checkpoints of a fiber of its own."""


class FiberRun:
    """A fiber that runs in this process."""

    __slots__ = (
        "_keep",
        "abort",
        "has_begun",
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


Keep = Callable[[FiberRun, Any], Awaitable[None]]
"""Stores a checkpoint of a fiber."""
