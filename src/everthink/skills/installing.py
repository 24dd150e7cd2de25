"""Put skills of an archive or a folder where agents find them: all of them, or none.

    install(zip, tar.gz or folder) --look through--> Plan --into a directory or a workspace--> Installed

Nothing of it is run, and nothing is written before all of it was looked through. A directory shows a skill
when all of its files are there, never before; what was replaced comes back when something fails.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidSettings, SkillError, WorkspaceError
from ..kinds import TEXT, YES_NO, check_options
from ..settings import shown
from ..skill_values import SKILL_FILE, Diagnostic, is_safe_path
from ..words import said
from .archive import LARGEST, unpacked
from .directory import DirectoryTree
from .tree import OPTIONS, Bounds, FilesTree, index_of

__all__ = ["Installed", "install", "skills_in"]

FOLDER = "/skills"


@dataclass(frozen=True, slots=True)
class Installed:
    """A skill that was installed."""

    name: str
    path: str
    """Its folder."""
    files: int
    bytes: int
    replaced: bool
    """There was one of that name."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What somebody may want to put right."""


async def install(
    source: str | os.PathLike[str] | bytes,
    *,
    into: Any,
    folder: str = FOLDER,
    replace: bool = False,
    bounds: Bounds | None = None,
) -> tuple[Installed, ...]:
    """Install the skills of a zip, a tar.gz (a path, or its bytes) or a folder.

        await skills.install("release-notes.zip", into="skills")
        await skills.install(uploaded, into=agent.workspace)

    `into` is a directory, or a workspace, where they are put below `folder`. A skill that is there already
    is refused unless `replace` is given. Raises `SkillError`, and then nothing has changed.
    """
    options = {**OPTIONS, "folder": TEXT, "replace": YES_NO}
    check_options("install", options, folder=folder, replace=replace, bounds=bounds)
    bounds = bounds or Bounds()
    files = await _files(source, bounds)
    plan = await _planned(files, bounds)
    if isinstance(into, str | os.PathLike):
        return await asyncio.to_thread(_into_directory, Path(os.fspath(into)), plan, replace)  # pyright: ignore[reportUnknownArgumentType]
    if callable(getattr(into, "apply", None)) and callable(getattr(into, "exists", None)):
        return await _into_workspace(into, f"/{folder.strip('/')}", plan, replace)
    raise InvalidSettings(
        f"install: into is {shown(into)}.", next_step="Give the path of a directory, or agent.workspace."
    )


# --- what is to be installed


@dataclass(frozen=True, slots=True)
class _Planned:
    name: str
    files: Mapping[str, bytes]
    diagnostics: tuple[Diagnostic, ...]


async def _files(source: str | os.PathLike[str] | bytes, bounds: Bounds) -> Mapping[str, bytes]:
    if isinstance(source, bytes | bytearray):
        return await asyncio.to_thread(unpacked, bytes(source), bounds)
    path = Path(os.fspath(source))
    try:
        data = await asyncio.to_thread(_packed, path)
    except OSError as error:
        raise SkillError(
            f"{str(path)!r} cannot be read: {error.strerror or type(error).__name__}.",
            kept="Nothing was installed.",
            next_step="Name a zip, a tar.gz or a folder.",
        ) from error
    return await _folder(path, bounds) if data is None else await asyncio.to_thread(unpacked, data, bounds)


def _packed(path: Path) -> bytes | None:
    """The bytes of an archive; `None` for a folder."""
    if path.is_dir():
        return None
    if path.stat().st_size > LARGEST:
        raise SkillError(f"{str(path)!r} has more than {LARGEST:,} bytes.", kept="Nothing was installed.")
    return path.read_bytes()


async def _folder(path: Path, bounds: Bounds) -> Mapping[str, bytes]:
    tree = DirectoryTree(path)
    looked = await tree.look(bounds)
    files, size = dict[str, bytes](), 0
    for file in looked.files:
        data = await tree.read(file.path, bounds.file_bytes)
        size += len(data or b"")
        if data is None or size > bounds.tree_bytes:
            raise SkillError(
                f"{said(file.path, 200)!r} is more than is installed: {bounds.file_bytes:,} bytes a file,"
                f" {bounds.tree_bytes:,} in all.",
                kept="Nothing was installed.",
            )
        files[file.path] = data
    if looked.diagnostics:
        raise SkillError(
            f"Not all of the folder can be installed. {looked.diagnostics[0].what}",
            kept="Nothing was installed.",
            next_step="Take that out, or put it right.",
        )
    if not any(one.rpartition("/")[2] == SKILL_FILE for one in files):
        raise _no_skills()
    return {f"{_name_of(path)}/{one}": data for one, data in files.items()} if SKILL_FILE in files else files


def _name_of(path: Path) -> str:
    return os.path.basename(os.path.abspath(path))


