"""A URL names a store."""

# ruff: noqa: ASYNC240 - small files on a local disk

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from everthink.errors import StoreError, StoreUnavailable
from everthink.open_store import open_store
from everthink.postgres import PostgresStore
from everthink.sqlite import SqliteStore
from everthink.store.port import Migration, Statement
from everthink.store_urls import check_url
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


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        (":memory", "Did you mean ':memory:'? A file of that name is ./memory"),
        ("memory", "Did you mean ':memory:'?"),
        ("Memory:", "Did you mean ':memory:'?"),
        (":Memory:", "Did you mean ':memory:'?"),
        ("sqlite::memory:", "Did you mean ':memory:'?"),
        ("sqlite:/data/x.db", "Did you mean 'sqlite:////data/x.db'?"),
        ("sqlite:data/x.db", "Did you mean 'sqlite:///data/x.db'?"),
        ("file:x.db", "Did you mean 'sqlite:///x.db'?"),
        ("file:x.db?mode=ro", "Did you mean 'sqlite:///x.db'?"),
        ("postgres:localhost/x", "Did you mean 'postgresql://localhost/x'?"),
        ("$HOME/x.db", "no variable is replaced. Write '~/x.db'."),
        ("sqlite:///${HOME}/x.db", "no variable is replaced. Write '~/x.db'."),
        ("data/$USER/x.db", "no variable is replaced."),
        ("%USERPROFILE%/x.db", "no variable is replaced."),
        ("x.db?mode=ro", "has options; pass them as arguments instead."),
        ("m/", "names a folder. Name a file: m/agents.db"),
        ("sqlite:///m/", "names a folder. Name a file: m/agents.db"),
        (".", "names a folder. Name a file: ./agents.db"),
        (" ", "The store URL is empty."),
    ],
)
async def test_what_is_meant_otherwise_makes_no_file_of_that_name(
    url: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="Accepted are") as refusal:
        await open_store(url, SCHEMA)
    assert meant in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["memory.db", "./memory", "files:x.db", "a$b.db", "50%.db", "c:x.db", "sqlite"]
)
async def test_a_name_that_only_looks_a_little_like_it_is_a_file(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await (await open_store(path, SCHEMA)).close()
    assert (tmp_path / path).exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://shop:hush@127.0.0.1:port/db", "has a port that is no number from 1 to 65535."),
        ("postgresql://127.0.0.1:99999/db", "has a port that is no number from 1 to 65535."),
        ("postgresql://one:5432,two:x/db", "has a port that is no number from 1 to 65535."),
        ("postgresql://shop:ge@hush@127.0.0.1/db", "In the user and the password write @ as %40"),
        ("postgresql://shop:ge/hush@127.0.0.1/db", "/ as %2F"),
        ("postgresql://shop:ge#hush@127.0.0.1/db", "# as %23"),
        ("postgresql://[::1/db", "The PostgreSQL URL cannot be read"),
        (
            "postgresql://localhost/db?sslmode=reqire",
            "'reqire'. Nothing was opened. Did you mean sslmode=require?",
        ),
        (
            "postgresql://localhost/db?sslmode=on",
            "It takes disable, allow, prefer, require, verify-ca or verify-full.",
        ),
        (
            "postgresql://localhost/db?ssl=true",
            "does not know: 'ssl'. Nothing was opened. Write sslmode=require.",
        ),
        (
            "postgresql://localhost/db?schema=x",
            "does not know: 'schema'. Nothing was opened. Write search_path=NAME.",
        ),
        ("postgresql://localhost/db?pool_size=5", 'an argument: store_options={"readers": 5}.'),
        ("postgresql://localhost/db?sslmod=require", "Did you mean sslmode=?"),
    ],
)
async def test_a_url_of_a_server_that_is_written_wrongly_is_told_as_that(url: str, words: str) -> None:
    with pytest.raises(StoreError) as refusal:
        await open_store(url, SCHEMA)
    assert "The PostgreSQL URL " in str(refusal.value)
    assert words in " ".join(str(refusal.value).split())
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://shop:ge%40heim@127.0.0.1:5432/db?sslmode=verify-full",
        "postgresql:///db?host=/var/run/postgresql",
        "postgresql://one:5432,two:5433/db",
        "postgresql://[::1]:5432/db",
        "postgres://localhost/db?user=a@b",
    ],
)
def test_these_urls_of_servers_are_taken(url: str) -> None:
    check_url(url)


async def test_a_server_without_tls_is_told_as_one(postgres_url: str) -> None:
    joint = "&" if "?" in postgres_url else "?"
    with pytest.raises(StoreUnavailable, match=r"without TLS, and the URL asks for it .*sslmode=prefer"):
        await open_store(f"{postgres_url}{joint}sslmode=require", SCHEMA, patience=0.0)


async def test_an_option_that_the_server_does_not_know_is_told_as_one(postgres_url: str) -> None:
    joint = "&" if "?" in postgres_url else "?"
    with pytest.raises(StoreError, match=r'does not know "fancy", an option of the URL\. Nothing was opened'):
        await open_store(f"{postgres_url}{joint}fancy=1", SCHEMA, patience=0.0)


async def test_sqlite_does_not_load_the_driver_of_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    await (await open_store(":memory:", SCHEMA)).close()
