"""Several places as one tree."""

from __future__ import annotations

import pytest

from everthink.errors import InvalidSettings, WorkspaceError
from everthink.testing.contracts.files.case import refused
from everthink.workspace import (
    Change,
    MemoryFiles,
    MountedFiles,
    Put,
    ReadOnly,
    Workspace,
)

pytestmark = pytest.mark.anyio


async def _paths(files: Workspace, prefix: str = "/") -> list[str]:
    return [entry.path async for entry, _ in files.files.scan(prefix)]


@pytest.fixture
def skills() -> MemoryFiles:
    return MemoryFiles({"/git/SKILL.md": "# Git", "/git/run.sh": "true"})


@pytest.fixture
def files(skills: MemoryFiles) -> Workspace:
    own = MemoryFiles({"/skills/hidden": "x", "/skills.txt": "y", "/a.md": "# A"})
    deep = MemoryFiles({"/x": "deep"})
    return Workspace(MountedFiles({"/": own, "/skills": ReadOnly(skills), "/far/down": deep}))


async def test_a_mount_is_a_part_of_the_tree_and_hides_what_is_there(files: Workspace) -> None:
    assert await _paths(files) == [
        "/a.md",
        "/far",
        "/far/down",
        "/far/down/x",
        "/skills",
        "/skills.txt",
        "/skills/git",
        "/skills/git/SKILL.md",
        "/skills/git/run.sh",
    ]
    assert await _paths(files, "/skills/git") == ["/skills/git/SKILL.md", "/skills/git/run.sh"]
    assert await _paths(files, "/far") == ["/far/down", "/far/down/x"]
    assert [entry.path for entry in await files.read_dir("/")] == ["/far", "/skills", "/a.md", "/skills.txt"]
    assert [entry.path for entry in await files.read_dir("/far")] == ["/far/down"]
    assert await files.read_file("/skills/git/SKILL.md") == "# Git"
    assert await files.read_file("/skills/hidden") is None
    assert [entry.path for entry in await files.glob("**/*.md")] == ["/a.md", "/skills/git/SKILL.md"]
    assert [one.path for one in (await files.grep("#")).found] == ["/a.md", "/skills/git/SKILL.md"]


async def test_what_can_only_be_read_is_not_written(files: Workspace, skills: MemoryFiles) -> None:
    with pytest.raises(WorkspaceError, match=r"EROFS: '/skills/git/new' .*only be read"):
        await files.write_file("/skills/git/new", "x")
    for edit in (
        files.rm("/skills/git/run.sh"),
        files.mkdir("/skills/x"),
        files.mv("/skills/git/run.sh", "/skills/git/go.sh"),
        files.cp("/a.md", "/skills/a.md"),
        files.symlink("/a.md", "/skills/link"),
    ):
        with refused("EROFS"):
            await edit
    with refused("EROFS"):
        await Workspace(ReadOnly(skills)).write_file("/x", "x")
    assert len(await skills.changes()) == 3


async def test_what_is_refused_names_the_path_as_it_was_asked_for(files: Workspace) -> None:
    with pytest.raises(WorkspaceError, match=r"'/far/down/nothing'"):
        await files.rm("/far/down/nothing")


async def test_mounts_stay_where_they_are(files: Workspace) -> None:
    for path in ("/far", "/far/down", "/skills"):
        with refused("EPERM"):
            await files.rm(path, recursive=True)
        with refused("EPERM"):
            await files.mv(path, "/elsewhere")
    await files.mkdir("/far/down", recursive=True)


async def test_a_copy_crosses_mounts_and_a_move_does_not(files: Workspace) -> None:
    await files.cp("/skills/git", "/far/down/copy", recursive=True)
    assert await files.read_file("/far/down/copy/SKILL.md") == "# Git"
    await files.cp("/far", "/all", recursive=True)
    assert await files.read_file("/all/down/copy/run.sh") == "true"
    with refused("EXDEV"):
        await files.mv("/a.md", "/far/down/a.md")
    with refused("EXDEV"):
        await files.apply([Put("/b", b"x"), Put("/far/down/b", b"x")])
    assert not await files.exists("/b")
    assert await files.exists("/a.md")


async def test_links_lead_through_the_whole_tree(files: Workspace) -> None:
    await files.symlink("/skills/git/SKILL.md", "/far/down/link")
    assert await files.read_file("/far/down/link") == "# Git"
    await files.symlink("/far/down/new", "/link")
    await files.write_file("/link", "through")
    assert await files.read_file("/far/down/new") == "through"


async def test_changes_are_told_under_the_paths_of_the_whole() -> None:
    seen: list[Change] = []
    mounts = MountedFiles({"/": MemoryFiles(), "/m": MemoryFiles()})
    files = Workspace(mounts, on_change=seen.append)
    await files.write_file("/m/a/b", "x")
    await files.write_file("/c", "x")
    assert [(change.seq, change.path) for change in seen] == [(1, "/m/a"), (2, "/m/a/b"), (3, "/c")]
    mounted = await files.stat("/m")
    assert mounted is not None
    assert (mounted.path, mounted.kind) == ("/m", "directory")


def test_there_is_something_at_the_root() -> None:
    with pytest.raises(InvalidSettings, match="at '/'"):
        MountedFiles({"/skills": MemoryFiles()})
