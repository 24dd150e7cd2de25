"""A workspace as an agent has it: defined on a class, bound, watched."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everthink.errors import InvalidSettings, WorkspaceError
from everthink.observe.workspace_events import (
    WorkspaceCp,
    WorkspaceDelete,
    WorkspaceMkdir,
    WorkspaceMv,
    WorkspaceRead,
    WorkspaceRestore,
    WorkspaceRm,
    WorkspaceWrite,
)
from everthink.testing.contracts.files.case import pieces, refused
from everthink.workspace import Change, DiskFiles, MemoryFiles, Workspace, WorkspaceLimits

from .support import Desk, desk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(tmp_path) as opened:
        yield opened


@pytest.mark.memory_case(229)
async def test_a_definition_belongs_to_nobody_until_it_is_bound(at: Desk) -> None:
    definition = Workspace()
    with pytest.raises(WorkspaceError, match=r"belongs to no agent yet.*agent\.workspace"):
        await definition.write_file("/a", "x")
    await at.workspace(definition).write_file("/a", "x")
    with pytest.raises(WorkspaceError, match="belongs to no agent yet"):
        await definition.read_file("/a")


@pytest.mark.memory_case(227, 228)
async def test_files_of_its_own_make_it_usable_at_once_and_are_shared_by_all_who_bind_it(at: Desk) -> None:
    definition = Workspace(MemoryFiles({"/seed.md": "# Seed", "raw": b"\0"}))
    assert await definition.read_file("/seed.md") == "# Seed"
    one, other = at.workspace(definition), at.workspace(definition, agent="Assistant/other")
    await one.write_file("/new", "x")
    assert await other.read_file("/new") == "x"
    assert await definition.read_file_bytes("/raw") == b"\0"


@pytest.mark.memory_case(287)
async def test_everything_is_there_after_a_new_start(at: Desk) -> None:
    await at.workspace().write_file("/notes/a.md", "kept")
    await at.workspace().symlink("a.md", "/notes/link")
    again = at.workspace()
    assert await again.read_file("/notes/link") == "kept"
    assert [change.path for change in await again.changes()] == ["/notes", "/notes/a.md", "/notes/link"]


@pytest.mark.memory_case(288)
async def test_agents_do_not_see_each_others_files(at: Desk) -> None:
    one, other = at.workspace(), at.workspace(agent="Assistant/other")
    await one.write_file("/a", "one")
    await other.write_file("/a", "other")
    await other.rm("/a")
    assert await one.read_file("/a") == "one"
    assert await other.read_dir("/") == []
    assert [change.seq for change in await other.changes()] == [1, 2]


@pytest.mark.memory_case(231)
async def test_two_workspaces_of_one_agent_keep_one_log(at: Desk) -> None:
    one, other = at.workspace(), at.workspace()
    for n in range(3):
        await one.write_file(f"/one/{n}", "x")
        await other.write_file(f"/other/{n}", "x")
    assert [change.seq for change in await one.changes()] == list(range(1, 9))
    assert (await one.get_workspace_info()) == (await other.get_workspace_info())


@pytest.mark.memory_case(285, 286)
async def test_what_is_done_is_told(at: Desk) -> None:
    files = at.workspace()
    await files.write_file("/d/a", "12345")
    await files.write_file("d/a", "123")
    await files.append_file("/d/a", "4")
    await files.write_file_stream("/d/s", pieces(b"12", b"34"))
    await files.read_file("/d/a")
    await files.read_file("/nothing")
    await files.mkdir("/e/f", recursive=True)
    await files.cp("/d", "/g", recursive=True)
    await files.mv("/d/a", "/h")
    await files.delete_file("/h")
    await files.delete_file("/h")
    await files.rm("/g", recursive=True)
    await files.restore(0)
    assert at.events == [
        WorkspaceWrite(path="/d/a", size=5, storage="row", update=False),
        WorkspaceWrite(path="/d/a", size=3, storage="row", update=True),
        WorkspaceWrite(path="/d/a", size=4, storage="row", update=True),
        WorkspaceWrite(path="/d/s", size=4, storage="row", update=False),
        WorkspaceRead(path="/d/a", storage="row"),
        WorkspaceMkdir(path="/e/f", recursive=True),
        WorkspaceCp(src="/d", dest="/g", recursive=True),
        WorkspaceMv(src="/d/a", dest="/h"),
        WorkspaceDelete(path="/h"),
        WorkspaceRm(path="/g", recursive=True),
        WorkspaceRestore(changes=4, seq=0),
    ]
    assert {event.channel for event in at.events} == {"agents:workspace"}


async def test_what_is_refused_is_not_told(at: Desk) -> None:
    seen: list[Change] = []
    files = at.workspace(Workspace(on_change=seen.append))
    with refused("ENOENT"):
        await files.rm("/nothing")
    await files.rm("/nothing", force=True)
    with refused("EISDIR"):
        await files.write_file("/", "x")
    assert (at.events, seen) == ([], [])


@pytest.mark.memory_case(284)
async def test_nobody_has_to_listen() -> None:
    files = Workspace(MemoryFiles())
    await files.write_file("/a", "x")
    await files.rm("/a")


async def test_a_listener_may_be_async_and_what_it_raises_undoes_nothing(
    at: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    async def listen(change: Change) -> None:
        seen.append(change.path)
        raise RuntimeError("no")

    files = at.workspace(Workspace(on_change=listen))
    with caplog.at_level(logging.ERROR):
        await files.write_file("/d/a", "x")
    assert seen == ["/d", "/d/a"]
    assert await files.read_file("/d/a") == "x"
    assert "on_change" in caplog.text


async def test_limits_hold_after_a_new_start(at: Desk) -> None:
    definition = Workspace(limits=WorkspaceLimits(entries=3))
    await at.workspace(definition).write_file("/a/b", "x")
    await at.workspace(definition).write_file("/c", "x")
    with refused("EDQUOT"):
        await at.workspace(definition).write_file("/d", "x")


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many"])
def test_a_limit_is_a_number_above_zero(wrong: object) -> None:
    with pytest.raises(InvalidSettings, match="entries"):
        WorkspaceLimits(entries=wrong)  # type: ignore[arg-type]


def test_only_an_agents_own_files_go_to_an_object_store() -> None:
    with pytest.raises(InvalidSettings, match="object store"):
        Workspace(MemoryFiles(), objects=object())


async def test_a_directory_remembers_nothing(tmp_path: Path) -> None:
    files = Workspace(DiskFiles(tmp_path / "d"))
    for ask in (files.changes(), files.restore(0), files.undo(turn="t")):
        with pytest.raises(WorkspaceError, match="nothing remembers"):
            await ask
    assert await files.sweep() == 0


async def test_a_search_that_would_take_for_ever_is_stopped() -> None:
    from everthink.workspace.grep import Search

    search = Search(r"(a|aa)+$", seconds=0.02)
    with pytest.raises(WorkspaceError, match=r"took longer than 0\.02 seconds"):
        search.look([("/evil", ("a" * 60 + "!").encode())])
