"""A process dies at the commit that a variable names, and another variable counts them."""

# ruff: noqa: ASYNC240 - small files on a local disk

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from everthink.errors import StoreClosed, StoreError
from everthink.open_store import open_store
from everthink.postgres import PostgresStore
from everthink.sqlite import SqliteStore
from everthink.store.crashpoints import COUNT_COMMITS, CRASH_AT, CrashPlan, CrashPoints, crash_plan, deeds
from everthink.store.port import AgentStore, Migration, Statement, Store
from everthink.testing.contracts.store import StoreContract
from tests.store.notes import COUNT, SCHEMA, put, python

pytestmark = pytest.mark.anyio

CHILD = """
import asyncio, os, sys
from everthink.open_store import open_store
from tests.store.notes import SCHEMA, put

async def main(url, at):
    os.environ["EVERTHINK_CRASH_AT"] = at
    store = await open_store(url, SCHEMA)
    await store.apply(put("first"))
    print("told first", flush=True)
    # Asked for in one breath: they would share a transaction.
    for done in [store.apply(put(name)) for name in ("second", "third", "fourth")]:
        await done
        print("told", flush=True)
    await store.close()
    print("over", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/notes.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


BOTH = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


async def ids(url: str) -> list[str]:
    store = await open_store(url, SCHEMA)
    rows = await store.fetch("SELECT id FROM notes")
    await store.close()
    return sorted(row[0] for row in rows)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(
    ("at", "kept", "told"),
    [
        ("1", [], 0),
        ("1:after", ["first"], 0),
        ("2:before", ["first"], 1),
        ("2:after", ["first", "second"], 1),
        ("3:before", ["first", "second"], 2),
        ("4:after", ["first", "fourth", "second", "third"], 3),
        ("5:before", ["first", "fourth", "second", "third"], 4),
    ],
)
async def test_the_process_dies_at_the_commit_that_was_named(
    url: str, at: str, kept: list[str], told: int
) -> None:
    child = python(CHILD, url, at)
    said, complaints = child.communicate(timeout=30)
    reached = not at.startswith("5")
    assert child.returncode == (-signal.SIGKILL if reached else 0), complaints
    # Nobody was told of a commit after which it died, and everybody of those before
    assert said.count("told") == told
    assert ("over" in said) is not reached
    assert await ids(url) == kept


@BOTH
async def test_commits_are_counted_and_described(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tmp_path / "counts"
    monkeypatch.setenv(COUNT_COMMITS, str(counts))
    store = await open_store(url, SCHEMA)
    await store.apply(put("a"))
    both = [*put("b"), Statement("UPDATE notes SET body = ? WHERE id = ?", ("!", "a")), *put("c")]
    await store.apply(both)
    with pytest.raises(StoreError):
        await store.apply(put("a"))  # counted, though nothing was written
    await store.apply([Statement("DELETE FROM notes WHERE id = ?", ("c",))])
    assert await store.fetch(COUNT) == [(2,)]
    await store.close()
    # Opened again, they are counted from one
    store = await open_store(url, SCHEMA)
    await store.apply(put("d"))
    await store.close()
    lines = [json.loads(line) for line in counts.read_text().splitlines()]
    assert [line["commit"] for line in lines] == [1, 2, 3, 4, 1]
    assert [line["writes"] for line in lines] == [
        ["insert notes"],
        ["insert notes", "update notes"],
        ["insert notes"],
        ["delete notes"],
        ["insert notes"],
    ]


async def test_a_line_says_whose_commit_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COUNT_COMMITS, str(tmp_path / "counts"))
    tables = ("CREATE TABLE turns (agent TEXT, status TEXT)", "CREATE TABLE plain (n BIGINT)")
    store = await open_store(tmp_path / "a.db", [Migration(1, "turns", tables)])
    room = AgentStore(store, "A/room")
    await room.apply([Statement("INSERT INTO turns (agent, status) VALUES (:agent, ?)", ("open",))])
    await room.apply([Statement("INSERT INTO plain (n) VALUES (?)", (1,))])  # whatever the SQL says
    await store.apply([Statement("UPDATE turns SET status = ? WHERE agent = ?", ("over", "A/room"))])
    assert await room.fetch("SELECT status FROM turns WHERE agent = :agent") == [("over",)]
    await store.close()
    lines = [json.loads(line) for line in (tmp_path / "counts").read_text().splitlines()]
    assert [line["agent"] for line in lines] == ["A/room", "A/room", None]


async def test_without_the_variables_the_store_is_the_adapter_itself(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CRASH_AT, raising=False)
    monkeypatch.delenv(COUNT_COMMITS, raising=False)
    for url, kind in ((str(tmp_path / "a.db"), SqliteStore), (postgres_url, PostgresStore)):
        store = await open_store(url, SCHEMA)
        assert type(store) is kind
        await store.close()


def test_what_the_variables_ask_for() -> None:
    assert crash_plan({}) is None
    assert crash_plan({CRASH_AT: "3"}) == CrashPlan(3, "before", None)
    assert crash_plan({CRASH_AT: " 12:after "}) == CrashPlan(12, "after", None)
    assert crash_plan({COUNT_COMMITS: "n", CRASH_AT: "1:before"}) == CrashPlan(1, "before", "n")
    assert crash_plan({COUNT_COMMITS: "n"}) == CrashPlan(0, "before", "n")


@pytest.mark.parametrize("value", ["", "0", "-1", "1.5", "three", "3:later", "3:", "3:after:before"])
async def test_a_value_that_means_nothing_opens_nothing(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CRASH_AT, value)
    with pytest.raises(StoreError) as told:
        await open_store(tmp_path / "a.db", SCHEMA)
    assert repr(value) in told.value.what
    assert "EVERTHINK_CRASH_AT=7:after" in told.value.next_step
    assert list(tmp_path.iterdir()) == []


async def test_counts_that_cannot_be_written_leave_the_database_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COUNT_COMMITS, str(tmp_path / "nowhere" / "counts"))
    with pytest.raises(StoreError, match="nowhere/counts"):
        await open_store(tmp_path / "a.db", SCHEMA)
    monkeypatch.delenv(COUNT_COMMITS)
    store = await open_store(tmp_path / "a.db", SCHEMA)
    await store.close()


async def test_closing_finishes_what_was_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COUNT_COMMITS, str(tmp_path / "counts"))
    store = await open_store(tmp_path / "a.db", SCHEMA)
    accepted = [store.apply(put(str(number))) for number in range(5)]
    await store.close()
    assert all(done.done() and not done.exception() for done in accepted)
    with pytest.raises(StoreClosed):
        await store.apply(put("late"))
    monkeypatch.delenv(COUNT_COMMITS)
    assert await ids(f"sqlite:///{tmp_path}/a.db") == ["0", "1", "2", "3", "4"]


def test_deeds_are_told_in_few_words() -> None:
    commit = [
        Statement("INSERT INTO turns (agent) VALUES (?)"),
        Statement("INSERT INTO turns (agent) VALUES (?)"),
        Statement("  delete from segments WHERE agent = ?"),
        Statement("UPDATE calls SET state = 'done'"),
        Statement("WITH x AS (SELECT 1) SELECT 2"),
    ]
    assert deeds(commit) == ["insert turns", "delete segments", "update calls"]


class TestCountedSqlite(StoreContract):
    """Whoever uses a store that counts notices nothing."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = tmp_path / "agents.db"
        monkeypatch.setenv(COUNT_COMMITS, str(tmp_path / "counts"))
        monkeypatch.setenv(CRASH_AT, "1000000:after")

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_store(self.path, migrations)


async def test_one_can_wait_until_all_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COUNT_COMMITS, str(tmp_path / "counts"))
    store = await open_store(tmp_path / "a.db", SCHEMA)
    assert isinstance(store, CrashPoints)
    await store.quiet()
    commits = [store.apply(put(str(number))) for number in range(3)]
    await store.quiet()
    assert all(commit.done() for commit in commits)
    await store.close()
