"""Take up the fibers that a dead process left behind.

    open rows that nobody runs --> on_fiber_recovered --> closed, or tried again later

Once at every start, before the agent's own start code, and again while rows are left. A row is closed only
after its hook has returned, so a process that dies in between calls the hook again: a hook may run twice,
it is never forgotten. Whoever ends a fiber by other means meanwhile wins.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Container
from typing import Any, Literal

from ..backoff import backoff
from ..causes import is_superseded
from ..clock import Timer
from ..current import current_fiber, step_outside
from ..errors import InvalidFiber
from ..messages import UNSET
from ..observe.events import (
    FiberRecoveryAttempt,
    FiberRecoveryDetected,
    FiberRecoveryFailed,
    FiberRecoveryHandled,
    FiberRecoverySkipped,
    FiberRunInterrupted,
)
from ..store.port import Statement
from . import queries as queries
from .parts import Parts
from .values import (
    Fiber,
    FiberAborted,
    FiberCompleted,
    FiberFailed,
    FiberInterrupted,
    FiberOutcome,
    FiberRecovery,
    as_json,
    as_object,
    fiber_recovery_of,
    words,
)

__all__ = ["FIRST_RETRY", "LAST_RETRY", "Rescue", "outcome_statement"]

log = logging.getLogger("everthink.fibers")

FIRST_RETRY = 30.0
LAST_RETRY = 300.0

# The fibers whose recovery this code is part of, outermost first.
_RECOVERING: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar(
    "everthink_fibers_recovering", default=()
)


class Rescue:
    """The recovery of one agent's fibers. `running` are those of this process: it leaves them alone."""

    def __init__(self, parts: Parts, running: Container[str]) -> None:
        self._parts, self._running = parts, running
        self.retry_at: int | None = None
        """When the next scan is due, in ms; `None` when nothing is left."""
        self.is_stopping = False
        """The agent leaves memory: a hook that meets what is closed has not failed."""
        self._scan: asyncio.Task[None] | None = None
        self._recoveries: dict[str, asyncio.Task[bool]] = {}
        self._timer: Timer | None = None

    async def scan(self) -> None:
        """Take up every fiber that nobody runs. Callers that come while a scan runs share it."""
        if self._scan is not None and not self._scan.done():
            await asyncio.shield(self._scan)
            return
        self._scan = asyncio.create_task(self._scan_all())
        try:
            await self._scan
        except asyncio.CancelledError:
            for task in self._recoveries.values():
                task.cancel()
            raise
        self._scan = None

    async def one(self, id: str) -> None:
        """Take up one fiber, or wait for whoever does. A hook that asks for its own fiber goes on at once."""
        if id not in _RECOVERING.get():
            await self._once(id)

    async def stop(self) -> None:
        """Scan no more. A hook that runs is cut; its fiber is found at the next start."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = [task for task in (self._scan, *self._recoveries.values()) if task and not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

    # --- all of them

    async def _scan_all(self) -> None:
        parts, limit = self._parts, self._settings.scan_deadline
        if self._timer is not None:
            self._timer.cancel()
        self.retry_at = None
        rows = await parts.store.fetch(queries.OPEN)
        found = [fiber for row in rows if (fiber := Fiber.of(row)).id not in self._running]
        began = parts.clock.monotonic()
        failed: list[Fiber] = []
        untried: list[Fiber] = []
        for number, fiber in enumerate(found):
            if 0 < limit < parts.clock.monotonic() - began:
                parts.emit(FiberRecoverySkipped(**_names(fiber), reason="scan_deadline_exceeded"))
                untried = found[number:]
                break
            if not await self._once(fiber.id):
                failed.append(fiber)
        if failed or untried:
            has_progress = len(failed) + len(untried) < len(found)
            streak = 1 if has_progress else 1 + max(fiber.attempts for fiber in found)
            await self._postpone(failed, untried, streak)

    async def _postpone(self, failed: list[Fiber], untried: list[Fiber], streak: int) -> None:
        parts, delay = self._parts, backoff(streak, first=FIRST_RETRY, most=LAST_RETRY)
        self.retry_at = at = parts.clock.now_ms() + round(delay * 1000)
        await parts.store.apply(
            [
                *(queries.postponed(fiber.id, attempts=streak, at=at) for fiber in failed),
                *(queries.postponed(fiber.id, attempts=0, at=at) for fiber in untried),
            ]
        )
        self._arm(delay)

    def _arm(self, delay: float) -> None:
        parts = self._parts
        self._timer = parts.clock.call_later(delay, lambda: parts.background(self._again()))
        parts.wake_at(parts.clock.now_ms() + round(delay * 1000))  # the agent may leave memory before

    async def _again(self) -> None:
        parts = self._parts
        step_outside()  # whatever turn woke the agent does not wait for this
        with parts.holds.take():
            try:
                await self.scan()
            except Exception:
                self._arm(LAST_RETRY)  # the database said no; the rows are still there
                raise

    # --- one of them

    async def _once(self, id: str) -> bool:
        """True when the fiber needs nobody any more."""
        task = self._recoveries.get(id)
        if task is None:
            task = self._recoveries[id] = asyncio.create_task(self._recover(id), name=f"recover fiber {id}")
            task.add_done_callback(lambda _: self._recoveries.pop(id, None))
        return await asyncio.shield(task)

    async def _recover(self, id: str) -> bool:
        parts = self._parts
        current_fiber.set(None)  # whoever waits for this may be a fiber; the hook is not part of it
        rows = await parts.store.fetch(queries.STILL_OPEN, id)
        if id in self._running:
            return True  # somebody resumed it
        if rows and rows[0][2]:
            (rows,) = await parts.store.apply([queries.interrupted(id, now=parts.clock.now_ms())])
        if not rows:
            return True  # somebody ended it
        fiber = Fiber.of(rows[0])
        names, reason = _names(fiber), "interrupted"
        age = parts.clock.now_ms() - fiber.created_at
        parts.emit(FiberRecoveryDetected(**names, recovery_reason=reason, elapsed_ms=age))
        parts.emit(FiberRunInterrupted(**names, recovery_reason=reason))
        parts.emit(FiberRecoveryAttempt(**names, recovery_reason=reason))
        began = parts.clock.monotonic()
        try:
            status, closing = await self._hand_over(fiber)
        except (Exception, asyncio.CancelledError) as error:  # told, logged, tried again
            if _is_cut(error):
                raise
            if self.is_stopping and is_superseded(error):
                return False  # the next start finds it
            parts.hooks.log_error("on_fiber_recovered", error)
            is_closed = await self._failed(fiber, error)
            parts.emit(
                FiberRecoveryFailed(
                    **names, error=words(error), reason="handler_error", elapsed_ms=self._since(began)
                )
            )
            if is_closed and not fiber.managed and fiber.id not in self._running:
                parts.emit(FiberRecoverySkipped(**names, reason="max_age_exceeded"))
            return is_closed
        if fiber.id not in self._running:  # otherwise the hook has resumed it
            await parts.store.apply([closing])
        parts.emit(FiberRecoveryHandled(**names, status=status, elapsed_ms=self._since(began)))
        return True

    async def _hand_over(self, fiber: Fiber) -> tuple[Literal["managed", "user"], Statement]:
        """Give it to the hook. Which kind of fiber it is, and how its row is closed."""
        parts = self._parts
        _RECOVERING.set((*_RECOVERING.get(), fiber.id))
        outcome = await parts.hooks.on_fiber_recovered(fiber.recovery())
        if not fiber.managed:
            return "user", self._closed(fiber)
        if outcome is None:
            return "managed", self._closed(fiber)
        return "managed", outcome_statement(fiber.id, outcome, now=parts.clock.now_ms(), by_recovery=True)

    def _closed(self, fiber: Fiber) -> Statement:
        close = queries.left if fiber.managed else queries.removed
        return close(fiber.id)

    async def _failed(self, fiber: Fiber, error: BaseException) -> bool:
        """Keep the row for another try (False), or close it."""
        if fiber.id in self._running:
            return True  # the hook has resumed it, and raised afterwards
        parts, now, max_age = self._parts, self._parts.clock.now_ms(), self._settings.max_age
        if fiber.managed:
            failed = FiberFailed(words(error))
            closing = outcome_statement(fiber.id, failed, now=now, by_recovery=True)
        elif 0 < max_age * 1000 < now - fiber.created_at:
            closing = self._closed(fiber)
        else:
            return False
        await parts.store.apply([closing])
        return True

    @property
    def _settings(self) -> FiberRecovery:
        return fiber_recovery_of(self._parts.hooks.agent.fiber_recovery)

    def _since(self, began: float) -> int:
        return round((self._parts.clock.monotonic() - began) * 1000)


def outcome_statement(id: str, outcome: Any, *, now: int, by_recovery: bool) -> Statement:
    """The statement that stores what became of an interrupted fiber. Raises when `outcome` is no outcome."""
    status, error, snapshot, metadata = _facts(outcome)
    return queries.resolved(
        id,
        status=status,
        error=error,
        snapshot=snapshot if snapshot is UNSET else as_json(snapshot, "snapshot"),
        metadata=metadata if metadata is UNSET else as_object(metadata, "metadata"),
        now=now,
        by_recovery=by_recovery,
    )


def _facts(outcome: FiberOutcome) -> tuple[str, str | None, Any, Any]:
    match outcome:
        case FiberCompleted(snapshot, metadata):
            return "completed", None, snapshot, metadata
        case FiberFailed(error, snapshot):
            return "error", error, snapshot, UNSET
        case FiberAborted(reason):
            return "aborted", reason, UNSET, UNSET
        case FiberInterrupted(reason):
            return "interrupted", reason, UNSET, UNSET
        case _:
            raise InvalidFiber(
                f"{outcome!r} does not say what became of a fiber.",
                kept="Nothing of it was stored.",
                next_step="Use FiberCompleted(), FiberFailed(), FiberAborted() or FiberInterrupted().",
            )


def _is_cut(error: BaseException) -> bool:
    """True when we are being stopped, and not something that the hook waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _names(fiber: Fiber) -> dict[str, Any]:
    return {"fiber_id": fiber.id, "fiber_name": fiber.name, "managed": bool(fiber.managed)}
