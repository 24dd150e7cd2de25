"""What is left of deleted rows in the bytes of a SQLite file."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path

import pytest

from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import open_sqlite
from everthink.store.port import Statement, Store

pytestmark = pytest.mark.anyio

MARK = "zqxjkvbp"
PATIENT = 60.0


def left(path: Path) -> dict[str, int]:
    """How often the mark is in each file of the database."""
    counts = {file.name: file.read_bytes().count(MARK.encode()) for file in path.parent.iterdir()}
    return {name: count for name, count in counts.items() if count}


async def fill(store: Store, seed: int, *, rounds: int = 300) -> None:
    """Many rows of two agents side by side, some of them changed later: pages split, and rows move."""
    chance = random.Random(seed)
    for number in range(rounds):
        agent, word = ("A/victim", MARK) if chance.random() < 0.3 else ("A/other", "innocent")
        text = " ".join(f"{word}{chance.randrange(999)}" for _ in range(chance.choice([2, 20, 200])))
        message = f'{{"parts": [{{"type": "text", "text": "{text}"}}]}}'
        await store.apply(
            [
                Statement(
                    "INSERT INTO messages (agent, session, id, seq, role, content, created_at)"
                    " VALUES (?, '', ?, ?, 'user', ?, 1)",
                    (agent, f"{word}-{chance.random()}", number, message),
                ),
                Statement(
                    "INSERT INTO kv (agent, name, value) VALUES (?, ?, ?)",
                    (agent, f"{chance.random()}", text),
                ),
                Statement(
                    "INSERT INTO segments (agent, turn, first_seq, last_seq, chunks)"
                    " VALUES (?, 't', ?, ?, ?)",
                    (agent, number, number, text),
                ),
            ]
        )
        if number % 50 == 49:
            await store.apply([Statement("DELETE FROM segments WHERE first_seq < ?", (number - 20,))])


async def move(store: Store, seed: int) -> None:
    """Small rows that grow later: pages are rebuilt, and keep a copy of what moved to a neighbour."""
    chance = random.Random(seed)
    names: list[tuple[str, str]] = []
    for number in range(1000):
        agent, word = ("A/victim", MARK) if chance.random() < 0.3 else ("A/other", "innocent")
        text = " ".join(f"{word}{chance.randrange(999)}" for _ in range(chance.choice([2, 20, 60])))
        names.append((agent, f"{word}{chance.random()}"))
        put = "INSERT INTO kv (agent, name, value) VALUES (?, ?, ?)"
        await store.apply([Statement(put, (*names[-1], text))])
        if number % 3 == 0:
            chosen = chance.choice(names)
            more = " " + (MARK if chosen[0] == "A/victim" else "innocent") * 10
            await store.apply(
                [Statement("UPDATE kv SET value = value || ? WHERE agent = ? AND name = ?", (more, *chosen))]
            )


async def delete(store: Store, *tables: str) -> None:
    await store.apply([Statement(f"DELETE FROM {table} WHERE agent = 'A/victim'") for table in tables])


@pytest.mark.parametrize("seed", range(6))
async def test_no_byte_of_a_deleted_row_is_left_while_the_store_is_open(tmp_path: Path, seed: int) -> None:
    store = await open_sqlite(tmp_path / "a.db", MIGRATIONS)
    await fill(store, seed)
    assert left(tmp_path / "a.db")
    await delete(store, "messages", "kv", "segments")
    assert await store.scrub(patience=PATIENT)
    assert left(tmp_path / "a.db") == {}
    await store.close()
    assert left(tmp_path / "a.db") == {}


async def test_no_copy_of_a_row_that_moved_is_left_in_a_page(tmp_path: Path) -> None:
    """With this seed eleven copies stay in the slack of pages unless the file is rewritten (SQLite 3.40)."""
    store = await open_sqlite(tmp_path / "a.db", MIGRATIONS, synchronous="NORMAL")
    await move(store, 7)
    await delete(store, "kv")
    assert await store.scrub(patience=PATIENT)
    assert left(tmp_path / "a.db") == {}
    await store.close()


async def test_words_of_a_deleted_text_leave_the_index_without_a_rewrite(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db", MIGRATIONS)
    await fill(store, 7)
    await delete(store, "messages")
    assert await store.scrub()
    await store.close()
    database = sqlite3.connect(tmp_path / "a.db")
    blocks = database.execute("SELECT block FROM messages_fts_data UNION SELECT term FROM messages_fts_idx")
    assert not [block for (block,) in blocks if MARK.encode() in bytes(block)]
    database.execute("CREATE VIRTUAL TABLE temp.words USING fts5vocab('main', 'messages_fts', 'row')")
    assert database.execute("SELECT COUNT(*) FROM words WHERE term LIKE ?", (MARK + "%",)).fetchone() == (0,)
    assert database.execute("SELECT COUNT(*) FROM words WHERE term LIKE 'innocent%'").fetchone() > (0,)
    database.close()


async def test_what_a_killed_process_left_in_the_index_goes_at_the_next_start(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db", MIGRATIONS)
    await fill(store, 8)
    await delete(store, "messages", "kv", "segments")
    await store.close()
    # Given a lock file as a killed process leaves it
    (tmp_path / "a.db.lock").write_text("pid 1\n")
    assert left(tmp_path / "a.db")
    store = await open_sqlite(tmp_path / "a.db", MIGRATIONS)
    async with asyncio.timeout(30):
        while left(tmp_path / "a.db"):
            await store.apply([Statement("UPDATE kv SET value = value WHERE agent = 'nobody'")])
    await store.close()
    assert left(tmp_path / "a.db") == {}
    assert (tmp_path / "a.db.lock").read_bytes() == b""


async def test_a_reader_that_holds_old_pages_delays_the_end_and_nothing_else(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db", MIGRATIONS)
    await fill(store, 9, rounds=20)
    reader = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    reader.execute("BEGIN").execute("SELECT COUNT(*) FROM messages").fetchall()
    await delete(store, "messages", "kv", "segments")
    task = asyncio.ensure_future(store.scrub(patience=PATIENT))
    for number in range(20):
        await store.apply([Statement("INSERT INTO kv VALUES ('A/other', ?, 'x')", (f"n{number}",))])
    assert not task.done()
    reader.execute("COMMIT")
    assert await task
    reader.close()
    assert left(tmp_path / "a.db") == {}
    await store.close()
