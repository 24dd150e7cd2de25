"""Apps served as `everthink dev` serves them: with the page and its inspector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded
from tests.support.postgres import postgres_database, postgres_server, postgres_url
from tests.support.server import Served, open_app, served

__all__ = ["postgres_database", "postgres_server", "postgres_url"]

Develop = Callable[..., Awaitable[Served]]

ROOM = "/everthink/inspect/assistant/room"
EVENTS = "/everthink/events/assistant/room"


@pytest.fixture
async def develop(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Develop]:
    """Serves agents over real sockets from one SQLite file; everything is shut down at the end."""
    async with AsyncExitStack() as stack:

        async def develop_(*agents: type[Think], **options: Any) -> Served:
            app = open_app(tmp_path, *agents, **options)
            return await stack.enter_async_context(served(WithPage(Loaded(app, "the tests", app))))

        yield develop_
