"""Several processes on one PostgreSQL database."""

from __future__ import annotations

from tests.support.postgres import own_cluster, postgres_database, postgres_server, postgres_url

__all__ = ["own_cluster", "postgres_database", "postgres_server", "postgres_url"]
