"""Served apps for these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import Think

from ..support.server import Served, open_app, served

Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Serve]:
    """Serves agents from one SQLite file over real sockets; everything is shut down at the end."""
    async with AsyncExitStack() as stack:

        async def serve_(*agents: type[Think], **options: Any) -> Served:
            return await stack.enter_async_context(served(open_app(tmp_path, *agents, **options)))

        yield serve_
