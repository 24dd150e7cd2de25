"""PostgreSQL for these tests."""

from __future__ import annotations

from ..support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]
