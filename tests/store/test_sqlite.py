"""What only a SQLite file can do, or get wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from everthink.errors import (
    StoreClosed,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreUnreadable,
)
from everthink.store.port import Migration, Statement
from everthink.store.sqlite import open_sqlite
from everthink.store.sqlite.commits import Commits

pytestmark = pytest.mark.anyio

SCHEMA = [Migration(1, "notes", ("CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT)",))]
PUT = "INSERT INTO notes (id, body) VALUES (?, ?)"
COUNT = "SELECT COUNT(*) FROM notes"


def put(id: str, body: str = "") -> list[Statement]:
    return [Statement(PUT, (id, body))]


HOLD = """
import asyncio, sys
from everthink.store.sqlite import open_sqlite

async def main():
    store = await open_sqlite(sys.argv[1], [])
    print("open", flush=True)
    sys.stdin.read()
    await store.close()

asyncio.run(main())
"""

WRITE = """
import asyncio, sys
from everthink.store.port import Statement
from everthink.store.sqlite import open_sqlite

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


def python(code: str, *args: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Who owns the file.


async def test_a_second_process_is_told_who_holds_the_database(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    # Given another process with the database open
    with python(HOLD, path) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "open\n"
        # Then we are refused, with its number
        with pytest.raises(StoreLocked) as refusal:
            await open_sqlite(path, SCHEMA)
        assert f"process {holder.pid}" in str(refusal.value)
        assert f"{path}.lock" in str(refusal.value)
        assert f"kill {holder.pid}" in refusal.value.next_step
        # And when it is killed, the file it leaves behind stops nobody
        holder.kill()
        holder.wait()
        assert (tmp_path / "agents.db.lock").read_text().startswith(f"pid {holder.pid}\n")
    store = await open_sqlite(path, SCHEMA)
    await store.close()


async def test_a_second_open_in_the_same_process_is_refused(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    (tmp_path / "link.db").symlink_to(tmp_path / "agents.db")
    for name in ("agents.db", "link.db", "../" + tmp_path.name + "/agents.db"):
        with pytest.raises(StoreLocked, match=f"already open in this process .pid {os.getpid()}"):
            await open_sqlite(tmp_path / name, SCHEMA)
    await store.apply(put("still usable"))
    await store.close()
    await (await open_sqlite(tmp_path / "link.db", SCHEMA)).close()


async def test_a_refused_or_cancelled_open_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with pytest.raises(StoreError):
        await open_sqlite(path, [Migration(1, "wrong", ("CREATE NOTHING",))])
    opening = asyncio.create_task(open_sqlite(path, SCHEMA))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await (await open_sqlite(path, SCHEMA)).close()


async def test_a_foreign_program_that_writes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    store = await open_sqlite(path, SCHEMA, busy_timeout=0.01)
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read(); c.execute('ROLLBACK')"
    )
    with python(code, path) as foreign:
        assert foreign.stdout
        assert foreign.stdin
        assert foreign.stdout.readline() == "locked\n"
        # Given a foreign transaction, our commits fail, alone and in a group
        outcomes = await asyncio.gather(*(store.apply(put(f"{i}")) for i in range(3)), return_exceptions=True)
        for outcome in outcomes:
            assert isinstance(outcome, StoreLocked)
            assert "Nothing of this commit was written" in str(outcome)
            if sys.platform == "linux":
                assert f"pid {foreign.pid}" in str(outcome)
        # But reading goes on
        assert await store.fetch(COUNT) == [(0,)]
        foreign.stdin.close()
        foreign.wait()
    await store.apply(put("afterwards"))
    assert await store.fetch(COUNT) == [(1,)]
    await store.close()


async def test_a_database_held_by_a_foreign_program_cannot_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    await (await open_sqlite(path, SCHEMA)).close()
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("PRAGMA locking_mode = EXCLUSIVE")
    foreign.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreLocked, match="Let that program finish"):
        await open_sqlite(path, SCHEMA, busy_timeout=0.01)
    foreign.close()
    await (await open_sqlite(path, SCHEMA)).close()


# Files that are not what they should be.


async def test_directories_are_created(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "some" / "where" / "agents.db", SCHEMA)
    await store.close()
    # After close everything is in the one file.
    assert sorted(path.name for path in (tmp_path / "some" / "where").iterdir()) == [
        "agents.db",
        "agents.db.lock",
    ]


async def test_a_file_that_is_not_a_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear Ada,\n" * 1000)
    with pytest.raises(StoreUnreadable, match=r"letter\.txt is not a SQLite database"):
        await open_sqlite(path, SCHEMA)
    assert path.read_text() == "Dear Ada,\n" * 1000


async def test_a_damaged_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    store = await open_sqlite(path, SCHEMA)
    await asyncio.gather(*(store.apply(put(f"{i}", "x" * 3000)) for i in range(50)))
    await store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 40_000)
    with pytest.raises(StoreUnreadable, match=r"damaged|not a SQLite database"):
        store = await open_sqlite(path, SCHEMA)
        try:
            await store.fetch("SELECT SUM(LENGTH(body)) FROM notes")
        finally:
            await store.close()


