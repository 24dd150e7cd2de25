"""Bytes that nothing names any more go, all others stay, wherever a process ends."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from everthink import Message, Think, tool
from everthink.errors import StoreFull
from everthink.store.port import Statement
from everthink.testing import ManualClock, ScriptedModel
from everthink.testing.scripted import calls, says
from everthink.workspace import Workspace, WorkspaceLimits
from everthink.workspace.port import Put
from tests.conftest import OpenApp
from tests.support.turns import home_of
from tests.workspace.support import Desk, desk
from tests.workspace.test_objects import _names as names

pytestmark = pytest.mark.anyio

FEW = WorkspaceLimits(history=1)
COUNT = 1_100
"""More than two pages of a sweep."""


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(tmp_path) as opened:
        yield opened


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def kept(at: Desk) -> set[str]:
    return {row[0] for row in await at.rows("SELECT hash FROM contents WHERE agent = :agent")}


def new(count: int = COUNT) -> set[str]:
    return {hash_of(f"new {n}") for n in range(count)}


async def replaced(at: Desk, files: Workspace) -> None:
    """So many files that had another content, of which only the log knows; the next sweep forgets that."""
    for content in ("old", "new"):
        await files.apply([Put(f"/{n:04}", f"{content} {n}".encode()) for n in range(COUNT)])
        await at.clock.advance(1)
    await files.mkdir("/later")


async def test_a_sweep_takes_what_nothing_names_and_nothing_else_page_after_page(at: Desk) -> None:
    files = at.workspace(Workspace(limits=WorkspaceLimits(history=10_000)))
    await replaced(at, files)
    assert len(await kept(at)) == 2 * COUNT
    assert await at.workspace(Workspace(limits=FEW)).sweep() == COUNT
    assert await kept(at) == new()
    assert await files.read_file("/0777") == "new 777"


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
async def test_a_sweep_that_ends_in_the_middle_loses_nothing_and_the_next_one_finishes(
    at: Desk, nth: int
) -> None:
    # Given a sweep whose process can write no more from some commit on: the log, or a page of contents
    files = at.workspace(Workspace(limits=WorkspaceLimits(history=10_000)))
    await replaced(at, files)
    at.store.fail(StoreFull("full"), nth=nth)
    with pytest.raises(StoreFull):
        await at.workspace(Workspace(limits=FEW)).sweep()

    # Then every file has its bytes
    assert new() <= await kept(at)
    # And the next sweep does what is left
    await at.workspace(Workspace(limits=FEW)).sweep()
    assert await kept(at) == new()


async def test_objects_whose_rows_went_before_a_crash_are_deleted_by_the_next_sweep(at: Desk) -> None:
    # Given a process that died after the rows of a content went, and before its object did
    bucket = MemoryStore()
    files = at.workspace(Workspace(objects=bucket, spill_from=3, limits=FEW))
    stays = await files.write_file("/stays", "a large content")
    goes = await files.write_file("/goes", "another large content")
    await at.store.apply(
        [_deleted("files", "path = '/goes'"), _deleted("contents", f"hash = '{goes.hash}'")],
        agent="Assistant/room",
    )
    await at.store.apply([_deleted("file_changes", "path = '/goes'")], agent="Assistant/room")
    assert len(names(bucket)) == 2

    # When the next one sweeps
    assert await files.sweep() == 1

    # Then that object is gone, and the other is there
    assert [name.rpartition("/")[2] for name in names(bucket)] == [stays.hash]
    assert await files.read_file("/stays") == "a large content"


def _deleted(table: str, where: str) -> Statement:
    return Statement(f"DELETE FROM {table} WHERE agent = :agent AND {where}")


async def test_an_object_that_is_being_written_is_not_taken_for_one_that_nobody_names(at: Desk) -> None:
    # Given a large file whose object is there, and whose row is not yet
    bucket = MemoryStore()
    files = at.workspace(Workspace(objects=bucket, spill_from=3))
    at.store.hold("INSERT INTO contents")
    writing = asyncio.ensure_future(files.write_file("/a", "a large content"))
    await at.store.until_waiting()
    assert len(names(bucket)) == 1

    # When a sweep comes in between
    sweeping = asyncio.ensure_future(files.sweep())
    for _ in range(20):
        await asyncio.sleep(0)
    at.store.release()
    await asyncio.gather(writing, sweeping)

    # Then the file has its bytes
    assert await files.read_file("/a") == "a large content"


async def test_what_a_running_turn_has_read_is_named_before_it_is_a_message(open_app: OpenApp) -> None:
    """The result of `read` is in the journal while the turn runs, and a message only at its end."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(100)
    left: list[bytes | None] = []
    clock = ManualClock()

    class Reader(Think):
        model = ScriptedModel(calls("read", {"path": "/p.png"}), calls("tidy", {}), says("Done."))
        workspace = Workspace(limits=FEW)

        @tool
        async def tidy(self) -> str:
            "Remove the picture, and all that is known of it."
            await self.workspace.rm("/p.png")
            for n in range(3):
                await clock.advance(1)
                await self.workspace.write_file("/a", str(n))
            await self.workspace.sweep()
            left.append(await self.workspace.read_content(hashlib.sha256(png).hexdigest()))
            return "Tidy."

    app = await open_app(Reader, clock=clock)
    home = await home_of(app, Reader)
    await home.workspace.write_file_bytes("/p.png", png)
    await home.agent.save_messages("Look")
    assert left == [png]


async def test_a_hash_that_a_person_typed_keeps_nothing_of_others(open_app: OpenApp) -> None:
    """Only contents of the same agent are looked for, by their whole hash."""

    class Plain(Think):
        model = ScriptedModel()
        workspace = Workspace(limits=FEW)

    clock = ManualClock()
    app = await open_app(Plain, clock=clock)
    ada, bob = await home_of(app, Plain, "ada"), await home_of(app, Plain, "bob")
    for home in (ada, bob):
        await home.workspace.write_file("/a", "a secret")
    text = f"see {hash_of('a secret')[:40]} and {hash_of('a secret')}"
    await bob.agent.add_messages([Message("m", "user", [{"type": "text", "text": text}])])
    for home in (ada, bob):
        for n in range(3):
            await clock.advance(1)
            await home.workspace.write_file("/a", str(n))
        await home.workspace.sweep()
    assert await ada.workspace.read_content(hash_of("a secret")) is None
    assert await bob.workspace.read_content(hash_of("a secret")) == b"a secret"
