"""An agent's workspace on a real SQLite file, and the test's hands on what is behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from everthink.clock import Clock
from everthink.observe.events import EventBody
from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import open_sqlite
from everthink.store.port import AgentStore
from everthink.testing import ManualClock
from everthink.testing.watched_store import WatchedStore
from everthink.workspace import Workspace

__all__ = ["Desk", "desk"]


class Desk:
    """A database, and the workspaces of agents in it."""

    def __init__(self, store: WatchedStore, clock: ManualClock) -> None:
        self.store, self.clock = store, clock
        self.events: list[EventBody] = []
        self.origin: tuple[str | None, str | None] = (None, None)

    def workspace(self, definition: Workspace | None = None, *, agent: str = "Assistant/room") -> Workspace:
        """The workspace of an agent, as a process that has just started binds it."""
        clock: Clock = self.clock
        return (definition or Workspace()).bind(
            AgentStore(self.store, agent), clock=clock, emit=self.events.append, origin=lambda: self.origin
        )

    async def rows(self, sql: str, *params: Any) -> list[Any]:
        """Rows of the agent's tables."""
        return await self.store.fetch(sql, *params, agent="Assistant/room")


@asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    """A desk over a database in this folder."""
    store = WatchedStore(await open_sqlite(folder / "agents.db", MIGRATIONS, synchronous="NORMAL"))
    try:
        yield Desk(store, ManualClock())
    finally:
        await store.close()
