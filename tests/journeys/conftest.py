"""Whole stories run on both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database: a SQLite file, or a real PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/everthink.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
