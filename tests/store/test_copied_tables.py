"""What most tests find in a new database is a copy: of a file that the steps of the schema have made."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import store
from everthink.sqlite.database import open_database
from everthink.store.port import Migration
from tests.support.template import copied_tables

PRAGMAS = (
    "page_size",
    "auto_vacuum",
    "journal_mode",
    "encoding",
    "user_version",
    "application_id",
    "freelist_count",
)
SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rootpage, name"


async def made(path: Path, migrations: tuple[Migration, ...] = MIGRATIONS) -> list[object]:
    """Make a database, and say all that there is in it."""
    await (await open_store(f"sqlite:///{path}", migrations)).close()
    connection = sqlite3.connect(path)
    try:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        rows["everthink_schema"] = [row[:2] for row in rows["everthink_schema"]]  # without when
        facts = [connection.execute(f"PRAGMA {name}").fetchall() for name in PRAGMAS]
        return [connection.execute(SCHEMA).fetchall(), rows, facts, os.stat(path).st_mode]
    finally:
        connection.close()


@pytest.mark.anyio
async def test_a_database_whose_tables_were_copied_is_what_the_steps_make(tmp_path: Path) -> None:
    by_steps = await made(tmp_path / "made.db")

    with copied_tables():
        copied = await made(tmp_path / "copied.db")

    assert copied == by_steps


@pytest.mark.anyio
async def test_only_new_databases_with_all_our_steps_are_copied(tmp_path: Path) -> None:
    old = await made(tmp_path / "old.db", MIGRATIONS[:3])

    with copied_tables():
        of_old_steps = await made(tmp_path / "new.db", MIGRATIONS[:3])
        (tmp_path / "empty.db").touch(mode=0o600)
        in_what_was_there = await made(tmp_path / "empty.db")
        brought_up = await made(tmp_path / "old.db")

    assert of_old_steps == old
    assert in_what_was_there == await made(tmp_path / "made.db")
    assert brought_up != old


def test_nothing_is_copied_afterwards_and_nothing_in_this_folder() -> None:
    assert store.open_database is open_database

    with copied_tables():
        assert store.open_database is not open_database

    assert store.open_database is open_database
