"""A small schema, a few statements on it, and how a test of the contract opens its store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ....store.port import Migration, Statement, Store

__all__ = ["BUMP", "LOG", "PUT", "SCHEMA", "UPSERT", "StoreCase", "notes", "put"]

SCHEMA = (
    Migration(
        1,
        "notes",
        (
            "CREATE TABLE notes (id TEXT PRIMARY KEY, n BIGINT, weight DOUBLE PRECISION, body TEXT)",
            "CREATE TABLE log (seq BIGINT PRIMARY KEY, what TEXT NOT NULL)",
            "CREATE TABLE links (note TEXT NOT NULL REFERENCES notes (id), target TEXT NOT NULL)",
        ),
    ),
)

PUT = "INSERT INTO notes (id, n) VALUES (?, ?)"
UPSERT = (
    "INSERT INTO notes (id, n) VALUES (?, ?)"
    " ON CONFLICT (id) DO UPDATE SET n = notes.n + excluded.n RETURNING id, n"
)
BUMP = "UPDATE notes SET n = n + ? WHERE id = ?"
LOG = "INSERT INTO log (seq, what) SELECT COALESCE(MAX(seq), 0) + 1, ? FROM log"


def put(id: str, n: int | None = 0, *, guard: bool = False) -> Statement:
    """Store a note; its id must be new."""
    return Statement(PUT, (id, n), guard)


async def notes(store: Store) -> dict[str, Any]:
    """Every stored note: id -> n."""
    return {row[0]: row[1] for row in await store.fetch("SELECT id, n FROM notes")}


class StoreCase:
    """How a test reaches the store it tests."""

    keeps_data = True

    async def open(self, migrations: Sequence[Migration]) -> Store:
        """Open this test's database: the same one at every call."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, migrations: Sequence[Migration] = SCHEMA) -> AsyncGenerator[Store]:
        """Open this test's database, and close it at the end."""
        store = await self.open(migrations)
        try:
            yield store
        finally:
            await store.close()

    def needs_kept_data(self) -> None:
        """Skip a test that makes no sense for a database in memory."""
        if not self.keeps_data:
            pytest.skip("this store keeps nothing after close")
