"""A search index may break; what people say is stored all the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import open_sqlite
from everthink.store.port import Search, Statement, Store

pytestmark = pytest.mark.anyio

STRUCTURE = "SELECT block FROM messages_fts_data WHERE id = 10"
LEVELS = "SELECT hex(substr(block, 5, 2)) FROM messages_fts_data WHERE id = 10"


def said(number: int, agent: str = "A/one") -> Statement:
    """A message."""
    return Statement(
        "INSERT INTO messages (agent, session, id, seq, role, content, created_at)"
        " VALUES (?, '', ?, ?, 'user', ?, 1)",
        (agent, f"m{number}", number, f'{{"parts":[{{"type":"text","text":"harbour {number}"}}]}}'),
    )


async def hits(store: Store) -> int:
    """How many messages a search finds."""
    found = Search("messages", ("id",), ("harbour",), limit=1000)
    return len(await store.search(found, agent="A/one"))


def break_structure(path: Path, block: bytes) -> None:
    """Write something else where FTS5 keeps the list of its parts."""
    other = sqlite3.connect(path)
    other.execute("UPDATE messages_fts_data SET block = ? WHERE id = 10", (block,))
    other.commit()
    other.close()


async def test_an_index_that_is_scrubbed_again_and_again_does_not_grow_levels(tmp_path: Path) -> None:
    # SQLite up to 3.41 gives it one more each time, and cannot read it any more when there are 2,001
    store = await open_sqlite(tmp_path / "a.db", MIGRATIONS)
    for number in range(80):
        await store.apply([said(number)])
        await store.scrub(patience=2.0)  # somebody who waits: there is no rest in between
    [(levels,)] = await store.fetch(LEVELS)
    assert int(levels[:2], 16) <= 65
    assert await hits(store) == 80
    await store.close()
    with sqlite3.connect(tmp_path / "a.db") as file:
        file.execute("INSERT INTO messages_fts (messages_fts) VALUES ('integrity-check')")


async def test_an_index_with_too_many_levels_is_read_again_after_a_start(tmp_path: Path) -> None:
    # Given a file that an earlier version scrubbed 2,001 times
    path = tmp_path / "a.db"
    store = await open_sqlite(path, MIGRATIONS)
    await store.apply([said(number) for number in range(5)])
    await store.close()
    with sqlite3.connect(path) as file:
        [(block,)] = file.execute(STRUCTURE).fetchall()
    assert block[4] == 1, "one level"
    assert block[6] < 0x80, "few writes"
    many = block[:4] + b"\x8f\x51" + block[5:7] + bytes(2 * 2000) + block[7:]
    break_structure(path, many)
    with sqlite3.connect(path) as file, pytest.raises(sqlite3.DatabaseError):
        file.execute("SELECT 1 FROM messages_fts WHERE messages_fts MATCH 'harbour'")
    # When it is opened
    store = await open_sqlite(path, MIGRATIONS)
    # Then everything is found, and more can be said
    assert await hits(store) == 5
    await store.apply([said(5)])
    assert await hits(store) == 6
    [(block,)] = await store.fetch(STRUCTURE)
    assert len(block) < 40
    await store.close()


@pytest.mark.parametrize("together", [False, True])
async def test_an_index_that_breaks_while_the_server_runs_loses_no_message(
    tmp_path: Path, together: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.db"
    store = await open_sqlite(path, MIGRATIONS)
    await store.apply([said(0)])
    break_structure(path, b"\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff")
    commits = [[said(number), Statement("DELETE FROM kv")] for number in range(1, 4 if together else 2)]
    for done in [store.apply(commit) for commit in commits]:
        await done
    assert await hits(store) == 1 + len(commits)
    assert "the search index of messages was broken and was made anew" in caplog.text
    await store.close()


async def test_an_index_that_broke_before_a_start_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await open_sqlite(path, MIGRATIONS)
    await store.apply([said(number) for number in range(7)])
    await store.close()
    break_structure(path, b"nonsense")
    store = await open_sqlite(path, MIGRATIONS)
    assert await hits(store) == 7
    await store.close()
