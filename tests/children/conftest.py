"""Apps on both engines, with a clock that stands still."""

from __future__ import annotations

from tests.runtime.conftest import clock, diary, postgres_database, postgres_server, postgres_url, start, url

__all__ = ["clock", "diary", "postgres_database", "postgres_server", "postgres_url", "start", "url"]
