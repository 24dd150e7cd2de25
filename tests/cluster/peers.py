"""Processes that exist in the database only: registered, claiming and dying by the real statements."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from everthink.cluster import queries
from everthink.cluster.fence import Claim
from everthink.postgres import PostgresStore

__all__ = ["Peers"]

LONG_MS = 600_000


class Peers:
    """Speaks to `nodes` and `claims` over a connection of its own."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self.connection: Any = None

    async def __aenter__(self) -> Peers:
        self.connection = await self._store.dial(command_timeout=30)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.connection.close()

    async def register(self, *ids: str, lock: int = 0, lease_ms: int = LONG_MS) -> None:
        """These processes live."""
        for id in ids:
            await self.connection.execute(queries.REGISTER, id, "here", lock, "0", "[]", lease_ms)

    async def die(self, id: str) -> None:
        """Somebody found out that this process is dead."""
        assert await self.connection.fetchval(queries.DECLARE_DEAD, id) is not None

    async def claim(self, agent: str, id: str) -> Claim | None:
        """A claim of this process, if it may have the agent."""
        rows = await self.connection.fetch(queries.CLAIM, agent, id)
        return Claim(agent, id, *rows[0]) if rows else None

    async def states(self) -> dict[str, str]:
        """Who lives."""
        return dict(await self.connection.fetch("SELECT id, state FROM nodes"))

    async def owner(self, agent: str) -> str | None:
        """Who has an agent."""
        return await self.connection.fetchval("SELECT owner FROM claims WHERE agent = $1", agent)
