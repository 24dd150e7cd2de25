"""A URL names a store."""

# ruff: noqa: ASYNC240 - small files on a local disk

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from everthink.errors import StoreError, StoreUnavailable
from everthink.store.open import open_store
from everthink.store.port import Migration, Statement
from everthink.store.postgres import PostgresStore
from everthink.store.sqlite import SqliteStore
from tests.support.postgres import free_port

pytestmark = pytest.mark.anyio

SCHEMA = [Migration(1, "notes", ("CREATE TABLE notes (id TEXT)",))]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///data/agents.db",
        "sqlite:///{here}/data/agents.db",
        "data/agents.db",
        "./data/agents.db",
        "{here}/data/agents.db",
        "~/data/agents.db",
    ],
)
async def test_these_name_a_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    store = await open_store(url.format(here=tmp_path), SCHEMA)
    assert isinstance(store, SqliteStore)
    assert store.path == os.path.realpath(tmp_path / "data" / "agents.db")
    await store.close()


async def test_a_path_object_names_a_file(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "a #1%20.db", SCHEMA, synchronous="NORMAL")
    await store.close()
    assert (tmp_path / "a #1%20.db").exists()


@pytest.mark.parametrize("url", [":memory:", "sqlite://:memory:", "sqlite:///:memory:"])
async def test_these_keep_everything_in_memory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = await open_store(url, SCHEMA), await open_store(url, SCHEMA)
    await one.apply([Statement("INSERT INTO notes VALUES (?)", ("a",))])
    assert await two.fetch("SELECT * FROM notes") == []
    await one.close()
    await two.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
async def test_these_name_a_server(scheme: str, postgres_url: str) -> None:
    store = await open_store(f"{scheme}://{postgres_url.partition('://')[2]}", SCHEMA, patience=1.0)
    assert isinstance(store, PostgresStore)
    await store.close()
    with pytest.raises(StoreUnavailable):
        await open_store(f"{scheme}://127.0.0.1:{free_port()}/x", SCHEMA)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mysql://me:hush@host/db",
        "sqlite://",
        "sqlite:///",
        "sqlite://agents.db",
        "sqlite:///a.db?mode=ro",
    ],
)
async def test_anything_else_is_answered_with_what_is_accepted(url: str) -> None:
    with pytest.raises(StoreError, match="Accepted are") as refusal:
        await open_store(url, SCHEMA)
    assert "sqlite:///data/agents.db" in str(refusal.value)
    assert "postgresql://" in str(refusal.value)
    assert "hush" not in str(refusal.value)


async def test_sqlite_does_not_load_the_driver_of_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    await (await open_store(":memory:", SCHEMA)).close()
