"""Contexts and sessions on a real database: SQLite, and PostgreSQL where a test asks for both."""

from __future__ import annotations

from tests.session.conftest import (
    open_context,
    open_session,
    postgres_database,
    postgres_server,
    postgres_url,
    store_url,
)

__all__ = [
    "open_context",
    "open_session",
    "postgres_database",
    "postgres_server",
    "postgres_url",
    "store_url",
]
