"""Served apps for these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import Agent

from ..support.server import Served, open_app, served

Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Serve]:
    """Serves agents from one SQLite file, for MCP clients as well."""
    async with AsyncExitStack() as stack:

        async def serve_(*agents: type[Agent], **options: Any) -> Served:
            options.setdefault("mcp", True)
            return await stack.enter_async_context(served(open_app(tmp_path, *agents, **options)))  # type: ignore[arg-type]

        yield serve_
