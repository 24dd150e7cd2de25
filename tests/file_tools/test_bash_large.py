"""`bash` over a directory with more files than a script may have: no more is read than it is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everthink.errors import ToolError
from everthink.file_tools.snapshot import MOST_ENTRIES, taken
from everthink.workspace import DiskFiles, MemoryFiles, MountedFiles, ReadOnly, Workspace, WorkspaceLimits
from tests.file_tools.support import MakeDesk

pytestmark = pytest.mark.anyio


class Counted(DiskFiles):
    """A directory that counts what is read of it."""

    reads = 0
    bytes_read = 0

    async def read(self, path: str, **how: Any) -> bytes | None:
        data = await super().read(path, **how)
        self.reads += 1
        self.bytes_read += len(data or b"")
        return data


def filled(folder: Path, count: int, data: bytes = b"x") -> Counted:
    (folder / "d").mkdir()
    for number in range(count):
        (folder / "d" / f"{number:05}").write_bytes(data)
    return Counted(folder)


async def test_of_thousands_of_files_only_those_are_read_that_a_script_is_given(tmp_path: Path) -> None:
    disk = filled(tmp_path, 3_000)
    mounted = Workspace(MountedFiles({"/": MemoryFiles({"/a": "a", "/z": "z"}), "/big": ReadOnly(disk)}))
    found = await taken(mounted, most=100, largest=1_000, in_all=1_000_000)
    assert disk.reads <= 101
    assert list(found.files)[:2] == ["/a", "/big/d/00000"]
    assert len(found.files) == 100
    assert len(found.skipped) == 2_902
    assert found.protects("/z") == "/z"
    assert found.protects_below("/big") is not None


async def test_when_no_more_bytes_fit_only_what_still_fits_is_read(tmp_path: Path) -> None:
    disk = filled(tmp_path, 500, b"x" * 10_000)
    (tmp_path / "small").write_bytes(b"y" * 10)
    found = await taken(Workspace(disk), most=1_000, largest=20_000, in_all=55_000)
    assert disk.reads <= 7
    assert disk.bytes_read <= 65_010
    assert len(found.files) == 6
    assert found.files["/small"] == b"y" * 10


async def test_a_file_that_has_grown_since_the_look_is_not_given(tmp_path: Path) -> None:
    class Growing(Counted):
        async def read(self, path: str, **how: Any) -> bytes | None:
            (tmp_path / path[1:]).write_bytes(b"x" * 5_000)
            return await super().read(path, **how)

    (tmp_path / "a").write_bytes(b"x")
    found = await taken(Workspace(Growing(tmp_path)), most=10, largest=100, in_all=1_000)
    assert (found.files, found.skipped) == ({}, ["/a"])


async def test_more_entries_than_a_workspace_may_have_are_refused_with_the_way_round(tmp_path: Path) -> None:
    assert WorkspaceLimits().entries == MOST_ENTRIES

    class Endless(MemoryFiles):
        pages = 0

        async def scan(self, prefix: str = "/", **how: Any) -> Any:
            entry = await self.stat("/a")
            assert entry is not None
            for number in range(200_000):
                self.pages += 1
                yield replace(entry, path=f"/{number:06}"), b"a"

    endless = Endless({"/a": "a"})
    with pytest.raises(ToolError, match="more than 50,000 entries") as refused:
        await taken(Workspace(endless), most=10, largest=100, in_all=1_000)
    assert "mount the folders that are needed" in str(refused.value)
    assert endless.pages < 110_000
    wide = Workspace(endless, limits=WorkspaceLimits(entries=60_000))
    with pytest.raises(ToolError, match="more than 60,000 entries"):
        await taken(wide, most=10**6, largest=100, in_all=10**9)


async def test_folders_are_given_up_to_a_number_and_the_others_are_left_alone(tmp_path: Path) -> None:
    for number in range(5_003):
        (tmp_path / f"{number:04}").mkdir()
    found = await taken(Workspace(DiskFiles(tmp_path)), most=10, largest=100, in_all=1_000)
    assert len(found.folders) == 5_000
    assert found.skipped == ["/5000", "/5001", "/5002"]
    assert found.protects("/5001/new") == "/5001"


@pytest.mark.slow
async def test_a_script_over_a_large_directory_runs_and_says_what_it_was_not_given(
    desk: MakeDesk, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    disk = filled(folder, 3_000)
    agent = await desk(workspace=Workspace(disk), workspace_bash=True)
    output = await agent.call("bash", script="ls d | wc -l; echo 1 > d/02999; echo 2 > new")
    assert output["stdout"].strip() == "1000"
    assert output["skippedFiles"][-1] == "… and 1,800 more"
    assert any("/d/02999" in error for error in output["errors"])
    assert (folder / "d" / "02999").read_bytes() == b"x"
    assert (folder / "new").read_text() == "2\n"
    assert disk.reads <= 1_010
