"""Several processes on one PostgreSQL database."""

from __future__ import annotations

from tests.cluster.seen import database
from tests.support.postgres import own_cluster, postgres_database, postgres_server, postgres_url

__all__ = ["database", "own_cluster", "postgres_database", "postgres_server", "postgres_url"]
