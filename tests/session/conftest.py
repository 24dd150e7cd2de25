"""Sessions on a real database: SQLite, and PostgreSQL where a test asks for both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink.context.context import Context
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.session.session import Session
from everthink.store.port import AgentStore
from tests.support.context import OpenContext
from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]

OpenSession = Callable[..., Awaitable[Session]]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where one test keeps its messages."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/session.db"


@pytest.fixture
async def open_session(store_url: str, anyio_backend: str) -> AsyncIterator[OpenSession]:
    """Opens sessions as a process would that has just started. All of them see the same database."""
    async with AsyncExitStack() as stack:
        store = await open_store(store_url, MIGRATIONS)
        stack.push_async_callback(store.close)
        now = iter(range(1, 1_000_000))

        async def open_(agent: str = "Assistant/room", **options: Any) -> Session:
            session = Session(AgentStore(store, agent), now=lambda: next(now), **options)
            await session.load()
            return session

        yield open_


@pytest.fixture
async def open_context(store_url: str, anyio_backend: str) -> AsyncIterator[OpenContext]:
    """Opens contexts as a process would that has just started. All of them see the same database."""
    store = await open_store(store_url, MIGRATIONS)
    now = iter(range(1, 1_000_000))

    def open_(agent: str = "Assistant/room", session: str = "") -> Context:
        return Context(AgentStore(store, agent), session, now=lambda: next(now))

    yield open_
    await store.close()