def skills_in(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """The skills among files, by the folder of each: what is below a `SKILL.md`, and below no other one."""
    roots = sorted(path.rpartition("/")[0] for path in files if path.rpartition("/")[2] == SKILL_FILE)
    outermost: list[str] = []
    for root in roots:
        if not any(above == "" or root == above or root.startswith(f"{above}/") for above in outermost):
            outermost.append(root)
    return {
        root: {
            path[len(root) + 1 if root else 0 :]: data
            for path, data in files.items()
            if not root or path.startswith(f"{root}/")
        }
        for root in outermost
    }


async def _planned(files: Mapping[str, bytes], bounds: Bounds) -> list[_Planned]:
    found = skills_in(files)
    if not found:
        raise _no_skills()
    planned: dict[str, _Planned] = {}
    for root, below in found.items():
        label = root.rpartition("/")[2] or "skill"
        index = await index_of(FilesTree({f"{label}/{path}": data for path, data in below.items()}), bounds)
        refused = [one for one in index.diagnostics if one.level == "error" or "is left out" in one.what]
        if refused or not index.skills:
            reason = str(refused[0]) if refused else "There is no skill in it."
            raise SkillError(
                f"The skill in {label!r} cannot be installed. {reason}", kept="Nothing was installed."
            )
        [skill] = index.skills.values()
        if not is_safe_path(skill.name) or skill.name.startswith("."):
            raise SkillError(
                f"{said(skill.name, 60)!r} cannot be the name of a folder.", kept="Nothing was installed."
            )
        if skill.name in planned:
            raise SkillError(
                f"The skill {skill.name!r} is there twice.",
                kept="Nothing was installed.",
                next_step="Take one of them out.",
            )
        kept = {SKILL_FILE: below[SKILL_FILE]} | {one.path: below[one.path] for one in skill.resources}
        told = [one for one in index.diagnostics if root or "is not that of its folder" not in one.what]
        planned[skill.name] = _Planned(skill.name, kept, tuple(told))
    return list(planned.values())


def _no_skills() -> SkillError:
    return SkillError(
        f"There is no skill: no file is called {SKILL_FILE}.",
        kept="Nothing was installed.",
        next_step=f"A skill is a folder with a {SKILL_FILE}.",
    )


def _there(name: str, where: str) -> SkillError:
    return SkillError(
        f"There is a skill {name!r} in {where} already.",
        kept="Nothing was installed.",
        next_step="Remove it, or replace it: replace=True, or --replace on the command line.",
    )


def _installed(plan: _Planned, path: str, replaced: bool) -> Installed:
    size = sum(map(len, plan.files.values()))
    return Installed(plan.name, path, len(plan.files), size, replaced, plan.diagnostics)


# --- into a directory


def _into_directory(root: Path, plans: Sequence[_Planned], replace: bool) -> tuple[Installed, ...]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        for plan in plans:
            if os.path.lexists(root / plan.name) and not replace:
                raise _there(plan.name, str(root))
        # A name with a dot: who looks for skills meanwhile does not look there.
        with tempfile.TemporaryDirectory(prefix=".installing-", dir=root) as made:
            for plan in plans:
                _written(Path(made) / "new" / plan.name, plan.files)
            (Path(made) / "old").mkdir()
            return tuple(_exchanged(root, Path(made), plans))
    except OSError as error:
        raise SkillError(
            f"The skills cannot be written to {str(root)!r}: {error.strerror or type(error).__name__}.",
            kept="What was there is as it was.",
            next_step="Let this process write there.",
        ) from error


def _written(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def _exchanged(root: Path, made: Path, plans: Sequence[_Planned]) -> list[Installed]:
    done: list[tuple[_Planned, bool]] = []
    try:
        for plan in plans:
            was_there = os.path.lexists(root / plan.name)
            if was_there:
                os.rename(root / plan.name, made / "old" / plan.name)
            done.append((plan, was_there))
            os.rename(made / "new" / plan.name, root / plan.name)
    except BaseException:
        for plan, was_there in reversed(done):
            shutil.rmtree(root / plan.name, ignore_errors=True)
            if was_there:
                os.rename(made / "old" / plan.name, root / plan.name)
        raise
    return [_installed(plan, str(root / plan.name), was_there) for plan, was_there in done]


# --- into a workspace


async def _into_workspace(
    workspace: Any, folder: str, plans: Sequence[_Planned], replace: bool
) -> tuple[Installed, ...]:
    from ..workspace.port import Put, Remove  # loaded for those who install into one

    edits, replaced = list[Any](), set[str]()
    try:
        for plan in plans:
            path = f"{folder}/{plan.name}"
            if await workspace.exists(path):
                if not replace:
                    raise _there(plan.name, folder)
                replaced.add(plan.name)
                edits.append(Remove(path, recursive=True))
            edits += [Put(f"{path}/{below}", data) for below, data in plan.files.items()]
        await workspace.apply(edits)
    except WorkspaceError as error:
        raise SkillError(
            f"The skills cannot be written to the workspace. {error.what}",
            kept="Nothing was installed.",
            next_step=error.next_step,
        ) from error
    return tuple(_installed(plan, f"{folder}/{plan.name}", plan.name in replaced) for plan in plans)
