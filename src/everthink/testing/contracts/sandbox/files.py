"""A tree goes in, and what differs comes back."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from dataclasses import replace

from .case import SandboxCase

__all__ = ["FilesContract"]

EVERY_BYTE = bytes(range(256))


class FilesContract(SandboxCase):
    """Snapshot in, difference out."""

    async def test_files_are_read_changed_made_and_deleted(self) -> None:
        outcome = await self.run(
            "cat /a.txt; echo more >> /a.txt; echo new > /made/b.txt; rm /gone.txt",
            files={"/a.txt": b"first\n", "/gone.txt": b"x", "/kept.txt": b"kept"},
            folders=frozenset({"/made"}),
        )
        assert outcome.stdout == "first\n"
        assert outcome.changed == {"/a.txt": b"first\nmore\n", "/made/b.txt": b"new\n"}
        assert outcome.deleted == ("/gone.txt",)
        assert outcome.folders == {"/made"}

    async def test_a_file_that_was_only_touched_has_not_changed(self) -> None:
        outcome = await self.run("touch /a; cp /a /b; mv /b /a", files={"/a": b"same"})
        assert (outcome.status, outcome.changed, outcome.deleted) == ("done", {}, ())

    async def test_folders_come_and_go(self) -> None:
        outcome = await self.run(
            "mkdir -p /new/inner; rmdir /empty; rm -r /full",
            files={"/full/deep/a": b"1", "/stays/b": b"2"},
            folders=frozenset({"/empty", "/other"}),
        )
        assert outcome.folders == {"/new", "/new/inner", "/stays", "/other"}
        assert outcome.deleted == ("/full/deep/a",)

    async def test_every_byte_survives_both_ways(self) -> None:
        outcome = await self.run("cat /in > /out; wc -c < /in", files={"/in": EVERY_BYTE})
        assert outcome.changed == {"/out": EVERY_BYTE}
        assert outcome.stdout.strip() == "256"

    async def test_names_may_have_blanks_and_letters_of_any_alphabet(self) -> None:
        files = {
            "/mein Ordner/Übersicht – 1.txt": b"a",
            "/日本/ファイル": b"b",
            "/-n": b"c",
            "/a'b\"$c": b"d",
        }
        outcome = await self.run('find / -type f | while read -r f; do echo x >> "$f"; done', files=files)
        assert {path: outcome.changed.get(path) for path in files} == {
            path: data + b"x\n" for path, data in files.items()
        }

    async def test_a_link_to_a_file_comes_back_as_its_copy(self) -> None:
        outcome = await self.run(
            "ln -s /a /by-name; ln -s nothing /nowhere; mkdir /d; ln -s /d /folder", files={"/a": b"x"}
        )
        assert outcome.changed == {"/by-name": b"x"}

    async def test_what_the_shell_brings_along_is_not_the_scripts(self) -> None:
        outcome = await self.run("echo x > /tmp/x; echo y > /dev/null; mktemp; ls /tmp")
        assert (outcome.status, outcome.changed, outcome.deleted) == ("done", {}, ())
        assert outcome.folders == frozenset()

    async def test_folders_of_the_job_are_its_own_whatever_they_are_called(self) -> None:
        outcome = await self.run(
            "echo 2 > /tmp/a; rm /home/b", files={"/tmp/a": b"1", "/home/b": b"1", "/dev/c": b"1"}
        )
        assert outcome.changed == {"/tmp/a": b"2\n"}
        assert outcome.deleted == ("/home/b",)
        assert outcome.folders == {"/tmp", "/home", "/dev"}

    async def test_only_what_was_asked_for_comes_back(self) -> None:
        outcome = await self.run(
            "echo 2 > /out/a; echo 2 > /b; rm /c; mkdir /d /out/e; rm /out/f",
            files={"/out/a": b"1", "/c": b"1", "/out/f": b"1", "/outside/g": b"1"},
            collect=("/out",),
        )
        assert outcome.changed == {"/out/a": b"2\n"}
        assert outcome.deleted == ("/out/f",)
        assert outcome.folders == {"/out", "/out/e"}

    async def test_a_thousand_files_go_in_and_come_back(self) -> None:
        files = {f"/d{number % 40}/f{number}": b"a" * number for number in range(1_000)}
        outcome = await self.run("for d in /d*; do sed -i s/a/b/ $d/*; done", files=files)
        assert len(outcome.changed) == 999  # one is empty
        assert outcome.changed["/d39/f999"].startswith(b"ba")

    async def test_a_job_with_too_much_in_it_is_refused_with_the_limit_in_the_words(self) -> None:
        files = {f"/{number}": b"12345" for number in range(4)}
        for limit, most in (("files", 3), ("file_bytes", 4), ("tree_bytes", 19)):
            outcome = await self.run("echo ran", files=files, limits=replace(self.limits, **{limit: most}))
            assert (outcome.status, outcome.stdout) == ("failed", "")
            assert f"({limit})" in (outcome.error or "")

    async def test_paths_that_lead_anywhere_else_are_refused(self) -> None:
        for path in ("relative", "/a/../b", "//a", "/a/", "/", "/a/./b", "/nul\0"):
            outcome = await self.run("echo ran", files={path: b""})
            assert (outcome.status, outcome.stdout) == ("failed", ""), path

    async def test_a_path_is_not_both_a_file_and_a_folder(self) -> None:
        outcome = await self.run("echo ran", files={"/a": b"", "/a/b": b""})
        assert (outcome.status, outcome.stdout) == ("failed", "")
