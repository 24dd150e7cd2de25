"""What only a PostgreSQL server can do: refuse us, go away, come back."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from everthink.errors import (
    CommitRefused,
    MissingExtra,
    StoreError,
    StoreUnavailable,
    StoreUnreadable,
)
from everthink.postgres import PostgresStore, open_postgres
from everthink.postgres import batch as calls_module
from everthink.postgres.sql import numbered, returns_rows, subscripted
from everthink.store.port import Migration, Statement
from tests.support.postgres import PASSWORD, PASSWORD_USER, Cluster, Server, free_port

pytestmark = pytest.mark.anyio

SCHEMA = [Migration(1, "notes", ("CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT)",))]
PUT = "INSERT INTO notes (id, body) VALUES (?, ?)"
IDS = "SELECT id FROM notes ORDER BY id"


def put(id: str, body: str = "") -> Statement:
    return Statement(PUT, (id, body))


# Getting in.


async def test_a_server_that_is_not_there_is_named() -> None:
    port = free_port()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}/agents cannot be reached") as refusal:
        await open_postgres(f"postgresql://me:hush@127.0.0.1:{port}/agents", SCHEMA)
    assert "hush" not in str(refusal.value)
    assert "host and port" in refusal.value.next_step


async def test_a_wrong_password_is_reported_without_the_password(own_cluster: Cluster) -> None:
    url = own_cluster.at("postgres", user=PASSWORD_USER, password="wrong-horse")
    with pytest.raises(StoreUnreadable, match=f"password authentication failed.*{PASSWORD_USER}") as refusal:
        await open_postgres(url, SCHEMA)
    assert "wrong-horse" not in str(refusal.value)
    # The right one gets in, and is told what else it lacks.
    with pytest.raises(StoreUnreadable, match="permission denied"):
        await open_postgres(own_cluster.at("postgres", user=PASSWORD_USER, password=PASSWORD), SCHEMA)


async def test_a_database_that_does_not_exist_comes_with_the_way_to_create_it(
    postgres_server: Server,
) -> None:
    with pytest.raises(StoreUnavailable, match="There is no database") as refusal:
        await open_postgres(postgres_server.at("nowhere"), SCHEMA)
    assert "createdb nowhere" in refusal.value.next_step


@pytest.mark.parametrize("url", ["postgresql://host:port/x", "postgresql://[::1/x"])
async def test_an_address_that_makes_no_sense_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        await open_postgres(url, SCHEMA)


async def test_a_missing_package_comes_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtra, match=r'pip install "everthink\[postgres\]"'):
        await open_postgres("postgresql://localhost/agents", SCHEMA)


async def test_nodes_that_start_together_migrate_once(postgres_url: str) -> None:
    stores = await asyncio.gather(*(open_postgres(postgres_url, SCHEMA) for _ in range(8)))
    await asyncio.gather(*(store.apply([put(f"{i}")]) for i, store in enumerate(stores)))
    assert len(await stores[0].fetch(IDS)) == 8
    await asyncio.gather(*(store.close() for store in stores))


# The server goes away.


@pytest.fixture
async def store(own_cluster: Cluster) -> AsyncIterator[PostgresStore]:
    url = own_cluster.create_database()
    store = await open_postgres(url, SCHEMA)
    yield store
    await store.close()


async def sleeping(cluster: Cluster) -> None:
    """Return once a commit is asleep in the server."""
    import asyncpg

    connection = await asyncpg.connect(cluster.url)
    while not await connection.fetch("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
        pass
    connection.terminate()


SLEEP = Statement("SELECT 1 FROM pg_sleep(?)", (600,))


async def test_a_restart_in_the_middle_of_a_commit_is_told_honestly(
    own_cluster: Cluster, store: PostgresStore
) -> None:
    await store.apply([put("before")])
    # Given a commit in flight and others behind it
    in_flight = store.apply([put("in flight"), SLEEP])
    await sleeping(own_cluster)
    behind = [store.apply([put(f"behind {i}"), put(f"behind {i}b")]) for i in range(3)]
    # When the server crashes and comes back
    own_cluster.stop(how=signal.SIGQUIT)
    own_cluster.start()
    # Then nobody claims to know what became of the first, and the others are stored
    with pytest.raises(StoreUnavailable, match="may or may not have been stored"):
        await in_flight
    assert await asyncio.gather(*behind) == [[[], []]] * 3
    assert [id for (id,) in await store.fetch(IDS)] == [
        "before",
        *(f"behind {i}{b}" for i in range(3) for b in ("", "b")),
    ]


async def test_a_group_in_flight_is_in_doubt_as_a_whole(own_cluster: Cluster, store: PostgresStore) -> None:
    await store.apply([put("first")])
    group = [store.apply([put("a")]), store.apply([put("b"), SLEEP]), store.apply([put("c")])]
    await sleeping(own_cluster)
    own_cluster.stop(how=signal.SIGINT)
    own_cluster.start()
    for outcome in await asyncio.gather(*group, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
        assert "may or may not" in str(outcome)
    await store.apply([put("later")])
    assert await store.fetch(IDS) == [("first",), ("later",)]


async def test_a_connection_lost_while_idle_is_replaced_unnoticed(
    own_cluster: Cluster, store: PostgresStore
) -> None:
    await store.apply([put("a"), put("b")])
    assert len(await store.fetch(IDS)) == 2
    own_cluster.stop(how=signal.SIGINT)
    own_cluster.start()
    await closed_connections(store)
    await asyncio.gather(*(store.apply([put(f"{i}"), put(f"{i}+")]) for i in range(5)))
    assert len(await store.fetch(IDS)) == 12


async def test_a_server_that_stays_away_is_reported_and_the_store_recovers(own_cluster: Cluster) -> None:
    store = await open_postgres(own_cluster.create_database(), SCHEMA, patience=0.0)
    await store.apply([put("before")])
    own_cluster.stop()
    await closed_connections(store)
    outcomes = await asyncio.gather(
        store.apply([put("a")]), store.apply([put("b")]), store.fetch(IDS), return_exceptions=True
    )
    for outcome in outcomes[:2]:
        assert isinstance(outcome, StoreUnavailable)
        assert "Nothing of this commit was written" in str(outcome)
    assert isinstance(outcomes[2], StoreUnavailable)
    own_cluster.start()
    await store.apply([put("after")])
    assert await store.fetch(IDS) == [("after",), ("before",)]
    own_cluster.stop()
    await store.close()
    own_cluster.start()


async def closed_connections(store: Any) -> None:
    """Return once the loop has heard that the writer's connection is gone."""
    while not store._writer._session.connection.is_closed():  # noqa: ASYNC110 - asyncpg tells nobody.
        await asyncio.sleep(0)


