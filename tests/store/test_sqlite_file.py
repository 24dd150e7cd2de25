"""Who owns the file, and files that are not what they should be."""

# ruff: noqa: ASYNC240 - small files on a local disk

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everthink.errors import (
    StoreError,
    StoreLocked,
    StoreReadOnly,
    StoreUnreadable,
)
from everthink.sqlite import open_sqlite
from everthink.sqlite.commits import Commits
from everthink.store.port import Migration
from tests.store.notes import COUNT, SCHEMA, put, python

pytestmark = pytest.mark.anyio

HOLD = """
import asyncio, sys
from everthink.sqlite import open_sqlite

async def main():
    store = await open_sqlite(sys.argv[1], [])
    print("open", flush=True)
    sys.stdin.read()
    await store.close()

asyncio.run(main())
"""


# Who owns the file.
@pytest.mark.slow
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
    (tmp_path / "folder").symlink_to(tmp_path)
    for name in ("agents.db", "folder/agents.db", "../" + tmp_path.name + "/agents.db"):
        with pytest.raises(StoreLocked, match=f"already open in this process .pid {os.getpid()}"):
            await open_sqlite(tmp_path / name, SCHEMA)
    await store.apply(put("still usable"))
    await store.close()
    # a link in the place of the file itself is refused: tests/security/test_traces_files.py
    with pytest.raises(StoreUnreadable, match="it is a link"):
        await open_sqlite(tmp_path / "link.db", SCHEMA)


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


@pytest.mark.slow
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

    async def read_all() -> None:
        store = await open_sqlite(path, SCHEMA)
        try:
            await store.fetch("SELECT SUM(LENGTH(body)) FROM notes")
        finally:
            await store.close()

    with pytest.raises(StoreUnreadable, match=r"damaged|not a SQLite database"):
        await read_all()


async def test_a_directory_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreadable, match="is a directory"):
        await open_sqlite(tmp_path, SCHEMA)


async def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnreadable, match="Cannot create the directory"):
        await open_sqlite(tmp_path / "file" / "agents.db", SCHEMA)


@pytest.mark.slow
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
        "import asyncio, os, sys; from everthink.sqlite import open_sqlite\n"
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


async def test_a_file_of_another_kind_keeps_its_contents_and_its_rights(scratch: Path) -> None:
    theirs = scratch / "passwd"
    theirs.write_text("root:x:0:0\n")
    theirs.chmod(0o644)
    with pytest.raises(StoreUnreadable, match="passwd is not a SQLite database"):
        await open_sqlite(theirs, SCHEMA)
    assert (theirs.read_text(), theirs.stat().st_mode & 0o777) == ("root:x:0:0\n", 0o644)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A directory that other users can reach, unlike pytest's."""
    directory = Path(tempfile.mkdtemp(prefix="everthink-"))
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    shutil.rmtree(directory)
