"""What a backend that remembers promises besides: the log, and the way back."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import pytest

from ....errors import InvalidSettings
from ....workspace.port import Put, Remove
from ....workspace.workspace import Workspace
from .case import FilesCase, refused, told

__all__ = ["HistoryContract"]


async def _state(files: Workspace) -> dict[str, str | None]:
    found = {entry.path: entry async for entry, _ in files.files.scan()}
    return {
        path: (await files.read_file(path)) if entry.kind == "file" else entry.target
        for path, entry in found.items()
    }


class HistoryContract(FilesCase):
    """What `changes` and `restore` promise."""

    async def test_changes_are_numbered_without_a_gap(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b.txt", "x")
        await files.write_file("/a/b.txt", "y")
        await files.rm("/a", recursive=True)
        changes = await files.changes()
        assert [change.seq for change in changes] == [1, 2, 3, 4, 5]
        assert told(changes) == [
            ("create", "/a", "directory"),
            ("create", "/a/b.txt", "file"),
            ("update", "/a/b.txt", "file"),
            ("delete", "/a/b.txt", "file"),
            ("delete", "/a", "directory"),
        ]
        assert changes[1].hash == changes[2].was
        assert changes[2].hash == changes[3].was
        assert changes[3].hash is None
        assert await files.changes(after=3) == changes[3:]
        assert await files.changes(after=1, limit=2) == changes[1:3]
        assert await files.changes(after=5) == []

    async def test_a_refused_edit_leaves_no_change(self) -> None:
        files = await self.workspace()
        await files.write_file("/a", "x")
        with refused("ENOENT"):
            await files.apply([Put("/b", b"x"), Put("/a", b"y"), Remove("/nothing")])
        assert len(await files.changes()) == 1

    async def test_every_earlier_state_comes_back(self) -> None:
        files = await self.workspace()
        states: dict[int, dict[str, str | None]] = {0: {}}

        async def note() -> None:
            states[(await files.changes())[-1].seq] = await _state(files)

        await files.write_file("/a/one.txt", "one")
        await note()
        await files.write_file("/a/one.txt", "one, again")
        await note()
        await files.symlink("one.txt", "/a/link")
        await files.mkdir("/empty")
        await note()
        await files.mv("/a", "/b/c")
        await note()
        await files.rm("/empty")
        await files.write_file("/empty", "a file now")
        await note()
        await files.cp("/b", "/d", recursive=True)
        await files.rm("/b", recursive=True)
        await note()
        await files.rm("/d", recursive=True)
        await files.rm("/empty")
        await note()
        for seq, state in [*states.items(), *reversed(states.items())]:
            await files.restore(seq)
            assert await _state(files) == state, seq

    async def test_a_restore_is_a_change_that_can_be_taken_back(self) -> None:
        files = await self.workspace()
        await files.write_file("/a", "one")
        await files.write_file("/a", "two")
        changes = await files.restore(1)
        assert told(changes) == [("update", "/a", "file")]
        assert changes[0].seq == 3
        await files.restore(2)
        assert await files.read_file("/a") == "two"
        assert await files.restore(4) == []

    async def test_there_is_no_way_back_to_what_never_was(self) -> None:
        files = await self.workspace()
        await files.write_file("/a", "one")
        for seq in (2, 99):
            with refused("EINVAL"):
                await files.restore(seq)
        with pytest.raises(InvalidSettings, match="at least 0"):
            await files.restore(-1)
        assert await files.read_file("/a") == "one"
