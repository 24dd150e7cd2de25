"""What server processes on one database did: as the database knows it, and as a tab sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from everthink.testing.client import Client
from everthink.testing.node import Node

__all__ = ["PATIENCE", "Database", "database", "let_in"]

PATIENCE = 90.0
"""Seconds after which what is waited for is not expected any more: processes are slow where many are."""


class Database:
    """What is stored, as another connection sees it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def value(self, sql: str, *params: Any) -> Any:
        return await self._connection.fetchval(sql, *params)

    async def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self._connection.fetch(sql, *params)]

    async def until(self, sql: str, *params: Any) -> Any:
        """The value of a query once it has one; the server does the waiting."""
        async with asyncio.timeout(PATIENCE):
            while not (found := await self.value(sql, *params)):
                await self._connection.execute("SELECT pg_sleep(0.02)")
        return found

    async def answers(self) -> list[str]:
        rows = await self._connection.fetch("SELECT content FROM messages WHERE role = 'assistant'")
        return ["".join(p.get("text", "") for p in json.loads(row[0])["parts"]) for row in rows]


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    import asyncpg

    connection = await asyncpg.connect(postgres_url)
    yield Database(connection)
    await connection.close()


async def let_in(node: Node, agent: type, name: str) -> Client:
    """A tab that comes back until it is let in, as browsers do."""
    async with asyncio.timeout(PATIENCE):
        while True:
            chat = await node.connect(agent, name, resumes=True)
            await chat.until(lambda chat=chat: chat.closed or chat.identity)
            if chat.identity is not None:
                return chat
