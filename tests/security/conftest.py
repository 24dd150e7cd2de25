"""Served apps for these tests, on SQLite and on both engines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import Think

from ..support.postgres import postgres_database, postgres_server, postgres_url
from ..support.server import Served, open_app, served

__all__ = ["Serve", "ServeOn", "postgres_database", "postgres_server", "postgres_url"]

Serve = ServeOn = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Serve]:
    """Serves agents from one SQLite file over real sockets; everything is shut down at the end."""
    async with AsyncExitStack() as stack:

        async def serve_(*agents: type[Think], **options: Any) -> Served:
            return await stack.enter_async_context(served(open_app(tmp_path, *agents, **options)))

        yield serve_


@pytest.fixture(params=["sqlite", "postgres"])
def serve_on(request: pytest.FixtureRequest, serve: Serve) -> ServeOn:
    """The same on both engines, for what concerns storage."""
    if request.param == "sqlite":
        return serve
    url: str = request.getfixturevalue("postgres_url")

    async def serve_(*agents: type[Think], **options: Any) -> Served:
        return await serve(*agents, store=url, **options)

    return serve_
