"""Links: what follows them, and what does not."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from .case import FilesCase, refused

__all__ = ["LinksContract"]


class LinksContract(FilesCase):
    """What `Link` promises, and whoever meets one."""

    async def test_a_link_leads_to_a_file(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b.txt", "content")
        await files.symlink("/a/b.txt", "/deep/in/link")
        assert await files.readlink("/deep/in/link") == "/a/b.txt"
        assert await files.read_file("/deep/in/link") == "content"
        followed, itself = await files.stat("/deep/in/link"), await files.lstat("/deep/in/link")
        assert followed is not None
        assert itself is not None
        assert (followed.path, followed.kind, followed.size) == ("/a/b.txt", "file", 7)
        assert (itself.path, itself.kind, itself.target) == ("/deep/in/link", "symlink", "/a/b.txt")

    async def test_a_relative_target_begins_beside_the_link_and_links_lead_to_links(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b.txt", "content")
        await files.symlink("../a/b.txt", "/c/one")
        await files.symlink("one", "/c/two")
        await files.symlink("/c/two", "/three")
        await files.symlink("../../../../a/b.txt", "/c/up")
        assert await files.readlink("/c/one") == "../a/b.txt"
        for path in ("/c/one", "/c/two", "/three", "/c/up"):
            assert await files.read_file(path) == "content", path

    async def test_only_links_have_a_target(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "x")
        with refused("EINVAL"):
            await files.readlink("/a.txt")
        with refused("EINVAL"):
            await files.readlink("/")
        with refused("ENOENT"):
            await files.readlink("/nothing")

    async def test_a_link_takes_nothings_place(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "x")
        await files.mkdir("/folder")
        await files.symlink("/a.txt", "/link")
        for path in ("/a.txt", "/folder", "/link"):
            with refused("EEXIST"):
                await files.symlink("/other", path)
        with refused("EPERM"):
            await files.symlink("/a.txt", "/")
        assert await files.read_file("/link") == "x"

    async def test_a_target_has_some_length_and_not_too_much(self) -> None:
        files = await self.workspace()
        for target in ("", "   ", "\t"):
            with refused("EINVAL"):
                await files.symlink(target, "/link")
        with refused("ENAMETOOLONG"):
            await files.symlink("/a" * 2_049, "/link")
        assert not await files.exists("/link")

    async def test_writing_through_a_link_changes_what_it_leads_to(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "x")
        await files.symlink("a.txt", "/link")
        await files.write_file("/link", "text")
        assert await files.read_file("/a.txt") == "text"
        await files.write_file_bytes("/link", b"\0bytes")
        assert await files.read_file_bytes("/a.txt") == b"\0bytes"
        await files.append_file("/link", "!")
        assert await files.read_file_bytes("/a.txt") == b"\0bytes!"
        assert await files.readlink("/link") == "a.txt"

    async def test_writing_through_a_link_to_nothing_makes_the_file(self) -> None:
        files = await self.workspace()
        await files.symlink("/not/yet.txt", "/link")
        assert await files.exists("/link")
        assert await files.stat("/link") is None
        assert not await files.file_exists("/link")
        assert await files.read_file("/link") is None
        await files.write_file("/link", "now")
        assert await files.read_file("/not/yet.txt") == "now"

    async def test_removing_a_link_keeps_what_it_leads_to(self) -> None:
        files = await self.workspace()
        await files.write_file("/folder/a.txt", "x")
        for path, target in (("/one", "/folder/a.txt"), ("/two", "/folder"), ("/three", "/nothing")):
            await files.symlink(target, path)
            assert await files.exists(path)
            assert await files.delete_file(path)
            assert not await files.exists(path)
            await files.symlink(target, path)
            await files.rm(path, recursive=True)
            assert not await files.exists(path)
        assert await files.read_file("/folder/a.txt") == "x"

    async def test_file_exists_follows(self) -> None:
        files = await self.workspace()
        await files.write_file("/folder/a.txt", "x")
        await files.symlink("/folder/a.txt", "/to_file")
        await files.symlink("/folder", "/to_folder")
        assert await files.file_exists("/to_file")
        assert not await files.file_exists("/to_folder")
        with refused("EISDIR"):
            await files.read_file("/to_folder")
        with refused("EISDIR"):
            await files.write_file("/to_folder", "x")

    async def test_links_that_lead_to_themselves_are_refused(self) -> None:
        files = await self.workspace()
        await files.symlink("/b", "/a")
        await files.symlink("/a", "/b")
        await files.symlink("self", "/self")
        for path in ("/a", "/b", "/self"):
            with refused("ELOOP"):
                await files.read_file(path)
            with refused("ELOOP"):
                await files.stat(path)
            with refused("ELOOP"):
                await files.write_file(path, "x")
            assert await files.exists(path)
        await files.rm("/a")

    async def test_a_chain_of_forty_is_followed_and_a_longer_one_is_not(self) -> None:
        files = await self.workspace()
        await files.write_file("/0", "end")
        for n in range(1, 42):
            await files.symlink(f"/{n - 1}", f"/{n}")
        assert await files.read_file("/40") == "end"
        with refused("ELOOP"):
            await files.read_file("/41")

    async def test_nothing_is_found_or_written_below_a_link_to_a_folder(self) -> None:
        files = await self.workspace()
        await files.write_file("/folder/a.txt", "x")
        await files.symlink("/folder", "/link")
        assert await files.read_file("/link/a.txt") is None
        assert await files.stat("/link/a.txt") is None
        assert await files.read_dir("/link") == []
        with refused("ENOTDIR"):
            await files.write_file("/link/b.txt", "x")
        with refused("ENOTDIR"):
            await files.mkdir("/link/b", recursive=True)
        with refused("ENOENT"):
            await files.rm("/link/a.txt")
        assert [entry.name for entry in await files.read_dir("/folder")] == ["a.txt"]
