"""Installing: all skills of an archive or a folder, or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from everthink import skills
from everthink.errors import InvalidSettings, SkillError, WorkspaceError
from everthink.skills import installing
from everthink.workspace import MemoryFiles, Workspace, WorkspaceLimits

from .build import BYTES, FOUR, skill, text, write
from .sites import tarred, zipped

pytestmark = pytest.mark.anyio

TWO: dict[str, str | bytes] = {
    "pack/alpha/SKILL.md": text("alpha"),
    "pack/alpha/assets/logo.png": BYTES,
    "pack/beta/SKILL.md": text("beta"),
    "pack/README.md": "Two skills.\n",
}


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


@pytest.mark.parametrize("pack", [zipped, tarred])
async def test_the_skills_of_an_archive_are_installed_under_their_names(tmp_path: Path, pack: Any) -> None:
    (tmp_path / "two.archive").write_bytes(pack(TWO))

    done = await skills.install(tmp_path / "two.archive", into=tmp_path / "skills")

    assert [(one.name, one.files, one.replaced) for one in done] == [("alpha", 2, False), ("beta", 1, False)]
    assert sorted(tree(tmp_path / "skills")) == ["alpha/SKILL.md", "alpha/assets/logo.png", "beta/SKILL.md"]
    assert (tmp_path / "skills/alpha/assets/logo.png").read_bytes() == BYTES
    source = skills.from_directory(tmp_path / "skills")
    assert [one.name for one in await source.list()] == ["alpha", "beta"]


async def test_a_folder_may_be_a_skill_or_have_some(tmp_path: Path) -> None:
    one = skill(tmp_path / "from", files=FOUR)

    await skills.install(one, into=tmp_path / "a")
    await skills.install(tmp_path / "from", into=str(tmp_path / "b"))

    assert tree(tmp_path / "a") == tree(tmp_path / "b") == tree(tmp_path / "from")


async def test_bytes_go_into_a_workspace(tmp_path: Path) -> None:
    workspace = Workspace(MemoryFiles())

    [alpha, _] = await skills.install(zipped(TWO), into=workspace)

    assert alpha.path == "/skills/alpha"
    assert await workspace.read_file_bytes("/skills/alpha/assets/logo.png") == BYTES
    with pytest.raises(SkillError, match="a skill 'alpha' in /skills already"):
        await skills.install(zipped(TWO), into=workspace)
    new = {path: content for path, content in TWO.items() if "logo" not in path}
    done = await skills.install(zipped(new), into=workspace, replace=True)
    assert [one.replaced for one in done] == [True, True]
    assert await workspace.read_file_bytes("/skills/alpha/assets/logo.png") is None


async def test_a_workspace_takes_all_or_nothing() -> None:
    workspace = Workspace(MemoryFiles(), limits=WorkspaceLimits(entries=4))

    with pytest.raises(SkillError, match="cannot be written to the workspace"):
        await skills.install(zipped(TWO), into=workspace)

    assert await workspace.read_dir("/") == []


async def test_a_skill_that_is_there_is_not_replaced_unless_that_is_said(tmp_path: Path) -> None:
    skill(tmp_path / "skills", "beta", body="Mine.", files={"mine.md": "x"})
    before = tree(tmp_path / "skills")

    with pytest.raises(SkillError, match="There is a skill 'beta'"):
        await skills.install(zipped(TWO), into=tmp_path / "skills")
    assert tree(tmp_path / "skills") == before

    done = await skills.install(zipped(TWO), into=tmp_path / "skills", replace=True)
    assert [(one.name, one.replaced) for one in done] == [("alpha", False), ("beta", True)]
    assert "beta/mine.md" not in tree(tmp_path / "skills")


async def test_what_was_replaced_comes_back_when_something_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill(tmp_path / "skills", "alpha", body="Mine.")
    skill(tmp_path / "skills", "beta", body="Mine, too.")
    before = tree(tmp_path / "skills")
    rename = os.rename

    def full(source: Any, target: Any) -> None:
        if str(source).endswith("new/beta"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(installing.os, "rename", full)

    with pytest.raises(SkillError, match="No space left on device"):
        await skills.install(zipped(TWO), into=tmp_path / "skills", replace=True)
    assert tree(tmp_path / "skills") == before
    assert sorted(os.listdir(tmp_path / "skills")) == ["alpha", "beta"]


async def test_a_skill_is_not_seen_before_all_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    root = tmp_path / "skills"
    fsync = os.fsync

    def looking(fd: int) -> None:
        seen.append({one for one in os.listdir(root) if not one.startswith(".")})
        fsync(fd)

    monkeypatch.setattr(installing.os, "fsync", looking)
    await skills.install(zipped(TWO), into=root)

    assert seen
    assert set().union(*seen) == set()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "neither|There is no skill"),
        ({"README.md": "x"}, "There is no skill: no file is called SKILL.md"),
        (
            {"a/SKILL.md": text("a"), "b/SKILL.md": "# No"},
            "in 'b' cannot be installed. Skill 'b': SKILL.md does not begin",
        ),
        ({"a/SKILL.md": text("same"), "b/SKILL.md": text("same")}, "'same' is there twice"),
        ({"a/SKILL.md": text(".hidden")}, "cannot be the name of a folder"),
        ({"a/SKILL.md": text(".."), "a/x": "x"}, "cannot be the name of a folder"),
        ({"a/SKILL.md": text("a"), "a/.env": "KEY=1"}, "left out: it is hidden"),
        ({"a/SKILL.md": text("a", body="x" * 300_000)}, "more than 262,144 bytes"),
        ({"a/SKILL.md": text("a"), "../../up": "x"}, "no path below its root"),
    ],
)
async def test_what_cannot_be_installed_changes_nothing(tmp_path: Path, files: Any, words: str) -> None:
    skill(tmp_path / "skills", "mine")
    before = tree(tmp_path / "skills")

    with pytest.raises(SkillError, match=words):
        await skills.install(zipped(files), into=tmp_path / "skills")

    assert tree(tmp_path / "skills") == before
    assert os.listdir(tmp_path / "skills") == ["mine"]


async def test_a_folder_with_a_link_is_not_installed(tmp_path: Path) -> None:
    made = skill(tmp_path / "from")
    os.symlink("/etc/passwd", made / "passwd")

    with pytest.raises(SkillError, match="is a link, and links are not followed"):
        await skills.install(made, into=tmp_path / "skills")
    assert not (tmp_path / "skills").exists()


async def test_where_nothing_is_or_nothing_can_be_put_is_said(tmp_path: Path) -> None:
    write(tmp_path, {"file": "x", "s.zip": zipped(TWO)})

    with pytest.raises(SkillError, match="cannot be read: No such file"):
        await skills.install(tmp_path / "nowhere.zip", into=tmp_path / "skills")
    with pytest.raises(SkillError, match="cannot be written"):
        await skills.install(tmp_path / "s.zip", into=tmp_path / "file")
    with pytest.raises(InvalidSettings, match=r"agent\.workspace"):
        await skills.install(tmp_path / "s.zip", into=7)


async def test_the_errors_of_a_workspace_are_kept_in_words() -> None:
    class Full(Workspace):
        async def apply(self, edits: Any) -> Any:
            raise WorkspaceError("It is full.", code="ENOSPC", next_step="Delete something.")

    with pytest.raises(SkillError, match=r"It is full\. Nothing was installed\. Delete something\."):
        await skills.install(zipped(TWO), into=Full(MemoryFiles()))
