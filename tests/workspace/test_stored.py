"""Files in the agent's own rows: one commit, one lock, contents by hash, and the way back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from everthink.errors import StoreFull, WorkspaceError
from everthink.store.port import Statement
from everthink.testing.contracts.files.case import refused
from everthink.workspace import MemoryFiles, Put, Remove, Workspace, WorkspaceLimits

from .support import Desk, desk

pytestmark = pytest.mark.anyio

DAY = 24 * 3600.0


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(tmp_path) as opened:
        yield opened


async def _hashes(at: Desk) -> int:
    return (await at.rows("SELECT COUNT(DISTINCT hash) FROM contents WHERE agent = :agent"))[0][0]


# --- one commit


async def test_a_write_is_one_commit_of_file_content_and_change(at: Desk) -> None:
    files = at.workspace()
    at.store.take()
    await files.write_file("/a/b.txt", "x")
    assert at.store.take().commits == 1
    at.store.fail(StoreFull("full"))
    with pytest.raises(StoreFull):
        await files.write_file("/a/c.txt", "y")
    assert await files.read_file("/a/c.txt") is None
    assert len(await files.changes()) == 2
    assert await _hashes(at) == 1
    await files.write_file("/a/c.txt", "y")
    assert [change.seq for change in await files.changes()] == [1, 2, 3]


async def test_whoever_concludes_has_everything_in_a_commit_of_its_own(at: Desk) -> None:
    files = at.workspace()
    given: list[Sequence[Statement]] = []

    async def conclude(statements: Sequence[Statement]) -> None:
        given.append(statements)
        ledger = Statement("INSERT INTO kv (agent, name, value) VALUES (:agent, 'call', '1')")
        await at.store.apply([*statements, ledger], agent="Assistant/room")

    at.store.take()
    await files.concluding(conclude).write_file("/a/b.txt", "x")
    assert at.store.take().commits == 1
    assert len(given) == 1
    assert await files.read_file("/a/b.txt") == "x"
    assert await at.rows("SELECT value FROM kv WHERE agent = :agent AND name = 'call'") == [("1",)]
    await files.write_file("/c", "by itself")
    assert len(given) == 1


async def test_when_the_conclusion_fails_nothing_was_written(at: Desk) -> None:
    files = at.workspace()
    await files.write_file("/a", "before")

    async def conclude(statements: Sequence[Statement]) -> None:
        raise StoreFull("full")

    seen = len(at.events)
    with pytest.raises(StoreFull):
        await files.concluding(conclude).write_file("/a", "after")
    assert await files.read_file("/a") == "before"
    assert at.events[seen:-1] == []
    await files.write_file("/a", "after")
    assert [change.seq for change in await files.changes()] == [1, 2]


async def test_an_edit_that_changes_nothing_concludes_with_nothing(at: Desk) -> None:
    files, given = at.workspace(), list[int]()

    async def conclude(statements: Sequence[Statement]) -> None:
        given.append(len(statements))

    await files.write_file("/a", "x")
    mine = files.concluding(conclude)
    await mine.mv("/a", "/a")
    assert given == [0]
    assert await mine.delete_file("/nothing") is False
    await mine.rm("/nothing", force=True)
    assert given == [0]


async def test_a_caller_that_leaves_does_not_let_others_in_before_its_commit(at: Desk) -> None:
    files = at.workspace()
    await files.write_file("/log", "")
    at.store.hold()
    first = asyncio.create_task(files.append_file("/log", "first\n"))
    await at.store.until_waiting()
    second = asyncio.create_task(files.append_file("/log", "second\n"))
    first.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    first.cancel()
    assert not first.done()
    at.store.release()
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    assert await files.read_file("/log") == "first\nsecond\n"


# --- contents


async def test_equal_bytes_are_kept_once_and_copies_move_none(at: Desk) -> None:
    files = at.workspace()
    await files.write_file("/a/1", "same")
    await files.write_file("/a/2", "same")
    await files.cp("/a", "/b", recursive=True)
    await files.mv("/b", "/c")
    assert await _hashes(at) == 1


async def test_texts_are_kept_as_texts_and_what_a_store_would_change_is_not(at: Desk) -> None:
    files = at.workspace()
    await files.write_file("/text", "ü")
    await files.write_file("/nul", "a\0b")
    await files.write_file_bytes("/raw", b"\xff")
    found = await at.rows(
        "SELECT f.path, c.encoding, c.content FROM files f JOIN contents c"
        " ON c.agent = f.agent AND c.hash = f.hash WHERE f.agent = :agent ORDER BY f.path"
    )
    assert found == [("/nul", "base64", "YQBi"), ("/raw", "base64", "/w=="), ("/text", "utf8", "ü")]


async def test_a_half_character_never_reaches_a_row(at: Desk) -> None:
    files = at.workspace()
    text = "a" + "€" * 1_000_000
    await files.write_file("/long", text)
    parts = await at.rows("SELECT size FROM contents WHERE agent = :agent ORDER BY part")
    assert len(parts) == 3
    assert sum(row[0] for row in parts) == len(text.encode())
    assert await files.read_file("/long") == text


async def test_a_stream_goes_on_with_what_it_began(at: Desk) -> None:
    files = at.workspace()
    before = b"x" * 2_500_000
    await files.write_file_bytes("/a", before)
    stream = await files.read_file_stream("/a")
    assert stream is not None
    first = await anext(stream)
    await files.write_file("/a", "after")
    assert first + b"".join([piece async for piece in stream]) == before


# --- the log


async def test_a_change_says_which_call_of_which_turn_made_it(at: Desk) -> None:
    files = at.workspace()
    at.origin = ("call-1", "turn-1")
    await at.clock.advance(5)
    await files.write_file("/a", "x")
    (change,) = await files.changes()
    assert (change.call_id, change.turn) == ("call-1", "turn-1")
    assert change.at.timestamp() * 1000 == at.clock.now_ms()


async def test_a_turn_is_undone_whole(at: Desk) -> None:
    files = at.workspace()
    await files.write_file("/kept", "before")
    await files.write_file("/gone/a", "a")
    at.origin = (None, "turn-2")
    await files.write_file("/kept", "one")
    await files.write_file("/kept", "two")
    await files.rm("/gone", recursive=True)
    await files.write_file("/new/deep/b", "b")
    at.origin = (None, "turn-3")
    await files.write_file("/elsewhere", "x")
    changes = await files.undo(turn="turn-2")
    assert {change.turn for change in changes} == {"turn-3"}
    assert await files.read_file("/kept") == "before"
    assert await files.read_file("/gone/a") == "a"
    assert await files.read_file("/elsewhere") == "x"
    assert not await files.exists("/new")
    assert await files.undo(turn="no such turn") == []


async def test_a_folder_that_others_use_since_stays_when_its_turn_is_undone(at: Desk) -> None:
    files = at.workspace()
    at.origin = (None, "turn-1")
    await files.write_file("/new/a", "a")
    at.origin = (None, "turn-2")
    await files.write_file("/new/b", "b")
    await files.undo(turn="turn-1")
    assert [entry.path for entry in await files.read_dir("/new")] == ["/new/b"]


async def test_a_turn_is_not_undone_over_what_came_later(at: Desk) -> None:
    files = at.workspace()
    at.origin = (None, "turn-1")
    await files.write_file("/a", "one")
    at.origin = (None, "turn-2")
    await files.write_file("/a", "two")
    with pytest.raises(WorkspaceError, match=r"changed again after that turn \(change 2\)"):
        await files.undo(turn="turn-1")
    assert await files.read_file("/a") == "two"


async def test_undoing_can_be_undone(at: Desk) -> None:
    files = at.workspace()
    at.origin = (None, "turn-1")
    await files.write_file("/a", "one")
    at.origin = (None, None)
    last = (await files.undo(turn="turn-1"))[-1].seq
    assert not await files.exists("/a")
    await files.restore(last - 1)
    assert await files.read_file("/a") == "one"


async def test_old_changes_and_their_bytes_are_forgotten(at: Desk) -> None:
    files = at.workspace(Workspace(limits=WorkspaceLimits(history=3)))
    for n in range(10):
        await at.clock.advance(1)
        await files.write_file("/a", f"version {n}")
    assert await _hashes(at) == 10
    assert await files.sweep() == 6
    assert [change.seq for change in await files.changes()] == [8, 9, 10]
    assert await _hashes(at) == 4
    await files.restore(7)
    assert await files.read_file("/a") == "version 6"
    with refused("EINVAL"):
        await files.restore(6)


async def test_a_long_log_is_forgotten_in_pieces(at: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everthink.workspace.stored._AT_ONCE", 3)
    files = at.workspace(Workspace(limits=WorkspaceLimits(history=2)))
    for n in range(12):
        await at.clock.advance(1)
        await files.write_file("/a", f"version {n}")
    await files.sweep()
    assert [change.seq for change in await files.changes()] == [11, 12]
    await files.sweep()
    assert [change.seq for change in await files.changes()] == [11, 12]


async def test_changes_are_forgotten_after_days_and_the_last_one_never(at: Desk) -> None:
    files = at.workspace()
    await files.write_file("/a", "one")
    await at.clock.advance(20 * DAY)
    await files.write_file("/a", "two")
    await at.clock.advance(15 * DAY)
    await files.sweep()
    assert [change.seq for change in await files.changes()] == [2]
    await at.clock.advance(60 * DAY)
    await files.sweep()
    assert [change.seq for change in await files.changes()] == [2]
    await files.write_file("/a", "three")
    assert [change.seq for change in await files.changes()] == [2, 3]
    assert await files.read_file("/a") == "three"


async def test_no_more_bytes_are_kept_for_the_past_than_may_be(at: Desk) -> None:
    files = at.workspace(Workspace(limits=WorkspaceLimits(history_bytes=250)))
    for n in range(6):
        await at.clock.advance(1)
        await files.write_file("/a", f"{n}" * 100)
    await files.sweep()
    assert [change.seq for change in await files.changes()] == [5, 6]
    await files.restore(4)
    assert await files.read_file("/a") == "3" * 100


async def test_one_large_edit_can_be_undone_however_many_changes_it_was(at: Desk) -> None:
    files = at.workspace(Workspace(limits=WorkspaceLimits(history=10)))
    await files.apply([Put(f"/many/{n:03}", str(n).encode()) for n in range(700)])
    await at.clock.advance(1)
    before = (await files.changes(after=690))[-1].seq
    await files.rm("/many", recursive=True)
    assert not await files.exists("/many")
    await files.restore(before)
    assert len(await files.read_dir("/many")) == 700


async def test_the_log_is_kept_short_without_anybody_asking(at: Desk) -> None:
    files = at.workspace(Workspace(limits=WorkspaceLimits(history=50)))
    for n in range(520):
        await at.clock.advance(0.001)
        await files.write_file("/a", str(n))
    kept = await files.changes()
    assert len(kept) < 120
    assert kept[-1].seq == 520


async def test_what_somebody_else_names_is_not_swept(at: Desk) -> None:
    files = at.workspace(Workspace(limits=WorkspaceLimits(history=1)))
    seen = (await files.write_file("/picture", "seen")).hash
    assert seen is not None
    for n in range(4):
        await at.clock.advance(1)
        await files.write_file("/picture", str(n))
    await files.sweep(keep=[seen])
    kept = await at.rows("SELECT hash FROM contents WHERE agent = :agent")
    assert (seen,) in kept
    await files.sweep()
    assert (seen,) not in await at.rows("SELECT hash FROM contents WHERE agent = :agent")


async def test_files_in_memory_forget_as_well() -> None:
    files = Workspace(MemoryFiles(), limits=WorkspaceLimits(history=5))
    for n in range(30):
        await files.write_file("/a", str(n))
    kept = await files.changes()
    assert kept[-1].seq == 30
    assert len(kept) <= 10
    await files.restore(kept[0].seq)
    assert await files.read_file("/a") == str(kept[0].seq - 1)
    await files.apply([Remove("/a")])
