"""Fibers: work of the application that survives a restart, around or outside of turns.

    run_fiber   --> row --> fn(ctx) --> row gone                       stash: a checkpoint in the row
    start_fiber --> record pending --> running --> completed | error | aborted
    process dies --> the rows are open and nobody runs them --> fiber_recovery

The row is there before the function is called and closed only after it has returned, so work that was
begun is either finished or found again. Every change of a record is conditional on the state before it: a
result that comes late never overwrites a final one.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, get_args

from ..accepting import Acceptances, known_record
from ..calling import call_hook
from ..causes import is_superseded
from ..clock import ms_of
from ..current import current_fiber, current_turn, in_active_turn, step_outside
from ..errors import (
    FiberConflict,
    FiberStopped,
    InvalidFiber,
    InvalidSettings,
    NotInFiber,
    StoreClosed,
    StoreError,
)
from ..messages import UNSET
from ..observe.events import FiberRunCompleted, FiberRunFailed, FiberRunStarted
from ..settings import check_call
from ..surface import check_function, check_words, yields
from . import queries as queries
from .parts import Parts
from .recovery import Rescue, outcome_statement
from .run import FiberRun, FiberTask, Wrap
from .values import (
    TERMINAL,
    Fiber,
    FiberContext,
    FiberInspection,
    FiberOutcome,
    FiberStatus,
    as_object,
    words,
)

__all__ = ["FiberFunction", "Fibers"]

log = logging.getLogger("everthink.fibers")

T = TypeVar("T")
FiberFunction = Callable[[FiberContext], T | Awaitable[T]]
"""What a fiber runs; it may be `def` or `async def`."""

FINISHED: frozenset[str] = frozenset({"completed", "error", "aborted"})


class Fibers:
    """The fibers of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._running: dict[str, FiberRun] = {}
        # Every function that has not returned: also one whose record is gone and whose id has another by now.
        self._runs: dict[FiberRun, None] = {}
        self.rescue = Rescue(parts, self._running)
        self._acceptances: Acceptances[FiberInspection] = Acceptances()
        self._is_closing = self._is_closed = False

    # --- life

    @property
    def running(self) -> list[asyncio.Future[Any]]:
        """The functions that run."""
        return [run.task for run in self._runs if run.task is not None and not run.task.done()]

    async def recover(self) -> None:
        """Take up what an earlier process left. Once per start, before the agent's own start code."""
        await self.rescue.scan()

    def refuse(self) -> None:
        """Start nothing more. `close` follows."""
        self._is_closing = self.rescue.is_stopping = True

    async def close(self, grace: float = 0.0) -> None:
        """Start nothing more; give running fibers `grace` seconds, then cut them: their rows stay open."""
        self.refuse()
        await self.rescue.stop()
        await self._acceptances.settled()
        runs = list(self._runs)
        tasks = [run.task for run in runs if run.task is not None]
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        for run in runs:
            # One whose end is being stored is as good as over.
            if run.task is not None and not run.is_settling:
                run.is_cut = True
                run.task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        # Whoever did not listen may still run, but the rows are the next start's from here on.
        self._is_closed = True
        for run in runs:
            run.settled.set()

    def _refuse_when_closing(self) -> None:
        if self._is_closing:
            raise StoreClosed(
                "The agent is shutting down.", kept="Nothing was stored.", next_step="Start the fiber again."
            )

    # --- run_fiber

    def run(
        self, name: str, fn: FiberFunction[T], *, snapshot: Any = UNSET, wrap: Wrap | None = None
    ) -> asyncio.Task[T]:
        """Run `fn` as a fiber. `snapshot` and `wrap` are for the framework: a first checkpoint, stored
        with the row, and what is put around this one and all that follow.
        """
        self._refuse_when_closing()
        _check_function(fn)
        run = FiberRun(self.keep, self._parts.new_id(), name, managed=False, wrap=wrap)
        first = None if snapshot is UNSET else run.checkpoint(snapshot)
        self._enlist(run)
        parts, now = self._parts, self._parts.clock.now_ms()
        row = queries.began(run.id, name=name, snapshot=first, now=now)
        # Asked for before the caller goes on: it may be a hook that returns and lets another row be closed.
        return self._launch(run, self._run_unmanaged(run, fn, parts.store.apply([row])))

    async def _run_unmanaged(self, run: FiberRun, fn: FiberFunction[T], row: Awaitable[object]) -> T:
        await self._stored(run, row)
        return await self._execute(run, fn)

    # --- resume_fiber

    def resume(self, id: str, fn: FiberFunction[T]) -> asyncio.Task[T]:
        """Go on with an interrupted fiber in its own row."""
        self._refuse_when_closing()
        _check_function(fn)
        if (running := self._running.get(id)) is not None and not running.settled.is_set():
            raise InvalidFiber(f"Fiber {id!r} runs already.", kept="It goes on.")
        run = FiberRun(self.keep, id, id, managed=True)
        self._enlist(run)
        return self._launch(run, self._run_again(run, fn))

    async def _run_again(self, run: FiberRun, fn: FiberFunction[T]) -> T:
        parts = self._parts
        resumed = queries.resumed(run.id, now=parts.clock.now_ms())
        (rows,) = await self._stored(run, parts.store.apply([resumed]))
        if not rows:
            raise InvalidFiber(
                f"Fiber {run.id!r} is not interrupted.",
                kept="Nothing was changed.",
                next_step="Call resume_fiber() in on_fiber_recovered(), or when inspect_fiber() says so.",
            )
        fiber = Fiber.of(rows[0])
        run.name, run.managed = fiber.name, bool(fiber.managed)
        return await self._execute(run, fn, fiber.recovery().snapshot)

    # --- running

    async def _stored(self, run: FiberRun, commit: Awaitable[T]) -> T:
        try:
            return await commit
        except asyncio.CancelledError:
            if run.is_cut:
                raise FiberStopped(run.name) from None
            raise

    async def _execute(self, run: FiberRun, fn: FiberFunction[T], snapshot: Any = None) -> T:
        parts, began = self._parts, self._parts.clock.monotonic()
        names: Any = {"fiber_id": run.id, "fiber_name": run.name, "managed": run.managed}
        context = run.begin(snapshot)
        parts.emit(FiberRunStarted(**names))
        try:
            result = await call_hook(fn, context)
        except BaseException as error:
            if run.is_cut:
                raise FiberStopped(run.name) from None  # the next start finds the row
            if self._is_closing and is_superseded(error):
                run.is_cut = True  # it met what is closed already: no failure of its own
                raise FiberStopped(run.name) from error
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise  # the process itself is being ended
            await self._settle(run, error)
            parts.emit(FiberRunFailed(**names, error=words(error), elapsed_ms=self._since(began)))
            run.has_failed = True
            raise
        await self._settle(run, None)
        parts.emit(FiberRunCompleted(**names, elapsed_ms=self._since(began)))
        return result

    async def _settle(self, run: FiberRun, error: BaseException | None) -> None:
        if self._is_closed:
            raise FiberStopped(run.name)  # too late: the row is the next start's
        if self._running.get(run.id) is not run:
            return  # its record was deleted, and the id has another one
        parts, run.is_settling = self._parts, True
        if not run.managed:
            await parts.store.apply([queries.removed(run.id)])
            return
        status = "completed" if error is None else "aborted" if run.abort.signal.aborted else "error"
        text = None if error is None else words(error)
        await parts.store.apply(
            [queries.settled(run.id, status=status, error=text, now=parts.clock.now_ms())]
        )
        run.settled.set()

    # --- checkpoints

    async def stash(self, data: Any) -> None:
        """Keep a checkpoint of whatever this code is part of: a fiber, or a turn."""
        run = self._current()
        if run is not None:
            await self.keep(run, data)
        elif in_active_turn(self._parts.id):
            await self._parts.stash_turn(data)
        else:
            raise NotInFiber

    async def keep(self, run: FiberRun, data: Any) -> None:
        """Keep a checkpoint of this fiber."""
        if self._is_closed:
            raise FiberStopped(run.name)
        if run.is_over or self._running.get(run.id) is not run:
            raise NotInFiber
        await self._parts.store.apply([queries.stashed(run.id, run.checkpoint(data))])

    def _current(self) -> FiberRun | None:
        """The innermost fiber of this agent that runs this code, unless there is a turn further inside."""
        run = current_fiber.get()
        while isinstance(run, FiberRun) and not run.belongs_to(self.keep):
            run = run.outer
        if not isinstance(run, FiberRun) or run.is_over:
            return None
        return run if run.turn is current_turn() else None

    # --- start_fiber

    async def start(
        self,
        name: str,
        fn: FiberFunction[Any],
        *,
        fiber_id: str | None = None,
        idempotency_key: str | None = None,
        metadata: dict[str, Any] | None = None,
        wait_for_completion: bool = False,
    ) -> FiberInspection:
        """Accept a fiber once; its record is durable when this returns."""
        self._refuse_when_closing()
        _check_function(fn)
        check_call("start_fiber", fiber_id=fiber_id, idempotency_key=idempotency_key)
        for what, given in (("fiber_id", fiber_id), ("idempotency_key", idempotency_key)):
            if given is not None and not given.strip():
                raise InvalidFiber(f"{what} must not be blank.", kept="Nothing was stored.")
        text = as_object(metadata, "metadata")
        accept = self._accept(name, fn, fiber_id, idempotency_key, text, is_awaited=wait_for_completion)
        record = await self._acceptances.see_through(accept)
        return await self._wait(record) if wait_for_completion else record

    async def _accept(
        self,
        name: str,
        fn: FiberFunction[Any],
        id: str | None,
        key: str | None,
        metadata: str | None,
        *,
        is_awaited: bool,
    ) -> FiberInspection:
        parts = self._parts
        async with self._acceptances.lock:
            known = await known_record(
                id, key, by_id=self.inspect, by_key=self.inspect_by_key, names=_names, conflict=_conflict
            )
            if known is not None:
                return known
            run = FiberRun(self.keep, id or parts.new_id(), name, managed=True)
            self._enlist(run)
            try:
                await parts.store.apply(
                    [
                        queries.accepted(
                            run.id,
                            name=name,
                            key=key,
                            metadata=metadata,
                            now=parts.clock.now_ms(),
                        )
                    ]
                )
                record = await self.inspect(run.id)
            except BaseException:
                self._leave(run)
                raise
        assert record is not None
        self._launch(run, self._run_managed(run, fn, is_awaited))
        return replace(record, accepted=True)

    async def _run_managed(self, run: FiberRun, fn: FiberFunction[Any], is_awaited: bool) -> None:
        parts = self._parts
        if not is_awaited:
            step_outside()  # nobody in a turn waits for it, so it may wait for turns
        try:
            (begun,) = await parts.store.apply([queries.started(run.id, now=parts.clock.now_ms())])
            if begun:
                await self._execute(run, fn)
        except FiberStopped:
            return  # whoever waits is told; the next start finds the record
        except Exception as error:  # nobody waits for this task
            log.error("fiber %s (%s) of %s failed", run.id, run.name, parts.id, exc_info=error)
            if not run.is_settling:
                await self._settle(run, error)

    async def _wait(self, found: FiberInspection) -> FiberInspection:
        id = found.fiber_id
        run = self._running.get(id)
        if run is None:
            await self.rescue.one(id)  # nothing to do, unless an earlier process left it
        elif not self._is_inside(run):
            await run.settled.wait()
            if run.is_cut:
                raise FiberStopped(run.name)
        return replace(await self.inspect(id) or found, accepted=found.accepted)

    def _is_inside(self, run: FiberRun) -> bool:
        """True when this code is part of that fiber: waiting for it would never end."""
        around = current_fiber.get()
        while isinstance(around, FiberRun) and around is not run:
            around = around.outer
        return around is run

    # --- records

    async def inspect(self, fiber_id: str) -> FiberInspection | None:
        """How a managed fiber stands, or `None` when there is none of that id."""
        check_call("inspect_fiber", fiber_id=fiber_id)
        return await self._record(queries.BY_ID, fiber_id)

    async def inspect_by_key(self, idempotency_key: str) -> FiberInspection | None:
        """How the managed fiber with this key stands."""
        return await self._record(queries.BY_KEY, idempotency_key)

    async def _record(self, sql: str, value: str) -> FiberInspection | None:
        rows = await self._parts.store.fetch(sql, value)
        return Fiber.of(rows[0]).inspection() if rows else None

    async def list(
        self,
        *,
        status: FiberStatus | Sequence[FiberStatus] | None = None,
        name: str | None = None,
        limit: int = 50,
    ) -> builtins.list[FiberInspection]:
        """Managed fibers, newest first."""
        check_call("list_fibers", limit=limit)
        wanted = queries.listed(status=_statuses(status), name=name, limit=max(1, min(100, limit)))
        rows = await self._parts.store.fetch(wanted.sql, *wanted.params)
        return [Fiber.of(row).inspection() for row in rows]

    async def cancel(self, fiber_id: str, reason: object = None) -> bool:
        """End a managed fiber that waits or runs. False when there is none."""
        check_call("cancel_fiber", fiber_id=fiber_id)
        parts, text = self._parts, None if reason is None else str(reason)
        (rows,) = await parts.store.apply(
            [queries.cancelled(fiber_id, reason=text, now=parts.clock.now_ms())]
        )
        run = self._running.get(fiber_id)
        if rows and run is not None:
            run.abort.abort(reason)
            run.settled.set()
        return bool(rows)

    async def cancel_by_key(self, idempotency_key: str, reason: object = None) -> bool:
        """End the managed fiber with this key."""
        found = await self.inspect_by_key(idempotency_key)
        return found is not None and await self.cancel(found.fiber_id, reason)

    async def resolve(self, fiber_id: str, outcome: FiberOutcome) -> bool:
        """Say what became of an interrupted fiber. False when it is not interrupted."""
        parts = self._parts
        statement = outcome_statement(fiber_id, outcome, now=parts.clock.now_ms(), by_recovery=False)
        (rows,) = await parts.store.apply([statement])
        return bool(rows)

    async def delete(
        self,
        *,
        status: FiberStatus | Sequence[FiberStatus] | None = None,
        settled_before: datetime | None = None,
        limit: int = 100,
    ) -> int:
        """Forget records that are over, those settled first first. Returns how many."""
        check_call("delete_fibers", settled_before=settled_before, limit=limit)
        wanted = _statuses(status)
        before = None if settled_before is None else ms_of(settled_before)
        (rows,) = await self._parts.store.apply(
            [
                queries.deleted(
                    status=FINISHED if wanted is None else wanted & TERMINAL,
                    before=before,
                    limit=max(1, min(500, limit)),
                )
            ]
        )
        return len(rows)

    # --- who runs

    def _enlist(self, run: FiberRun) -> None:
        self._running[run.id] = run
        self._runs[run] = None
        run.hold = self._parts.holds.take()

    def _launch(self, run: FiberRun, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = run.task = FiberTask(work, f"fiber {run.name}")
        # Not in a `finally` of its own: a task that is cancelled before its first step runs none.
        task.at_end(lambda: self._ended(run, task))
        return task

    def _ended(self, run: FiberRun, task: FiberTask[Any]) -> None:
        self._leave(run)
        if task.cancelled() and not run.has_begun and not run.is_cut and not run.managed:
            self._parts.store.apply([queries.removed(run.id)])
        # Its own failure is told by an event, and to whoever waits: the log has what nobody would see.
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError) or (error is not None and not run.has_begun):
            log.error("fiber %s (%s) of %s is not stored", run.id, run.name, self._parts.id, exc_info=error)
        elif error is not None and run.has_failed and not task.is_awaited:
            log.error("fiber %s (%s) of %s failed", run.id, run.name, self._parts.id, exc_info=error)

    def _leave(self, run: FiberRun) -> None:
        run.end()
        self._runs.pop(run, None)
        if self._running.get(run.id) is run:
            del self._running[run.id]

    def _since(self, began: float) -> int:
        return round((self._parts.clock.monotonic() - began) * 1000)


def _statuses(status: FiberStatus | Sequence[FiberStatus] | None) -> frozenset[str] | None:
    if status is None:
        return None
    check_words("status", status, get_args(FiberStatus))
    return frozenset([status] if isinstance(status, str) else status)


def _names(record: FiberInspection) -> tuple[str, str | None]:
    return record.fiber_id, record.idempotency_key


def _conflict() -> FiberConflict:
    return FiberConflict(
        "fiber_id and idempotency_key refer to different fibers.", kept="Nothing was stored."
    )


def _check_function(fn: Any) -> None:
    if yields(fn):
        raise InvalidFiber(
            f"{getattr(fn, '__name__', 'fn')} has a `yield`, so that calling it runs nothing of it.",
            kept="Nothing was stored.",
            next_step="Write it without; `await ctx.stash(…)` keeps what it has so far.",
        )
    try:
        check_function("fn", fn, ("ctx",))
    except InvalidSettings as error:
        raise InvalidFiber(error.what, kept="Nothing was stored.", next_step=error.next_step) from None
