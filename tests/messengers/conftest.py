from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everthink.testing.telegram import TelegramServer
from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    """Telegram, with one bot that nobody has written to yet."""
    async with TelegramServer() as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bot.db"
