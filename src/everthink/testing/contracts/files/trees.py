"""Whole folders: copied, moved, removed."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from ....workspace.port import Change, Files, Put
from .case import FilesCase, refused, told

__all__ = ["TreesContract"]


async def _paths(files: Files, prefix: str = "/") -> list[str]:
    return [entry.path async for entry, _ in files.scan(prefix)]


class TreesContract(FilesCase):
    """What `Copy`, `Move` and `Remove` promise."""

    async def test_a_file_is_copied(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.md", "x")
        await files.cp("/a.md", "/new/b.md")
        await files.write_file("/a.md", "changed")
        assert await files.read_file("/new/b.md") == "x"
        await files.cp("/a.md", "/new/b.md")
        assert await files.read_file("/new/b.md") == "changed"
        await files.cp("/a.md", "/a.md")
        assert await files.read_file("/a.md") == "changed"
        entry = await files.stat("/new/b.md")
        assert entry is not None
        assert entry.media_type == "text/markdown"

    async def test_a_folder_is_copied_with_all_that_is_in_it(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b/c.txt", "c")
        await files.write_file("/a/d.txt", "d")
        await files.mkdir("/a/empty")
        await files.symlink("d.txt", "/a/link")
        await files.cp("/a", "/copy/of", recursive=True)
        assert await _paths(files.files, "/copy") == [
            "/copy/of",
            "/copy/of/b",
            "/copy/of/b/c.txt",
            "/copy/of/d.txt",
            "/copy/of/empty",
            "/copy/of/link",
        ]
        assert await files.read_file("/copy/of/link") == "d"
        assert await files.readlink("/copy/of/link") == "d.txt"
        await files.write_file("/copy/of/d.txt", "changed")
        assert await files.read_file("/a/d.txt") == "d"
        with refused("EISDIR"):
            await files.cp("/a", "/other")
        assert not await files.exists("/other")

    async def test_a_folder_is_copied_into_one_that_is_there(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/x.txt", "new")
        await files.write_file("/b/x.txt", "old")
        await files.write_file("/b/y.txt", "kept")
        await files.cp("/a", "/b", recursive=True)
        assert await files.read_file("/b/x.txt") == "new"
        assert await files.read_file("/b/y.txt") == "kept"

    async def test_a_link_is_copied_as_a_link(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "x")
        await files.symlink("/a.txt", "/link")
        await files.cp("/link", "/copy")
        assert await files.readlink("/copy") == "/a.txt"

    async def test_what_is_not_there_is_neither_copied_nor_moved(self) -> None:
        files = await self.workspace()
        with refused("ENOENT"):
            await files.cp("/nothing", "/a")
        with refused("ENOENT"):
            await files.mv("/nothing", "/a")
        assert await files.read_dir("/") == []

    async def test_a_file_is_moved(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "x")
        await files.mv("/a.txt", "/new/b.txt")
        assert await files.read_file("/new/b.txt") == "x"
        assert not await files.exists("/a.txt")
        await files.write_file("/c.txt", "c")
        await files.mv("/c.txt", "/new/b.txt")
        assert await files.read_file("/new/b.txt") == "c"
        await files.symlink("/new/b.txt", "/link")
        await files.mv("/link", "/moved")
        assert await files.readlink("/moved") == "/new/b.txt"

    async def test_moving_something_onto_itself_changes_nothing(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b.txt", "x")
        await files.mv("/a/b.txt", "/a/./b.txt")
        await files.mv("/a", "/a/")
        assert await files.read_file("/a/b.txt") == "x"

    async def test_a_folder_is_moved(self) -> None:
        seen: list[Change] = []
        files = await self.workspace(on_change=seen.append)
        await files.write_file("/a/b/c.txt", "c")
        seen.clear()
        with refused("EISDIR"):
            await files.mv("/a", "/z", recursive=False)
        await files.mv("/a", "/z")
        assert await _paths(files.files) == ["/z", "/z/b", "/z/b/c.txt"]
        assert await files.read_file("/z/b/c.txt") == "c"
        assert told(seen) == [("delete", "/a", "directory"), ("create", "/z", "directory")]

    async def test_a_folder_is_not_replaced_and_does_not_replace(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/x", "x")
        await files.write_file("/b/y", "y")
        await files.write_file("/file", "file")
        for source in ("/a", "/file"):
            with refused("EISDIR"):
                await files.mv(source, "/b")
        with refused("EISDIR"):
            await files.cp("/file", "/b")
        with refused("ENOTDIR"):
            await files.mv("/a", "/file")
        with refused("EEXIST"):
            await files.cp("/a", "/file", recursive=True)
        for path in ("/", "/file/x"):
            for move in (files.mv, files.cp):
                with refused("EPERM" if path == "/" else "ENOTDIR"):
                    await move("/file" if path == "/" else "/b/y", path)
        with refused("EPERM"):
            await files.mv("/", "/b/c")
        assert await _paths(files.files) == ["/a", "/a/x", "/b", "/b/y", "/file"]

    async def test_a_folder_does_not_go_into_itself(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/x", "x")
        with refused("EINVAL"):
            await files.mv("/a", "/a/b")
        with refused("EINVAL"):
            await files.cp("/a", "/a/b/c", recursive=True)
        with refused("EINVAL"):
            await files.cp("/", "/b", recursive=True)
        await files.cp("/a", "/ab", recursive=True)
        assert await _paths(files.files) == ["/a", "/a/x", "/ab", "/ab/x"]

    async def test_very_many_are_copied_moved_and_removed_completely(self) -> None:
        files = await self.workspace()
        await files.apply([Put(f"/many/{n:04}.txt", str(n).encode()) for n in range(1_205)])
        await files.cp("/many", "/copy", recursive=True)
        await files.mv("/many", "/moved")
        assert len(await files.read_dir("/copy", limit=5_000)) == 1_205
        assert len(await files.read_dir("/moved", limit=5_000)) == 1_205
        assert len(await files.read_dir("/moved")) == 1_000
        assert await files.read_file("/moved/1204.txt") == "1204"
        assert not await files.exists("/many")
        await files.rm("/copy", recursive=True)
        info = await files.get_workspace_info()
        assert (info.file_count, info.directory_count) == (1_205, 2)

    async def test_a_folder_is_removed_with_all_that_is_in_it_and_nothing_beside(self) -> None:
        seen: list[Change] = []
        files = await self.workspace(on_change=seen.append)
        beside = ["/a0/x", "/a-/x", "/a%/x", "/a_/x", "/ab/x", "/a.txt", "/A/x", "/a%b/x"]
        await files.apply([Put(name, b"x") for name in [*beside, "/a/x", "/a/b/c/d/e"]])
        with refused("ENOTEMPTY"):
            await files.rm("/a")
        seen.clear()
        await files.rm("/a", recursive=True)
        assert told(seen) == [("delete", "/a", "directory")]
        for special in ("/a%", "/a_"):
            await files.rm(special, recursive=True)
        left = {"/a0/x", "/a-/x", "/ab/x", "/a.txt", "/A/x", "/a%b/x"}
        assert {path for path in await _paths(files.files) if path.count("/") == 2 or "." in path} == left
