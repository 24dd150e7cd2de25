"""Served apps, and cables to them that can be pulled out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.client import Conversation, connect

from ..support.cable import Cable
from ..support.server import Served, open_app, served

Serve = Callable[..., Awaitable[Served]]
Enter = Callable[..., Awaitable[Conversation]]


@pytest.fixture
async def serve(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Serve]:
    """Serves agents from one SQLite file over real sockets; everything is shut down at the end."""
    async with AsyncExitStack() as stack:

        async def serve_(*agents: type[Think], **options: Any) -> Served:
            return await stack.enter_async_context(served(open_app(tmp_path, *agents, **options)))

        yield serve_


@pytest.fixture
async def enter(serve: Serve, anyio_backend: str) -> AsyncIterator[Enter]:
    """Opens conversations in the room `room`; they are closed before the server."""
    async with AsyncExitStack() as stack:

        async def enter_(server: Served | Cable, agent: type[Think], **options: Any) -> Conversation:
            room = connect(f"http://127.0.0.1:{server.port}", agent, "room", **options)
            return await stack.enter_async_context(room)

        yield enter_


@pytest.fixture
def cable_to() -> Iterator[Callable[[Served], Cable]]:
    """Lays cables to servers."""
    cables: list[Cable] = []

    def lay(server: Served) -> Cable:
        cables.append(Cable(server.port))
        return cables[-1]

    yield lay
    for cable in cables:
        cable.close()
