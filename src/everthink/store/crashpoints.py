"""Crash points: die at a chosen commit, and count commits so that one can be chosen.

    open_store --> with_crash_points --> the store itself, or one that counts and dies

`EVERTHINK_CRASH_AT=7:before` kills this process with SIGKILL when commit 7 is about to be written,
`7:after` when it is durable and nobody has been told. `EVERTHINK_COUNT_COMMITS=path` writes a line for
each commit. Commits are counted from 1 at every open, migrations left out, and written one at a
time, so that the same deeds meet the same numbers. Without these variables nothing is wrapped.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ..errors import StoreError
from .error_texts import closed
from .port import Commit, Rows, Search, Store

__all__ = [
    "COUNT_COMMITS",
    "CRASH_AT",
    "CrashPlan",
    "CrashPoints",
    "crash_plan",
    "deeds",
    "with_crash_points",
]

CRASH_AT = "EVERTHINK_CRASH_AT"
COUNT_COMMITS = "EVERTHINK_COUNT_COMMITS"

_Job = tuple[Commit, str, "asyncio.Future[list[Rows]]"]
"""A commit that was accepted, whose it is, and who waits for it."""

_POINT = re.compile(r"(\d+)(?::(before|after))?")
_WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE)(?:\s+(?:OR\s+\w+\s+)?(?:INTO|FROM))?\s+(\w+)", re.IGNORECASE)


class CrashPlan(NamedTuple):
    """What the environment asks for. `at` is 0 when no commit is to be the last."""

    at: int
    when: Literal["before", "after"]
    counts: str | None


def crash_plan(environ: Mapping[str, str]) -> CrashPlan | None:
    """Read the variables; `None` when neither is set. A value that means nothing raises `StoreError`."""
    asked, counts = environ.get(CRASH_AT), environ.get(COUNT_COMMITS)
    if asked is None:
        return CrashPlan(0, "before", counts) if counts else None
    found = _POINT.fullmatch(asked.strip())
    if found is None or not int(found[1]):
        raise StoreError(
            f"{CRASH_AT}={asked!r} names no commit.",
            kept="Nothing was opened.",
            next_step=f"Write {CRASH_AT}=7, {CRASH_AT}=7:before or {CRASH_AT}=7:after, counted from 1; "
            "or unset it.",
        )
    return CrashPlan(int(found[1]), "after" if found[2] == "after" else "before", counts)


def with_crash_points(store: Store, plan: CrashPlan | None) -> Store:
    """The store itself when there is no plan."""
    return store if plan is None else CrashPoints(store, plan)


def deeds(commit: Commit) -> list[str]:
    """What a commit does, in few words: `["update turns", "insert messages"]`. Repeats are left out."""
    found = (_WRITES.match(statement.sql) for statement in commit)
    return list(dict.fromkeys(f"{match[1].lower()} {match[2]}" for match in found if match))


class CrashPoints:
    """A store that counts its commits, writes them one at a time, and may die at one of them."""

    def __init__(self, store: Store, plan: CrashPlan) -> None:
        self._store, self._plan = store, plan
        self._loop = asyncio.get_running_loop()
        self._number = 0
        self._waiting: deque[_Job] = deque()
        # The commit that is being written; the next one begins when it is answered.
        self._flight: _Job | None = None
        self._closing: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._file: int | None = None
        if plan.counts is not None:
            try:
                self._file = os.open(plan.counts, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            except OSError as error:
                raise StoreError(
                    f"{COUNT_COMMITS}={plan.counts!r} cannot be written: {error.strerror}.",
                    kept="The database was opened and closed again; nothing in it was changed.",
                    next_step="Name a file in a folder that exists.",
                ) from error

    def apply(self, commit: Commit, *, agent: str = "") -> asyncio.Future[list[Rows]]:
        """Write `commit` when those before it are answered. See `Store.apply`."""
        future: asyncio.Future[list[Rows]] = self._loop.create_future()
        if self._closing is not None:
            future.set_exception(closed("whose commits are counted"))
            return future
        self._waiting.append((tuple(commit), agent, future))
        if self._idle.is_set():
            self._idle.clear()
            self._next()
        return future

    async def fetch(self, sql: str, *params: Any, agent: str = "") -> Rows:
        """Read rows."""
        return await self._store.fetch(sql, *params, agent=agent)

    async def search(self, search: Search, *, agent: str) -> Rows:
        """Find texts."""
        return await self._store.search(search, agent=agent)

    async def scrub(self, *, patience: float = 0.0) -> bool:
        """Leave nothing of what was deleted."""
        return await self._store.scrub(patience=patience)

    async def quiet(self) -> None:
        """Return once no commit is being written or waits: what comes next is a commit of its own."""
        await self._idle.wait()

    async def close(self) -> None:
        """Finish the commits already accepted, then release the database."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    def __getattr__(self, name: str) -> Any:
        # What an adapter offers besides the port: its path, its place.
        return getattr(self._store, name)

    async def _close(self) -> None:
        await self._idle.wait()
        try:
            await self._store.close()
        finally:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _next(self) -> None:
        if not self._waiting:
            self._idle.set()
            return
        self._flight = commit, agent, _ = self._waiting.popleft()
        self._number += 1
        self._note(commit, agent)
        self._die_if("before")
        self._store.apply(commit, agent=agent).add_done_callback(self._answered)

    def _answered(self, done: asyncio.Future[list[Rows]]) -> None:
        assert self._flight is not None
        (*_, future), self._flight = self._flight, None
        self._die_if("after")
        if done.cancelled():
            future.cancel()
        elif (error := done.exception()) is not None:
            if not future.done():
                future.set_exception(error)
        elif not future.done():
            future.set_result(done.result())
        # Not at once: whoever waited for this commit acts on it before the next one may be the last.
        self._loop.call_soon(self._next)

    def _die_if(self, when: str) -> None:
        if self._number == self._plan.at and when == self._plan.when:
            os.kill(os.getpid(), signal.SIGKILL)

    def _note(self, commit: Commit, agent: str) -> None:
        if self._file is not None:
            line = {"commit": self._number, "agent": agent or None, "writes": deeds(commit)}
            os.write(self._file, (json.dumps(line) + "\n").encode())
