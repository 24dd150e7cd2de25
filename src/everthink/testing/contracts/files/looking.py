"""Looking around: lists, everything below a folder, patterns, texts, differences."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

import pytest

from ....workspace.port import MakeFolder, Put
from ....workspace.workspace import Workspace
from .case import FilesCase, refused

__all__ = ["LookingContract"]


class LookingContract(FilesCase):
    """What `list` and `scan` promise, and what is built on them."""

    async def test_a_folder_lists_folders_then_files_then_links(self) -> None:
        files = await self.workspace()
        await files.write_file("/z/deeper/x.txt", "x")
        await files.write_file("/b.txt", "x")
        await files.write_file("/a.txt", "x")
        await files.symlink("/a.txt", "/0")
        listed = await files.read_dir("/")
        assert [(entry.name, entry.kind) for entry in listed] == [
            ("z", "directory"),
            ("a.txt", "file"),
            ("b.txt", "file"),
            ("0", "symlink"),
        ]
        assert [entry.path for entry in await files.read_dir("z/")] == ["/z/deeper"]
        assert [entry.name for entry in await files.read_dir("/", limit=2, offset=1)] == ["a.txt", "b.txt"]
        await files.mkdir("/empty")
        for path in ("/empty", "/nothing", "/a.txt"):
            assert await files.read_dir(path) == []

    async def test_a_list_goes_on_behind_a_name(self) -> None:
        files = (await self.workspace()).files
        await files.apply([Put(f"/many/{n:03}.txt", b"x") for n in range(25)])
        first = await files.list("/many", limit=10)
        then = await files.list("/many", limit=10, after=first[-1].name)
        last = await files.list("/many", limit=10, after=then[-1].name)
        assert [entry.name for entry in [*first, *then, *last]] == [f"{n:03}.txt" for n in range(25)]
        assert await files.list("/many", after=last[-1].name) == []

    async def test_a_scan_gives_everything_below_a_folder_in_the_order_of_paths(self) -> None:
        files = (await self.workspace()).files
        names = ["/a/b", "/a.txt", "/a/é/x", "/a0", "/B", "/a-/x", "/ä", "/a/Z", "/日本/x"]
        await files.apply([Put(name, name.encode()) for name in names])
        found = [entry.path async for entry, _ in files.scan()]
        folders = ["/a", "/a/é", "/a-", "/日本"]
        assert found == sorted([*names, *folders], key=str.encode)
        assert [entry.path async for entry, _ in files.scan("/a")] == ["/a/Z", "/a/b", "/a/é", "/a/é/x"]
        assert [entry.path async for entry, _ in files.scan("/nothing")] == []
        assert [entry.path async for entry, _ in files.scan("/a/b")] == []

    async def test_a_scan_brings_the_bytes_of_files_that_are_small_enough(self) -> None:
        files = (await self.workspace()).files
        texts = {f"/f/{n:04}": f"text {n}".encode() for n in range(700)}
        await files.apply([Put(path, data) for path, data in texts.items()])
        await files.apply([Put("/f/zeros", b"\0" * 50), Put("/f/zlarge", b"x" * 101), MakeFolder("/f/zz")])
        found = {entry.path: data async for entry, data in files.scan("/f", contents=True, most_bytes=100)}
        assert found == {**texts, "/f/zeros": b"\0" * 50, "/f/zlarge": None, "/f/zz": None}
        assert {data async for _, data in files.scan("/f")} == {None}

    async def test_large_files_are_scanned_whole(self) -> None:
        files = (await self.workspace()).files
        large = {f"/l/{n}": bytes([n]) * 3_000_000 for n in range(4)}
        await files.apply([Put(path, data) for path, data in large.items()])
        scanned = files.scan("/l", contents=True, most_bytes=1 << 30)
        assert {entry.path: data async for entry, data in scanned} == large

    async def test_what_there_is_is_counted(self) -> None:
        files = await self.workspace()
        info = await files.get_workspace_info()
        assert (info.file_count, info.directory_count, info.total_bytes) == (0, 1, 0)
        await files.write_file("/a/b.txt", "12345")
        await files.write_file("/c.txt", "12")
        await files.symlink("/c.txt", "/d")
        info = await files.get_workspace_info()
        assert (info.file_count, info.directory_count, info.total_bytes) == (2, 2, 7)
        assert info.object_file_count == 0

    # --- patterns

    async def _glob(self, files: Workspace, pattern: str) -> list[str]:
        return [entry.path for entry in await files.glob(pattern)]

    async def test_patterns_find_paths(self) -> None:
        files = await self.workspace()
        names = [
            "/a.ts",
            "/b.js",
            "/c.md",
            "/src/a.ts",
            "/src/deep/b.ts",
            "/src/deep/x1.md",
            "/src/deep/x2.md",
        ]
        await files.apply([Put(name, b"x") for name in names])
        assert await self._glob(files, "*.ts") == ["/a.ts"]
        assert await self._glob(files, "**/*.ts") == ["/a.ts", "/src/a.ts", "/src/deep/b.ts"]
        assert await self._glob(files, "/src/**/*.ts") == ["/src/a.ts", "/src/deep/b.ts"]
        assert await self._glob(files, "?.js") == ["/b.js"]
        assert await self._glob(files, "*.{ts,js}") == ["/a.ts", "/b.js"]
        assert await self._glob(files, "{*.ts,*.js}") == ["/a.ts", "/b.js"]
        assert await self._glob(files, "*.{t*,md}") == ["/a.ts", "/c.md"]
        assert await self._glob(files, "{src/deep,src}/*.ts") == ["/src/a.ts", "/src/deep/b.ts"]
        assert await self._glob(files, "**/x[12].md") == ["/src/deep/x1.md", "/src/deep/x2.md"]
        assert await self._glob(files, "**/x[!1].md") == ["/src/deep/x2.md"]
        assert await self._glob(files, "**/x[^1].md") == ["/src/deep/x2.md"]
        assert await self._glob(files, "[a-b].*") == ["/a.ts", "/b.js"]
        assert await self._glob(files, "src/*") == ["/src/a.ts", "/src/deep"]
        assert await self._glob(files, "src/**") == [
            "/src/a.ts",
            "/src/deep",
            "/src/deep/b.ts",
            "/src/deep/x1.md",
            "/src/deep/x2.md",
        ]
        assert await self._glob(files, "/src/a.ts") == ["/src/a.ts"]
        assert await self._glob(files, "/src") == ["/src"]
        assert await self._glob(files, "*.py") == []
        assert await self._glob(files, "/nothing") == []

    async def test_patterns_never_mean_the_root(self) -> None:
        files = await self.workspace()
        await files.write_file("/a/b", "x")
        assert await self._glob(files, "*") == ["/a"]
        assert await self._glob(files, "**") == ["/a", "/a/b"]
        assert await self._glob(files, "**/*") == ["/a", "/a/b"]
        for pattern in ("/", "", "."):
            assert await self._glob(files, pattern) == []

    async def test_signs_in_names_are_themselves(self) -> None:
        files = await self.workspace()
        names = ["/100%/a.txt", "/100x/a.txt", "/a_b/x.txt", "/axb/x.txt", "/d (1)/+.txt", "/e.f/x", "/exf/x"]
        await files.apply([Put(name, b"x") for name in names])
        assert await self._glob(files, "/100%/*") == ["/100%/a.txt"]
        assert await self._glob(files, "/a_b/**/*") == ["/a_b/x.txt"]
        assert await self._glob(files, "/d (1)/*") == ["/d (1)/+.txt"]
        assert await self._glob(files, "/e.f/*") == ["/e.f/x"]
        await files.apply([Put("/[x", b"x"), Put("/{y", b"x"), Put("/]z", b"x")])
        assert await self._glob(files, "[x*") == ["/[x"]
        assert await self._glob(files, "{y*") == ["/{y"]
        assert await self._glob(files, "[]]z") == ["/]z"]

    async def test_patterns_stay_in_the_folder_they_name(self) -> None:
        files = await self.workspace()
        await files.apply([Put(f"/{name}/a.txt", b"x") for name in ("src", "src2", "src-old", "srd")])
        assert await self._glob(files, "src/**/*.txt") == ["/src/a.txt"]
        assert await self._glob(files, "src*/*.txt") == ["/src-old/a.txt", "/src/a.txt", "/src2/a.txt"]

    # --- texts

    async def test_lines_are_found(self) -> None:
        files = await self.workspace()
        await files.write_file("/a.txt", "one\nTwo\nthree two\n")
        await files.write_file("/src/b.py", "def two():\n    return 2\n")
        await files.write_file_bytes("/picture.png", b"two\0two")
        hits = await files.grep("two")
        assert [(one.path, one.line, one.text) for one in hits.found] == [
            ("/a.txt", 3, "three two"),
            ("/src/b.py", 1, "def two():"),
        ]
        assert (hits.files_searched, hits.files_skipped, hits.is_cut) == (2, 1, False)
        hits = await files.grep("^two", ignore_case=True)
        assert [one.text for one in hits.found] == ["Two"]
        hits = await files.grep("two", include="*.py")
        assert [one.path for one in hits.found] == ["/src/b.py"]
        hits = await files.grep("two", "/src")
        assert [one.path for one in hits.found] == ["/src/b.py"]
        hits = await files.grep("two", "/a.txt", context=1)
        assert [(one.before, one.after) for one in hits.found] == [(("Two",), ("",))]
        hits = await files.grep("two():", fixed=True)
        assert [one.path for one in hits.found] == ["/src/b.py"]
        assert (await files.grep(r"(?<word>t\w+) \w+")).found[0].line == 3
        with refused("ENOENT"):
            await files.grep("x", "/nothing")
        for pattern in ("(", "", "a" * 1_001):
            with refused("EINVAL"):
                await files.grep(pattern)

    async def test_a_search_stops_at_its_limit_and_says_so(self) -> None:
        files = await self.workspace()
        await files.apply([Put(f"/{n:03}.txt", b"hit\nhit\n") for n in range(30)])
        hits = await files.grep("hit", limit=7)
        assert len(hits.found) == 7
        assert hits.is_cut
        hits = await files.grep("hit", limit=60)
        assert len(hits.found) == 60
        assert not hits.is_cut

    # --- differences

    async def test_differences_are_shown(self) -> None:
        files = await self.workspace()
        before = "".join(f"line {n}\n" for n in range(1, 31))
        after = before.replace("line 3\n", "line three\n").replace("line 20\n", "") + "more\n"
        await files.write_file("/a.txt", before)
        await files.write_file("/b.txt", after)
        assert await files.diff("/a.txt", "a.txt") == ""
        assert await files.diff_content("/a.txt", before) == ""
        diff = await files.diff("/a.txt", "/b.txt")
        lines = diff.split("\n")
        assert lines[:2] == ["--- /a.txt", "+++ /b.txt"]
        assert [line for line in lines if line.startswith("@@")] == [
            "@@ -1,6 +1,6 @@",
            "@@ -17,7 +17,6 @@",
            "@@ -28,4 +27,5 @@",
        ]
        changed = [line for line in lines[2:] if line[:1] in "+-" and line]
        assert changed == ["-line 3", "+line three", "-line 20", "+more"]
        assert (await files.diff_content("/a.txt", after)).split("\n")[2:] == lines[2:]
        with refused("ENOENT"):
            await files.diff("/a.txt", "/nothing")
        with refused("ENOENT"):
            await files.diff_content("/nothing", "x")

    @pytest.mark.parametrize(("lines", "is_refused"), [(9_999, False), (10_001, True)])
    async def test_very_long_texts_are_not_compared(self, lines: int, is_refused: bool) -> None:
        files = await self.workspace()
        long = "\n".join(str(n) for n in range(lines))
        await files.write_file("/long", long)
        await files.write_file("/longer", long.replace("77\n", "x\n", 1))
        if not is_refused:
            assert "+x" in await files.diff("/long", "/longer")
            return
        with refused("EFBIG"):
            await files.diff("/long", "/longer")
        with refused("EFBIG"):
            await files.diff_content("/long", "x")
