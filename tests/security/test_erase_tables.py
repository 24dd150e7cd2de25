"""No table is forgotten: what erasing deletes is what the database holds."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from everthink.open_store import open_store
from everthink.postgres.driver import connect
from everthink.runtime.erasing import TABLES, erased
from everthink.runtime.schema import MIGRATIONS
from everthink.store.search import text_indexes

from .lives import anyio_backend, postgres_database, postgres_server, postgres_url

__all__ = ["anyio_backend", "postgres_database", "postgres_server", "postgres_url"]

pytestmark = pytest.mark.anyio

KNOWN = {table.name: set(table.columns) for table in TABLES}


def test_every_table_belongs_to_agents_and_begins_with_whose_row_it_is() -> None:
    assert {table.columns[0] for table in TABLES} == {table.key[0] for table in TABLES} == {"agent"}
    deletes = [statement.sql for statement in erased("a") if " DELETE FROM " in statement.sql]
    assert len(deletes) == len(TABLES)


async def test_every_table_of_a_sqlite_file_is_erased(tmp_path: Path) -> None:
    await (await open_store(tmp_path / "a.db", MIGRATIONS)).close()
    database = sqlite3.connect(tmp_path / "a.db")
    names = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    # The index of a table is kept by triggers: its entries go with the rows
    indexes = {
        name for name in names if any(name.startswith(f"{table}_fts") for table in text_indexes(MIGRATIONS))
    }
    found = {
        name: {row[1] for row in database.execute(f"PRAGMA table_info({name})")}
        for name in names - indexes - {"everthink_schema"}
    }
    database.close()
    assert found == KNOWN


async def test_every_table_of_a_postgresql_database_is_erased(postgres_url: str) -> None:
    await (await open_store(postgres_url, MIGRATIONS)).close()
    connection = await connect(postgres_url)
    rows = await connection.fetch(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
    )
    await connection.close()
    found: dict[str, set[str]] = {}
    for name, column in rows:
        found.setdefault(name, set()).add(column)
    del found["everthink_schema"]
    # And whose an agent is; the processes themselves have no rows of agents
    claims, nodes = found.pop("claims"), found.pop("nodes")
    assert ("agent" in claims, "agent" in nodes) == (True, False)
    assert any("DELETE FROM claims" in statement.sql for statement in erased("a", is_claimed=True))
    assert found == KNOWN
