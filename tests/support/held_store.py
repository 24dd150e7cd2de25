"""A real store whose commits a test can hold back, to look at what happens while one is in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink.runtime.schema import MIGRATIONS
from everthink.store.open import open_store
from everthink.store.port import Commit, Rows, Store

__all__ = ["HeldStore", "app_on_held_store"]


class HeldStore:
    """Commits reach the store in the order of the calls; from the held one on they wait for `release`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted: str | None = None
        self._waiting: list[tuple[Commit, asyncio.Future[list[Rows]]]] = []
        self._reached = asyncio.Event()

    def hold(self, fragment: str) -> None:
        """Hold the next commit that has `fragment` in its SQL or its parameters, and all after it."""
        self._wanted = fragment
        self._reached.clear()

    async def until_held(self) -> None:
        """Return once that commit was asked for."""
        await self._reached.wait()

    def release(self) -> None:
        """Let everything through, in order."""
        self._wanted = None
        waiting, self._waiting = self._waiting, []
        for commit, promise in waiting:
            asyncio.ensure_future(self._store.apply(commit)).add_done_callback(_passed_on_to(promise))

    def apply(self, commit: Commit) -> asyncio.Future[list[Rows]]:
        if not self._waiting and (self._wanted is None or not _has(commit, self._wanted)):
            return asyncio.ensure_future(self._store.apply(commit))
        self._reached.set()
        promise: asyncio.Future[list[Rows]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commit, promise))
        return promise

    async def fetch(self, sql: str, *params: Any) -> Rows:
        return await self._store.fetch(sql, *params)

    async def close(self) -> None:
        self.release()
        await self._store.close()


def _has(commit: Commit, fragment: str) -> bool:
    return any(fragment in statement.sql or fragment in map(str, statement.params) for statement in commit)


def _passed_on_to(promise: asyncio.Future[list[Rows]]) -> Any:
    def done(real: asyncio.Future[list[Rows]]) -> None:
        if promise.cancelled():
            return
        if error := real.exception():
            promise.set_exception(error)
        else:
            promise.set_result(real.result())

    return done


@asynccontextmanager
async def app_on_held_store(directory: Path, *agents: type[Think]) -> AsyncIterator[tuple[App, HeldStore]]:
    """An app on a real SQLite file, and the store to hold."""
    store = HeldStore(await open_store(directory / "everthink.db", MIGRATIONS))
    try:
        async with App(*agents, store=store, grace=0.0) as app:
            yield app, store
    finally:
        await store.close()
