"""Full disks, killed processes, threads: what SQLite must survive."""

# ruff: noqa: ASYNC240 - small files on a local disk

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path

import pytest

from everthink.errors import (
    StoreClosed,
    StoreError,
    StoreFull,
)
from everthink.sqlite import open_sqlite
from everthink.sqlite.commits import Commits
from everthink.store.port import Statement
from tests.store.notes import COUNT, SCHEMA, put, python

pytestmark = pytest.mark.anyio

WRITE = """
import asyncio, sys
from everthink.store.port import Statement
from everthink.sqlite import open_sqlite

async def main():
    store = await open_sqlite(sys.argv[1], [])

    async def write(writer):
        for step in range(1_000_000):
            id = f"{writer}/{step}"
            statements = [Statement("INSERT INTO notes (id, body) VALUES (?, ?)", (id, "x" * 300))]
            if step % 3 == 0:
                statements.append(Statement("UPDATE notes SET body = 'twice' WHERE id = ?", (id,), True))
            await store.apply(statements)
            print(id, flush=True)

    await asyncio.gather(*(write(writer) for writer in range(20)))

asyncio.run(main())
"""


# Many reads.


async def test_whoever_reads_page_after_page_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    await store.apply(put("one"))
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    await store.fetch(COUNT)
    assert turns == []  # a read that is quick is made where it is asked for
    monkeypatch.setattr("everthink.sqlite.reader._TURN", 0.0)
    await store.fetch(COUNT)
    assert turns == [1]
    await store.close()


# No space left.


async def test_a_full_disk_fails_the_commit_and_nothing_else(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    await store.apply([Statement("PRAGMA max_page_count = 30")])
    # Given a group in which one commit needs more than there is
    outcomes = await asyncio.gather(
        store.apply(put("before")),
        store.apply([*put("part of the large one"), *put("large", "x" * 500_000)]),
        store.apply(put("after")),
        store.apply(put("also large", "x" * 500_000)),
        store.apply([*put("last"), *put("really last")]),
        return_exceptions=True,
    )
    # Then that one fails, and says so
    assert [type(outcome) for outcome in outcomes] == [list, StoreFull, list, StoreFull, list]
    assert "agents.db" in str(outcomes[1])
    assert "Nothing of this commit was written" in str(outcomes[1])
    ids = await store.fetch("SELECT id FROM notes ORDER BY id")
    assert ids == [("after",), ("before",), ("last",), ("really last",)]
    # And once there is space again the same store takes it
    await store.apply([Statement("PRAGMA max_page_count = 100000")])
    await store.apply(put("large", "x" * 500_000))
    await store.close()
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    assert await store.fetch(COUNT) == [(5,)]
    await store.close()


async def test_space_that_was_freed_is_given_back_at_close(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    store = await open_sqlite(path, SCHEMA)
    await store.apply(put("large", "x" * 2_000_000))
    await store.apply([Statement("DELETE FROM notes")])
    await store.close()
    assert path.stat().st_size < 100_000


# Pulling the plug.
@pytest.mark.slow
async def test_a_killed_process_loses_nothing_that_was_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    await (await open_sqlite(path, SCHEMA)).close()
    # Given a process that says what it was told is stored
    with python(WRITE, path) as writer:
        assert writer.stdout
        confirmed = [writer.stdout.readline() for _ in range(2000)]
        # When it is killed in the middle
        writer.send_signal(signal.SIGKILL)
        confirmed += writer.stdout.readlines()
        writer.wait()
    # Then all of that is there, and every commit is whole
    store = await open_sqlite(path, SCHEMA)
    stored: dict[str, str] = dict(await store.fetch("SELECT id, body FROM notes"))
    assert {line.strip() for line in confirmed if line.endswith("\n")} <= set(stored)
    for id, body in stored.items():
        assert (body == "twice") == (int(id.partition("/")[2]) % 3 == 0)
    assert await store.fetch("PRAGMA integrity_check") == [("ok",)]
    await store.close()


@pytest.mark.slow
def test_a_program_that_forgets_to_close_still_ends(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from everthink.store.port import *\n"
        "from everthink.sqlite import open_sqlite\n"
        "async def main():\n"
        "    store = await open_sqlite(sys.argv[1], [Migration(1, 'n', ('CREATE TABLE n (id TEXT)',))])\n"
        "    await store.apply([Statement('INSERT INTO n VALUES (?)', ('a',))])\n"
        "    for _ in range(100): store.apply([Statement('INSERT INTO n VALUES (?)', ('b',))])\n"
        "asyncio.run(main())"
    )
    with python(code, tmp_path / "agents.db") as child:
        out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err) == (0, "", "")


# The threads.


async def test_a_writer_that_dies_leaves_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    await store.apply(put("stored"))

    def broken(*_: object) -> None:
        raise SystemError("a bit flipped")

    monkeypatch.setattr(Commits, "write", broken)
    outcomes = await asyncio.gather(*(store.apply(put(f"{i}")) for i in range(5)), return_exceptions=True)
    for outcome in outcomes:
        assert type(outcome) is StoreError
        assert "a bit flipped" in str(outcome)
        assert "may or may not" in str(outcome)
    with pytest.raises(StoreError, match="a bit flipped"):
        await store.apply(put("later"))
    assert await store.fetch(COUNT) == [(1,)]
    await store.close()
    with pytest.raises(StoreClosed):
        await store.fetch(COUNT)
    monkeypatch.undo()
    await (await open_sqlite(tmp_path / "agents.db", SCHEMA)).close()


async def test_a_long_read_does_not_hold_the_loop(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # a server that ran in this process keeps a thread of its own
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    numbers = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT MAX(i) FROM n"
    )
    for _ in range(2):
        # Given a query that takes a good part of a second
        reading = asyncio.create_task(store.fetch(numbers, 1_000_000))
        # Then the loop goes round and round meanwhile, commits and small reads included
        rounds = 0
        while not reading.done():
            await store.apply([Statement("INSERT INTO notes (id) VALUES ('a') ON CONFLICT DO NOTHING")])
            assert await store.fetch(COUNT) == [(1,)]
            rounds += 1
        assert await reading == [(1_000_000,)]
        assert rounds > 10
    # And a quick use of the same statement is welcome on the loop again
    for _ in range(2):
        assert await store.fetch(numbers, 3) == [(3,)]
    await store.close()
    assert not [t for t in set(threading.enumerate()) - before if t.name.startswith("everthink")]


async def test_close_waits_for_a_long_read(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    numbers = (
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT MAX(i) FROM n"
    )
    reading = asyncio.create_task(store.fetch(numbers, 300_000))
    await asyncio.sleep(0)
    await store.close()
    assert await reading == [(300_000,)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agents.db", "agents.db.lock"]


# Settings.


async def test_the_disk_is_waited_for_unless_told_otherwise(tmp_path: Path) -> None:
    for number, setting in ((2, {}), (1, {"synchronous": "NORMAL"})):
        store = await open_sqlite(tmp_path / "agents.db", SCHEMA, **setting)  # type: ignore[arg-type]
        assert await store.apply([Statement("PRAGMA synchronous")]) == [[(number,)]]
        assert await store.apply([Statement("PRAGMA journal_mode")]) == [[("wal",)]]
        await store.close()
    with pytest.raises(StoreError, match="FULL"):
        await open_sqlite(tmp_path / "agents.db", SCHEMA, synchronous="OFF")  # type: ignore[arg-type]
