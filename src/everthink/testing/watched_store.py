"""A real store that a test can watch, hold up and let fail.

    store = WatchedStore(await open_store(url, MIGRATIONS))
    store.hold()                       # commits wait at a gate
    store.fail(StoreFull("full"))      # the next one fails
    store.take().commits               # what passed since the last look

What it does is done to the calls; what passes goes to the store behind it, in the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..clock import Clock, SystemClock
from ..session import queries
from ..store.port import Commit, Rows, Search, Statement, Store

__all__ = ["FailingCommit", "HeldRead", "Traffic", "WatchedStore"]

Matching = str | Callable[[Commit], bool]
"""A text that stands in the SQL of a statement, or a function that says which commits are meant."""


@dataclass(slots=True)
class Traffic:
    """What went to and fro between two looks."""

    fetches: int = 0
    rows: int = 0
    bytes: int = 0
    """Characters of the rows that were read."""
    contents: int = 0
    """Characters of message contents among them."""
    commits: int = 0
    statements: int = 0
    written: int = 0
    """Characters of the values that were written."""


class HeldRead:
    """One read that is held up, before the database is asked or when the rows are there."""

    def __init__(self, matching: str, *, after: bool) -> None:
        self._matching, self._after = matching, after
        self._reached, self._may_pass = asyncio.Event(), asyncio.Event()

    async def reached(self) -> None:
        """Return once the read has come to where it is held."""
        await self._reached.wait()

    def release(self) -> None:
        """Let it pass."""
        self._may_pass.set()

    def takes(self, sql: str) -> bool:
        """Whether this is the read that is meant."""
        return not self._reached.is_set() and self._matching in sql

    async def stand(self, *, after: bool) -> None:
        """Wait here, if here is where the read is held."""
        if after is self._after:
            self._reached.set()
            await self._may_pass.wait()


@dataclass(slots=True)
class FailingCommit:
    """One commit that is to fail."""

    error: Exception
    nth: int
    matching: Matching
    stored: bool
    happened: bool = False
    """True once a commit has failed with it."""


class WatchedStore:
    """Any store, with a gate in front of its commits, a record of what passed, and failures on demand.

    A commit that nothing is to happen to goes straight to the store behind.
    """

    def __init__(self, inner: Store, *, clock: Clock | None = None) -> None:
        self._inner = inner
        self._clock = clock or SystemClock()
        self._line = asyncio.Lock()
        self._gate = asyncio.Event()
        self._gate.set()
        self._aside: Matching | None = None
        self._waiting = asyncio.Event()
        self._at_work: set[asyncio.Task[list[Rows]]] = set()
        self._standing = 0
        self._failures: list[FailingCommit] = []
        self._refuses: Callable[[Commit], Exception | None] = lambda commit: None
        self._refuses_read: Callable[[str], Exception | None] = lambda sql: None
        self._held_read: HeldRead | None = None
        self._traffic = Traffic()
        self.delay = 0.0
        """Seconds that every commit takes longer, by the clock that was given."""
        self.commits: list[list[Statement]] = []
        """Every commit that became durable."""
        self.reads: list[str] = []
        """The SQL of every read that was asked for."""
        self.writes = 0
        """How many commits were asked for, those that failed among them."""

    # --- what a test says

    def hold(self, matching: Matching | None = None) -> None:
        """Close the gate: commits wait, one behind the other.

        With `matching` only those wait, and the others pass them.
        """
        self._aside = matching
        self._gate.clear()
        self._waiting.clear()

    def release(self) -> None:
        """Open the gate."""
        self._gate.set()

    async def until_waiting(self) -> None:
        """Return once a commit stands at the closed gate."""
        await self._waiting.wait()

    async def until_quiet(self) -> None:
        """Return once no commit that was held up or delayed is under way."""
        while self._at_work:
            await asyncio.wait(self._at_work)

    def hold_read(self, matching: str = "", *, after: bool = False) -> HeldRead:
        """Hold up the next read whose SQL has this text, before it asks, or `after` it has its rows."""
        self._held_read = HeldRead(matching, after=after)
        return self._held_read

    def fail(
        self, error: Exception, *, nth: int = 1, matching: Matching = "", stored: bool = False
    ) -> FailingCommit:
        """Let the n-th commit from now fail, of those that match; the answer says whether it `happened`.

        Nothing of it is written; with `stored` it is, and only the answer is lost.
        """
        failure = FailingCommit(error, nth, matching, stored)
        self._failures.append(failure)
        return failure

    def refuse(self, why: Callable[[Commit], Exception | None]) -> None:
        """From now on `why(commit)` gives the error a commit fails with, or `None` to let it pass."""
        self._refuses = why

    def refuse_reads(self, why: Callable[[str], Exception | None]) -> None:
        """From now on `why(sql)` gives the error a read fails with, or `None` to let it pass."""
        self._refuses_read = why

    def take(self) -> Traffic:
        """What was counted since the last call."""
        taken, self._traffic = self._traffic, Traffic()
        return taken

    # --- the store

    def apply(self, commit: Commit, *, agent: str = "") -> asyncio.Future[list[Rows]]:
        """See `Store.apply`."""
        kept = list(commit)
        self._count(kept)
        if self._gate.is_set() or self._aside is not None:
            if self._is_aside(kept):
                return self._in_a_task(self._when_released(kept, agent))
            if not self.delay and not self._standing:
                return self._pass(kept, agent)
        self._standing += 1  # now, so that nobody who comes later overtakes it
        return self._in_a_task(self._in_line(kept, agent))

    async def fetch(self, sql: str, *params: Any, agent: str = "") -> Rows:
        """See `Store.fetch`."""
        self.reads.append(sql)
        if (error := self._refuses_read(sql)) is not None:
            raise error
        held = self._held_read if self._held_read and self._held_read.takes(sql) else None
        if held:
            await held.stand(after=False)
        rows = await self._inner.fetch(sql, *params, agent=agent)
        self._count_rows(sql, rows)
        if held:
            await held.stand(after=True)
        return rows

    async def search(self, search: Search, *, agent: str) -> Rows:
        """See `Store.search`."""
        return await self._inner.search(search, agent=agent)

    async def scrub(self, *, patience: float = 0.0) -> bool:
        """See `Store.scrub`."""
        return await self._inner.scrub(patience=patience)

    async def close(self) -> None:
        """See `Store.close`."""
        await self._inner.close()

    def __getattr__(self, name: str) -> Any:
        # What only one engine has: the locks of PostgreSQL, say.
        return getattr(self._inner, name)

    # --- on the way

    def _is_aside(self, commit: Commit) -> bool:
        return not self._gate.is_set() and self._aside is not None and _matches(commit, self._aside)

    def _in_a_task(self, work: Coroutine[Any, Any, list[Rows]]) -> asyncio.Future[list[Rows]]:
        task = asyncio.ensure_future(work)
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
        return asyncio.shield(task)

    async def _when_released(self, commit: list[Statement], agent: str) -> list[Rows]:
        await self._stand()
        return await self._pass(commit, agent)

    async def _in_line(self, commit: list[Statement], agent: str) -> list[Rows]:
        """A commit that waits for those before it, for the gate, and for the time."""
        try:
            async with self._line:
                if not self._gate.is_set() and self._aside is None:
                    await self._stand()
                if self.delay:
                    await self._clock.sleep(self.delay)
                passed = self._pass(commit, agent)
        finally:
            self._standing -= 1
        return await passed

    async def _stand(self) -> None:
        self._waiting.set()
        await self._gate.wait()

    def _pass(self, commit: list[Statement], agent: str) -> asyncio.Future[list[Rows]]:
        failure = self._due(commit)
        error = failure.error if failure else self._refuses(commit)
        if error is None:
            applied = self._inner.apply(commit, agent=agent)
            applied.add_done_callback(lambda done: self._note(commit, done))
            return applied
        loop = asyncio.get_running_loop()
        lost: asyncio.Future[list[Rows]] = loop.create_future()

        def lose(_: object = None) -> None:
            if not lost.done():
                lost.set_exception(error)

        if failure and failure.stored:
            applied = self._inner.apply(commit, agent=agent)
            applied.add_done_callback(lambda done: self._note(commit, done))
            applied.add_done_callback(lose)
        else:
            loop.call_soon(lose)  # not at once: no store answers before it was asked
        return lost

    def _note(self, commit: list[Statement], done: asyncio.Future[list[Rows]]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.commits.append(commit)

    def _due(self, commit: Commit) -> FailingCommit | None:
        """The failure that was meant for this commit; the counts of those it matches go down."""
        due: FailingCommit | None = None
        for failure in list(self._failures):
            if _matches(commit, failure.matching):
                failure.nth -= 1
                if failure.nth == 0:
                    self._failures.remove(failure)
                    failure.happened, due = True, failure
        return due

    def _count(self, commit: Commit) -> None:
        self.writes += 1
        traffic = self._traffic
        traffic.commits += 1
        traffic.statements += len(commit)
        traffic.written += sum(len(str(value)) for statement in commit for value in statement.params)

    def _count_rows(self, sql: str, rows: Rows) -> None:
        traffic = self._traffic
        traffic.fetches += 1
        traffic.rows += len(rows)
        traffic.bytes += sum(len(str(value)) for row in rows for value in row)
        if sql in (queries.BETWEEN, queries.BEFORE_WITH_CONTENTS):
            traffic.contents += sum(len(row[-1] or "") for row in rows)


def _matches(commit: Commit, matching: Matching) -> bool:
    if isinstance(matching, str):
        return any(matching in statement.sql for statement in commit)
    return matching(commit)
