"""Apps on both engines, with a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import App, Think
from everthink.testing.clock import ManualClock
from tests.support.postgres import postgres_database, postgres_server, postgres_url
from tests.support.timers import Diary

__all__ = ["postgres_database", "postgres_server", "postgres_url"]

Open = Callable[..., Awaitable[App]]
BOTH = ["sqlite", "postgres"]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the agents of a test live. Parametrize it with `BOTH` (indirect) for a test on both engines."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/everthink.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def clock(anyio_backend: str) -> ManualClock:
    return ManualClock()


@pytest.fixture
def diary(anyio_backend: str) -> Diary:
    return Diary()


@pytest.fixture
async def start(url: str, clock: ManualClock, anyio_backend: str) -> AsyncIterator[Open]:
    """Opens an app on the test's database; a later one is the process after it. The last one is closed."""
    async with AsyncExitStack() as stack:

        async def open_(*agents: type[Think], **options: Any) -> App:
            await stack.aclose()
            given = {"store": url, "clock": clock, "grace": 0.0} | options
            return await stack.enter_async_context(App(*agents, **given))

        yield open_
