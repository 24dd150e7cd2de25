"""Ways to watch fibers: what is stored of them, and functions that wait to be let go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everthink import App, Think
from everthink.fibers import queries
from everthink.fibers.values import FiberContext, FiberRecoveryContext
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.store.port import Store
from everthink.testing import WatchedStore
from everthink.testing.scripted import ScriptedModel
from tests.support.agents import assistant, live
from tests.support.turns import Database

__all__ = ["Fibers", "Recovered", "Work", "all_ended", "cut", "late_app", "waiting_agents", "worker"]


def worker(*plays: Any, **members: Any) -> type[Think]:
    """An agent class called `Assistant` with these members; its model follows the plays."""
    return assistant(ScriptedModel(*plays), **members)


class Work:
    """A fiber's function that says when it began and waits until it may end."""

    def __init__(self, result: Any = "done", *, error: Exception | None = None, stash: Any = None) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.calls: list[FiberContext] = []
        self.returned = 0
        self._result, self._error, self._stash = result, error, stash

    async def __call__(self, ctx: FiberContext) -> Any:
        self.calls.append(ctx)
        if self._stash is not None:
            await ctx.stash(self._stash)
        self.began.set()
        await self.may_end.wait()
        if self._error is not None:
            raise self._error
        self.returned += 1
        return self._result


async def all_ended(agent: Any, *, but: Work | None = None) -> None:
    """Return once every function of the agent's fibers has returned, except this one."""
    kept = [ctx.name for ctx in but.calls] if but else []
    runs = [run for run in agent._home.fibers._runs if run.name not in kept]
    if runs:
        await asyncio.wait([run.task for run in runs])


async def cut(
    app: App,
    cls: type[Think],
    *names: str,
    stash: Any = None,
    managed: bool | Collection[str] = False,
    name: str = "default",
) -> None:
    """Fibers of these names that have begun when their agent is dropped from memory."""
    agent, works = await live(app.agent(cls, name)), [Work(stash=stash) for _ in names]
    for fiber, work in zip(names, works, strict=True):
        if managed is True or (managed and fiber in managed):
            await agent.start_fiber(fiber, work, fiber_id=fiber)
        else:
            agent.run_fiber(fiber, work)
    for work in works:
        await work.began.wait()
    await app.evict(cls, name)


class Recovered:
    """An `on_fiber_recovered` that remembers what it was given. `answer` is what it does."""

    def __init__(self, answer: Any = None) -> None:
        self.contexts: list[FiberRecoveryContext] = []
        self.answer = answer
        self._more = asyncio.Event()

    async def until(self, calls: int) -> None:
        """Return once the hook was called so often."""
        while len(self.contexts) < calls:
            self._more.clear()
            await self._more.wait()

    @property
    def names(self) -> list[str]:
        return [context.name for context in self.contexts]

    @property
    def hook(self) -> Any:
        async def on_fiber_recovered(agent: Think, ctx: FiberRecoveryContext) -> Any:
            self.contexts.append(ctx)
            self._more.set()
            answer = self.answer(ctx) if callable(self.answer) else self.answer
            if asyncio.iscoroutine(answer):
                answer = await answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return on_fiber_recovered


class Fibers(Database):
    """A look at the table."""

    def all(self) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM fibers ORDER BY seq")

    def names(self) -> list[str]:
        return [row["name"] for row in self.all()]

    def snapshots(self) -> dict[str, Any]:
        return {row["name"]: _decoded(row["snapshot"]) for row in self.all()}

    def fiber_statuses(self) -> dict[str, str]:
        return {row["name"]: row["status"] for row in self.all()}

    def open_names(self) -> list[str]:
        return [row["name"] for row in self.all() if row["is_open"]]


def _decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@asynccontextmanager
async def late_app(
    folder: Path, *agents: type[Think], **options: Any
) -> AsyncIterator[tuple[App, WatchedStore]]:
    """An app on a real SQLite file whose managed fibers wait to begin."""
    store = WatchedStore(await open_store(f"sqlite:///{folder}/everthink.db", MIGRATIONS))
    store.hold("SET status = 'running'")
    try:
        async with App(*agents, store=store, grace=0.0) as app:
            yield app, store
    finally:
        store.release()
        await store.until_quiet()
        await store.close()


async def waiting_agents(store: Store) -> list[tuple[str, int]]:
    """The agents with fibers to recover, and when (in ms; 0: at once), the earliest first."""
    rows = await store.fetch(queries.WAITING)
    return sorted(((row[0], row[1]) for row in rows), key=lambda found: (found[1], found[0]))
