"""Skills that come with a Python package, installed as files or in a zip.

from_package("shop.agents", "skills") --importlib.resources--> SKILL.md, …
"""

from __future__ import annotations

import asyncio
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

from ..errors import InvalidSettings, SkillError
from ..kinds import check_options
from ..skill_values import Diagnostic, is_safe_path
from .directory import DirectoryTree
from .tree import OPTIONS, SKIPPED, Bounds, FilesTree, Looked, Tree, TreeSource

__all__ = ["from_package"]


def from_package(
    package: str, folder: str = "skills", *, id: str | None = None, bounds: Bounds | None = None
) -> TreeSource:
    """Skills in a folder of an installed package.

    skills = [skills.from_package("shop.agents")]
    """
    if not isinstance(package, str) or not is_safe_path(folder):  # pyright: ignore[reportUnnecessaryIsInstance] - users call it
        raise InvalidSettings(
            f"from_package({package!r}, {folder!r}) names no folder of a package.",
            next_step='Write from_package("the.package", "skills").',
        )
    check_options("from_package", OPTIONS, id=id, bounds=bounds)
    try:
        is_there = find_spec(package) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        raise InvalidSettings(
            f"from_package: there is no package {package!r}.",
            next_step="Install it, or name one that can be imported.",
        )
    return TreeSource(
        id or f"package:{package}/{folder}",
        _PackageTree(package, folder),
        bounds=bounds,
        refresh_interval=60.0,
    )


class _PackageTree:
    """The folder of a package: a directory, or what a zip has of it."""

    def __init__(self, package: str, folder: str) -> None:
        self._package, self._folder = package, folder
        self._tree: Tree | None = None

    async def look(self, bounds: Bounds) -> Looked:
        """Every file, without what is in it."""
        if self._tree is None:
            self._tree = await asyncio.to_thread(self._opened, bounds)
        return await self._tree.look(bounds)

    async def read(self, path: str, most: int) -> bytes | None:
        """The bytes of a file."""
        return None if self._tree is None else await self._tree.read(path, most)

    def _opened(self, bounds: Bounds) -> Tree:
        root: Traversable = resources.files(self._package)
        for part in self._folder.split("/"):
            root = root / part
        if isinstance(root, Path):
            return DirectoryTree(root)
        if not root.is_dir():
            raise SkillError(
                f"The package {self._package!r} has no folder {self._folder!r}.",
                next_step="Put it into the package's data, or name another folder.",
            )
        return _loaded(root, bounds)


def _loaded(root: Traversable, bounds: Bounds) -> FilesTree:
    """What a zip has of the folder, in memory: a file in it has no place of its own."""
    files, told = dict[str, bytes](), list[Diagnostic]()
    waiting, room, looked = [("", root)], bounds.tree_bytes, 0
    while waiting:
        path, folder = waiting.pop()
        for entry in sorted(folder.iterdir(), key=lambda one: one.name):
            below = f"{path}/{entry.name}" if path else entry.name
            looked += 1
            if entry.name in SKIPPED or not is_safe_path(below) or below.count("/") > bounds.depth + 1:
                continue
            if entry.is_dir():
                waiting.append((below, entry))
                continue
            data = entry.read_bytes()
            room -= len(data)
            if room < 0 or looked > bounds.entries:
                told.append(
                    Diagnostic(
                        "warning", None, "There is more in the package than is read; the rest is left out."
                    )
                )
                return FilesTree(files, told)
            files[below] = data
    return FilesTree(files, told)
