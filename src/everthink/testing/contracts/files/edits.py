"""Files and folders one by one: written, read, appended to, removed."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import asyncio
import hashlib
from typing import Any, cast

import pytest

from ....errors import WorkspaceError
from ....workspace.port import Change, MakeFolder, Move, Put, Remove, WorkspaceLimits
from .case import FilesCase, gathered, pieces, refused, told

__all__ = ["EditsContract"]

_PICTURE = bytes(range(256)) * 4


class EditsContract(FilesCase):
    """What `read`, `stream`, `stat` and `apply` promise of single files and folders."""

    async def test_what_is_written_is_read(self) -> None:
        files = await self.workspace()
        await files.write_file("/notes/plan.md", "# Plan\n\nüber 日本 🙂\n")
        assert await files.read_file("/notes/plan.md") == "# Plan\n\nüber 日本 🙂\n"

    async def test_what_is_not_there_is_none(self) -> None:
        files = await self.workspace()
        assert await files.read_file("/nothing") is None
        assert await files.read_file_bytes("/no/thing") is None
        assert await files.read_file_stream("/nothing") is None
        assert await files.stat("/nothing") is None
        assert await files.lstat("/no/thing") is None
        with refused("ENOENT"):
            async for _ in files.files.stream("/nothing"):
                pytest.fail("there is nothing to read")

    async def test_a_folder_is_not_read(self) -> None:
        files = await self.workspace()
        await files.mkdir("/folder")
        for read in (files.read_file, files.read_file_bytes, files.read_file_stream):
            with refused("EISDIR"):
                await read("/folder")
            with refused("EISDIR"):
                await read("/")

    async def test_writing_makes_the_folders_above(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b/c.txt", "x")
        for folder in ("/a", "/a/b"):
            entry = await files.stat(folder)
            assert entry is not None
            assert (entry.kind, entry.path, entry.size) == ("directory", folder, 0)

    async def test_writing_again_replaces(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "a longer text")
        created = await files.stat("/a.txt")
        await files.write_file("/a.txt", "short")
        assert await files.read_file("/a.txt") == "short"
        entry = await files.stat("/a.txt")
        assert entry is not None
        assert created is not None
        assert entry.size == 5
        assert entry.modified_at >= created.modified_at

    async def test_the_root_and_folders_are_not_written_over(self) -> None:
        files = await self.workspace()
        await files.write_file("/folder/kept.txt", "kept")
        for path in ("/", "", "/folder", "/folder/"):
            with refused("EISDIR"):
                await files.write_file(path, "x")
            with refused("EISDIR"):
                await files.append_file(path, "x")
        assert await files.read_file("/folder/kept.txt") == "kept"

    async def test_nothing_is_written_below_a_file(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "kept")
        with refused("ENOTDIR"):
            await files.write_file("/a.txt/b.txt", "x")
        with refused("ENOTDIR"):
            await files.mkdir("/a.txt/b", recursive=True)
        assert await files.read_file("/a.txt") == "kept"
        assert await files.read_file("/a.txt/b.txt") is None

    async def test_a_media_type_is_kept_or_told_from_the_name(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.json", "{}")
        entry = await files.stat("/a.json")
        assert entry is not None
        assert entry.media_type == "application/json"
        if self.keeps_media_types:
            await files.write_file("/a.txt", "x", "text/x-notes")
            await files.append_file("/a.txt", "y")
            entry = await files.stat("/a.txt")
            assert entry is not None
            assert entry.media_type == "text/x-notes"

    async def test_a_text_stays_a_text_when_its_bytes_are_written_again(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.md", "x")
        await files.write_file_bytes("/a.md", b"y")
        entry = await files.stat("/a.md")
        assert entry is not None
        assert entry.media_type == "text/markdown"

    async def test_a_file_is_described(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b.txt", "12345")
        entry = await files.stat("/a/b.txt")
        assert entry is not None
        assert (entry.path, entry.name, entry.kind, entry.size) == ("/a/b.txt", "b.txt", "file", 5)
        assert entry.created_at.tzinfo is not None
        assert entry.created_at <= entry.modified_at
        root = await files.stat("/")
        assert root is not None
        assert (root.path, root.kind) == ("/", "directory")
        if self.knows_hashes:
            assert entry.hash == hashlib.sha256(b"12345").hexdigest()

    async def test_bytes_come_back_as_they_were(self) -> None:
        files = await self.workspace()
        for data in (_PICTURE, b"\0", b"a\0b", b"\xff\xfe", b"", b"\r\n", "ü".encode()[:1]):
            await files.write_file_bytes("/deep/in/data.bin", data)
            assert await files.read_file_bytes("/deep/in/data.bin") == data
            assert await gathered(await files.read_file_stream("/deep/in/data.bin")) == data

    async def test_text_and_bytes_are_two_views_of_a_file(self) -> None:
        files = await self.workspace()
        await files.write_file("/a", "ü")
        assert await files.read_file_bytes("/a") == b"\xc3\xbc"
        await files.write_file_bytes("/a", b"\xff\0x")
        assert await files.read_file("/a") == "�\0x"
        await files.write_file("/a", "text again")
        assert await files.read_file_bytes("/a") == b"text again"

    async def test_a_part_of_a_file_is_read(self) -> None:
        files = await self.workspace()
        text = ("é" * 700_000 + "€" * 700_000).encode()
        for data in (text, b"\0" + text):
            await files.write_file_bytes("/large", data)
            million = 1 << 20
            for start, length in (
                (0, 5),
                (million - 1, 3),
                (million - 3, 9),
                (2 * million, million + 2),
                (len(data) - 2, 10),
                (len(data), 10),
                (len(data) + 5, 10),
            ):
                part = await files.read_file_bytes("/large", start=start, length=length)
                assert part == data[start : start + length], (start, length)
            assert await files.read_file_bytes("/large", start=7) == data[7:]
            assert await files.read_file_bytes("/large") == data
            assert await gathered(await files.read_file_stream("/large")) == data

    async def test_a_stream_is_written_and_read(self) -> None:
        files = await self.workspace()
        await files.write_file_stream("/s/a.bin", pieces(b"one ", b"\0two ", b"", b"three"))
        assert await files.read_file_bytes("/s/a.bin") == b"one \0two three"
        await files.write_file_stream("/s/a.bin", pieces(b"new"))
        assert await files.read_file("/s/a.bin") == "new"
        assert await gathered(await files.read_file_stream("/s/a.bin")) == b"new"
        await files.write_file_stream("/s/empty", pieces())
        assert await files.read_file("/s/empty") == ""

    async def test_what_is_no_text_or_no_bytes_is_refused(self) -> None:
        files = await self.workspace()
        with pytest.raises(TypeError):
            await files.write_file("/a", cast("Any", b"bytes"))
        with pytest.raises(TypeError):
            await files.write_file_bytes("/a", cast("Any", "text"))
        assert not await files.exists("/a")

    async def test_appending_adds_to_the_end_or_begins(self) -> None:
        files = await self.workspace()
        await files.append_file("/log/a.txt", "one\n")
        await files.append_file("/log/a.txt", "two\n")
        assert await files.read_file("/log/a.txt") == "one\ntwo\n"
        await files.write_file_bytes("/raw", b"\xff\0")
        await files.append_file("/raw", "é")
        assert await files.read_file_bytes("/raw") == b"\xff\0\xc3\xa9"

    async def test_appends_at_once_all_arrive(self) -> None:
        files = await self.workspace()
        await asyncio.gather(*(files.append_file("/log", f"{n}\n") for n in range(30)))
        text = await files.read_file("/log")
        assert text is not None
        assert sorted(text.split(), key=int) == [str(n) for n in range(30)]

    async def test_two_workspaces_on_the_same_files_lose_nothing(self) -> None:
        one, other = await self.workspace(), await self.workspace()
        await asyncio.gather(
            *(files.append_file("/log", f"{n}\n") for n in range(15) for files in (one, other))
        )
        text = await one.read_file("/log")
        assert text is not None
        assert sorted(text.split(), key=int) == [str(n) for n in range(15) for _ in range(2)]

    async def test_a_file_is_rewritten_with_nobody_between(self) -> None:
        files = await self.workspace()
        await files.write_file("/n", "0")
        await asyncio.gather(*(files.rewrite_file("/n", lambda text: str(int(text) + 1)) for _ in range(20)))
        assert await files.read_file("/n") == "20"
        with pytest.raises(ZeroDivisionError):
            await files.rewrite_file("/n", lambda text: str(1 // 0))
        assert await files.read_file("/n") == "20"
        with refused("ENOENT"):
            await files.rewrite_file("/nothing", lambda text: text)

    async def test_what_changed_meanwhile_is_not_written_over(self) -> None:
        files = await self.workspace()
        await files.write_file("/a", "one")
        seen = hashlib.sha256(b"one").hexdigest()
        await files.apply([Put("/a", b"two", if_hash=seen)])
        with refused("ESTALE"):
            await files.apply([Put("/a", b"three", if_hash=seen)])
        with refused("ESTALE"):
            await files.apply([Put("/a", b"three", if_hash="")])
        await files.apply([Put("/b", b"new", if_hash="")])
        with refused("ESTALE"):
            await files.apply([Put("/c", b"x", if_hash=seen)])
        assert await files.read_file("/a") == "two"
        assert await files.read_file("/b") == "new"
        assert not await files.exists("/c")

    async def test_what_changed_meanwhile_is_not_removed(self) -> None:
        files = await self.workspace()
        await files.write_file("/a", "one")
        await files.write_file("/b", "one")
        seen = hashlib.sha256(b"one").hexdigest()
        await files.write_file("/a", "two")
        with refused("ESTALE"):
            await files.apply([Remove("/b", if_hash=seen), Remove("/a", if_hash=seen)])
        assert await files.read_file("/a") == "two"
        assert await files.exists("/b")
        await files.apply([Remove("/b", if_hash=seen)])
        assert not await files.exists("/b")

    async def test_writes_into_one_missing_folder_make_it_once(self) -> None:
        seen: list[Change] = []
        files = await self.workspace(on_change=seen.append)
        await asyncio.gather(*(files.write_file(f"/new/folder/{n}.txt", str(n)) for n in range(10)))
        assert len(await files.read_dir("/new/folder")) == 10
        made = [change.path for change in seen if change.kind == "directory"]
        assert sorted(made) == ["/new", "/new/folder"]

    async def test_a_file_is_deleted_once(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "x")
        assert await files.delete_file("/a.txt") is True
        assert await files.delete_file("/a.txt") is False
        assert not await files.exists("/a.txt")
        await files.mkdir("/folder")
        with refused("EISDIR"):
            await files.delete_file("/folder")
        assert await files.exists("/folder")

    async def test_a_folder_is_made(self) -> None:
        files = await self.workspace()
        await files.mkdir("/a")
        with refused("EEXIST"):
            await files.mkdir("/a")
        with refused("ENOENT"):
            await files.mkdir("/b/c")
        await files.mkdir("/b/c/d", recursive=True)
        await files.mkdir("/b/c/d", recursive=True)
        await files.mkdir("/")
        await files.mkdir("/", recursive=True)
        await files.write_file("/file", "x")
        with refused("EEXIST"):
            await files.mkdir("/file")
        with refused("EEXIST"):
            await files.mkdir("/file", recursive=True)
        assert [entry.path for entry in await files.read_dir("/")] == ["/a", "/b", "/file"]

    async def test_files_and_empty_folders_are_removed(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "x")
        await files.mkdir("/empty")
        await files.rm("/a.txt")
        await files.rm("/empty")
        assert await files.read_dir("/") == []
        with refused("ENOENT"):
            await files.rm("/a.txt")
        await files.rm("/a.txt", force=True)
        for recursive in (False, True):
            with refused("EPERM"):
                await files.rm("/", recursive=recursive)

    async def test_exists_asks_for_anything_and_file_exists_for_files(self) -> None:
        files = await self.workspace()
        await files.write_file("/folder/a.txt", "x")
        assert await files.exists("/folder")
        assert await files.exists("/folder/a.txt")
        assert await files.exists("/")
        assert not await files.exists("/other")
        assert await files.file_exists("/folder/a.txt")
        assert not await files.file_exists("/folder")
        assert not await files.file_exists("/other")

    async def test_paths_are_read_generously(self) -> None:
        files = await self.workspace()
        await files.write_file("a//b/./c/../d.txt", "x")
        for path in (
            "/a/b/d.txt",
            "a/b/d.txt",
            "/a/b/d.txt/",
            "//a///b/d.txt",
            "../../a/b/d.txt",
            "/a/./b/d.txt",
        ):
            assert await files.read_file(path) == "x", path
        await files.write_file("cafe\u0301.txt", "one spelling")
        assert await files.read_file("caf\u00e9.txt") == "one spelling"

    async def test_what_is_no_path_is_refused(self) -> None:
        files = await self.workspace()
        for path in ("/a\0b", "/a\nb", "/a\\b", "/\x7f", "/\ud800"):
            with refused("EINVAL"):
                await files.write_file(path, "x")
        with refused("ENAMETOOLONG"):
            await files.write_file("/" + "a" * 256, "x")
        with refused("ENAMETOOLONG"):
            await files.write_file("/" + "é" * 128, "x")
        with refused("ENAMETOOLONG"):
            await files.write_file("/abc" * 1_025, "x")
        with refused("ELOOP"):
            await files.mkdir("/a" * 101, recursive=True)
        await files.write_file("/" + "a" * 255, "x")
        await files.write_file("/a" * 100, "deep")
        assert await files.read_file("/a" * 100) == "deep"

    async def test_what_is_too_much_is_refused_and_says_which_bound(self) -> None:
        limits = WorkspaceLimits(file_bytes=100, files_bytes=150, entries=5)
        files = await self.workspace(limits=limits)
        with pytest.raises(WorkspaceError, match=r"EFBIG: .*file_bytes"):
            await files.write_file("/a", "x" * 101)
        with pytest.raises(WorkspaceError, match=r"EFBIG: .*file_bytes"):
            await files.write_file_stream("/a", pieces(b"x" * 60, b"x" * 60))
        await files.write_file("/a", "x" * 100)
        with pytest.raises(WorkspaceError, match=r"EDQUOT: .*files_bytes"):
            await files.write_file("/b", "x" * 51)
        with refused("EFBIG"):
            await files.append_file("/a", "x")
        await files.write_file("/b/c/d", "x" * 50)
        await files.mkdir("/e")
        with pytest.raises(WorkspaceError, match=r"EDQUOT: .*entries"):
            await files.mkdir("/f")
        await files.write_file("/a", "y" * 90)
        await files.rm("/b", recursive=True)
        await files.write_file("/f", "x" * 60)
        assert await files.read_file("/a") == "y" * 90

    async def test_edits_are_made_together_or_not_at_all(self) -> None:
        files = await self.workspace()
        await files.write_file("/kept/a.txt", "before")
        with refused("ENOENT"):
            await files.apply(
                [
                    Put("/kept/a.txt", b"after"),
                    Put("/new/b.txt", b"new"),
                    MakeFolder("/made"),
                    Remove("/nothing"),
                ]
            )
        assert await files.read_file("/kept/a.txt") == "before"
        assert [entry.path for entry in await files.read_dir("/")] == ["/kept"]
        changes = await files.apply(
            [
                Put("/kept/a.txt", b"after"),
                Put("/new/b.txt", b"new"),
                Move("/new/b.txt", "/new/c.txt"),
                Remove("/kept/a.txt"),
            ]
        )
        assert await files.read_file("/new/c.txt") == "new"
        assert not await files.exists("/kept/a.txt")
        assert not await files.exists("/new/b.txt")
        assert told(changes) == [
            ("update", "/kept/a.txt", "file"),
            ("create", "/new", "directory"),
            ("create", "/new/b.txt", "file"),
            ("delete", "/new/b.txt", "file"),
            ("create", "/new/c.txt", "file"),
            ("delete", "/kept/a.txt", "file"),
        ]
        assert [change.seq for change in changes] == list(range(changes[0].seq, changes[0].seq + 6))

    async def test_whoever_concludes_is_called_once_for_an_edit_that_is_made(self) -> None:
        files, calls = await self.workspace(), list[int]()

        async def conclude(statements: Any) -> None:
            calls.append(len(statements))

        with refused("ENOENT"):
            await files.files.apply([Remove("/nothing")], conclude=conclude)
        assert calls == []
        await files.files.apply([], conclude=conclude)
        assert len(calls) == 1

    async def test_changes_are_told_with_what_they_were(self) -> None:
        seen: list[Change] = []
        files = await self.workspace(on_change=seen.append)
        await files.write_file("/d/a.txt", "x")
        await files.write_file("/d/a.txt", "y")
        await files.append_file("/d/a.txt", "z")
        await files.mkdir("/e")
        await files.symlink("/d/a.txt", "/l")
        await files.delete_file("/d/a.txt")
        await files.rm("/d", recursive=True)
        assert told(seen) == [
            ("create", "/d", "directory"),
            ("create", "/d/a.txt", "file"),
            ("update", "/d/a.txt", "file"),
            ("update", "/d/a.txt", "file"),
            ("create", "/e", "directory"),
            ("create", "/l", "symlink"),
            ("delete", "/d/a.txt", "file"),
            ("delete", "/d", "directory"),
        ]