async def test_a_directory_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="is a directory"):
        await open_sqlite(tmp_path, SCHEMA)


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnreadable, match="Cannot create the directory"):
        await open_sqlite(tmp_path / "file" / "agents.db", SCHEMA)


@pytest.mark.parametrize("what", ["directory", "file", "parent"])
async def test_what_may_not_be_written_is_reported(what: str, scratch: Path) -> None:
    path = scratch / "agents.db"
    await (await open_sqlite(path, SCHEMA)).close()
    if what == "file":
        (scratch / "agents.db.lock").chmod(0o666)
        scratch.chmod(0o777)
        path.chmod(0o444)
    elif what == "directory":
        (scratch / "agents.db.lock").unlink()
        scratch.chmod(0o555)
    else:
        scratch.chmod(0o555)
        path = scratch / "new" / "agents.db"
    code = (
        "import asyncio, os, sys; from everthink.store.sqlite import open_sqlite; import everthink.store.sqlite.store\n"
        "if os.getuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: asyncio.run(open_sqlite(sys.argv[1], []))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    # As root nothing is forbidden, so the child becomes nobody.
    with python(code, path) as child:
        out, err = child.communicate()
    assert out.startswith("StoreReadOnly"), out + err
    assert str(scratch) in out
    assert "write access" in out


def test_a_read_only_disk_is_reported_while_running() -> None:
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED
    outcomes = Commits(_Failing(error), Path("/data/agents.db")).write([put("a")])  # type: ignore[arg-type]
    assert isinstance(outcomes[0], StoreReadOnly)
    assert "/data/agents.db may not be written" in str(outcomes[0])
    assert outcomes[0].__cause__ is error


class _Failing:
    in_transaction = False
    total_changes = 0

    def __init__(self, error: Exception) -> None:
        self.error = error

    def cursor(self) -> _Failing:
        return self

    def execute(self, *_: object) -> None:
        raise self.error


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A directory that other users can reach, unlike pytest's."""
    import shutil
    import tempfile

    directory = Path(tempfile.mkdtemp(prefix="everthink-"))
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)


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
    stored: dict[str, str] = {id: body for id, body in await store.fetch("SELECT id, body FROM notes")}
    assert {line.strip() for line in confirmed if line.endswith("\n")} <= set(stored)
    for id, body in stored.items():
        assert (body == "twice") == (int(id.partition("/")[2]) % 3 == 0)
    assert await store.fetch("PRAGMA integrity_check") == [("ok",)]
    await store.close()


def test_a_program_that_forgets_to_close_still_ends(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from everthink.store.port import *; from everthink.store.sqlite import open_sqlite\n"
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
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT MAX(i) FROM n"
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
    assert not [t for t in threading.enumerate() if t.name.startswith("everthink")]


async def test_close_waits_for_a_long_read(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "agents.db", SCHEMA)
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT MAX(i) FROM n"
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
