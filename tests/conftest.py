"""Fixtures that every test may use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


OpenApp = Callable[..., Awaitable[App]]


@pytest.fixture
async def open_app(tmp_path: Path, anyio_backend: str) -> AsyncIterator[OpenApp]:
    """Opens apps on one real SQLite file; whatever is open at the end is closed."""
    async with AsyncExitStack() as stack:

        async def open_(*agents: type[Think], **options: Any) -> App:
            options.setdefault("store", f"sqlite:///{tmp_path}/everthink.db")
            options.setdefault("grace", 0.0)
            options.setdefault("idle_after", None)  # no timer that a test did not ask for
            return await stack.enter_async_context(App(*agents, **options))

        yield open_