async def test_tearing_down_the_loop_leaves_nobody_waiting(own_cluster: Cluster) -> None:
    store = await open_postgres(own_cluster.create_database(), SCHEMA)
    waiting = [store.apply([put("a"), SLEEP]), store.apply([put("b")])]
    await sleeping(own_cluster)
    sending: asyncio.Task[None] = store._writer._sending  # type: ignore
    sending.cancel()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2
    await store.close()


# One call for a commit.


async def test_more_kinds_of_statements_than_functions_still_work(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "_MOST_FUNCTIONS", 3)
    store = await open_postgres(postgres_url, SCHEMA)

    def commit(i: int) -> list[Statement]:
        return [put(f"{i}"), Statement(f"UPDATE notes SET body = 'step {i}' WHERE id = ?", (f"{i}",), True)]

    for _ in range(2):
        await asyncio.gather(*(store.apply(commit(i)) for i in range(10)))
        await store.apply([Statement("DELETE FROM notes WHERE id < ?", ("a",), True)])
    with pytest.raises(CommitRefused):
        await store.apply(commit(1)[1:] + commit(2))
    assert await store.fetch(IDS) == []
    await store.close()


async def test_a_commit_of_many_statements_and_parameters_is_one_call(postgres_url: str) -> None:
    store = await open_postgres(postgres_url, SCHEMA)
    await store.apply([put(f"{i}", "x") for i in range(500)])
    assert await store.fetch("SELECT COUNT(*) FROM notes") == [(500,)]
    await store.close()


async def test_a_schema_changed_under_us_is_noticed(postgres_url: str, postgres_server: Server) -> None:
    store = await open_postgres(postgres_url, SCHEMA)
    commit = [put("a"), Statement("DELETE FROM notes RETURNING *")]
    assert (await store.apply(commit))[1] == [("a", "")]
    assert await store.fetch("SELECT * FROM notes") == []
    schema = postgres_url.rpartition("=")[2]
    postgres_server.run(f"ALTER TABLE {schema}.notes ADD COLUMN tag TEXT", url=postgres_url.partition("?")[0])
    assert (await store.apply(commit))[1] == [("a", "", None)]
    assert await store.fetch("SELECT * FROM notes") == []
    await store.close()


def test_placeholders_become_numbers_with_types() -> None:
    sql = """SELECT ?, '?', "a?b", 'it''s ?' /* ? */ FROM t WHERE a = ? AND b = ? -- ?\n AND c = ?"""
    kinds = (str, int, type(None), float)
    assert numbered(sql, kinds) == (
        """SELECT $1::text, '?', "a?b", 'it''s ?' /* ? */ FROM t"""
        """ WHERE a = $2::bigint AND b = NULL -- ?\n AND c = $3::double precision"""
    )
    assert (
        subscripted("a = ? AND b = ?", (bool, str)) == "a = ($1)[$2 + 1]::bigint AND b = ($1)[$2 + 2]::text"
    )
    with pytest.raises(StoreError, match="1 placeholders and 2 parameters"):
        numbered("SELECT ?", (int, int))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", True),
        ("  -- a remark\n select 1 for update", True),
        ("WITH x AS (SELECT 1) SELECT * FROM x", True),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x", False),
        ("WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x RETURNING id", True),
        ("INSERT INTO t VALUES ('returning')", False),
        ('UPDATE t SET "returning" = 1', False),
        ("DELETE FROM t RETURNING id", True),
        ("VALUES (1)", True),
    ],
)
def test_statements_that_return_rows_are_recognised(sql: str, expected: bool) -> None:
    assert returns_rows(sql) is expected
