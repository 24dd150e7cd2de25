from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everthink.deliveries import polling, sending
from everthink.testing.telegram import TelegramServer
from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    """Telegram, with one bot that nobody has written to yet."""
    async with TelegramServer() as server:
        yield server


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What went wrong is tried again in a moment. How long it is left alone is tested with a clock that the
    test moves."""
    for module in (sending, polling):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.02)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/bot.db"
