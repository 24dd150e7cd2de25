"""A real PostgreSQL for `inspect`."""

from __future__ import annotations

from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]
