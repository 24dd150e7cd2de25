"""A tree goes in, and what differs comes back: plain files, and nothing that stands for something else."""

# ruff: noqa: D102 - the name of a test is its sentence

from __future__ import annotations

from dataclasses import replace

import pytest

from .case import MachineCase

__all__ = ["TreesContract"]

EVERY_BYTE = bytes(range(256))


class TreesContract(MachineCase):
    """Snapshot in, difference out."""

    async def test_files_are_read_changed_made_and_deleted(self) -> None:
        outcome = await self.run(
            "cat a.txt; echo more >> a.txt; echo new > made/b.txt; rm gone.txt; mkdir -p new/in; touch kept",
            files={"/a.txt": b"first\n", "/gone.txt": b"x", "/kept": b"kept"},
            folders=frozenset({"/made"}),
        )
        assert outcome.stdout == "first\n"
        assert outcome.changed == {"/a.txt": b"first\nmore\n", "/made/b.txt": b"new\n"}
        assert outcome.deleted == ("/gone.txt",)
        assert outcome.folders == {"/made", "/new", "/new/in"}

    async def test_every_byte_and_every_name_survive_both_ways(self) -> None:
        files = {
            "/mein Ordner/Übersicht – 1.txt": EVERY_BYTE,
            "/日本/ファイル": b"",
            "/-n": b"c",
            "/a'b\"$c": b"d",
            "/" + "long" * 60 + "/" + "name" * 60: b"e",
            "/a\nb": b"f",
        }
        outcome = await self.run('find . -type f -exec sh -c \'cp "$1" "$1.copy"\' sh {} \\;', files=files)
        assert outcome.changed == {f"{path}.copy": data for path, data in files.items()}

    async def test_a_script_that_names_its_program_may_be_run(self) -> None:
        outcome = await self.run("./tool", files={"/tool": b"#!/bin/sh\necho ran\n"})
        assert outcome.stdout == "ran\n"

    async def test_only_what_was_asked_for_comes_back(self) -> None:
        outcome = await self.run(
            "echo 2 > out/a; echo 2 > b; rm c; mkdir d out/e; rm out/f",
            files={"/out/a": b"1", "/c": b"1", "/out/f": b"1", "/outside/g": b"1"},
            collect=("/out",),
        )
        assert outcome.changed == {"/out/a": b"2\n"}
        assert outcome.deleted == ("/out/f",)
        assert outcome.folders == {"/out", "/out/e"}

    async def test_links_pipes_and_devices_do_not_come_back(self) -> None:
        outcome = await self.run(
            "ln -s /etc/hostname out; ln -s / root; ln -s nowhere lost; mkfifo pipe; mkdir d; ln -s d folder;"
            " ln a hard; ln -s a soft; ln -s ../../../../etc/passwd climbs; mknod null c 1 3;"
            " rm b; ln -s / b",
            files={"/a": b"content", "/b": b"x"},
        )
        assert outcome.changed == {"/hard": b"content", "/soft": b"content"}
        assert (outcome.deleted, outcome.folders) == (("/b",), {"/d"})

    async def test_what_was_made_unreadable_comes_back_all_the_same(self) -> None:
        outcome = await self.run("mkdir d; echo x > d/a; chmod 0 d/a d; echo y > b; chmod 0 b")
        assert outcome.changed == {"/d/a": b"x\n", "/b": b"y\n"}

    @pytest.mark.parametrize(
        ("limit", "most", "script"),
        [
            ("files", 3, "for i in 1 2 3 4; do echo x > f$i; done"),
            ("files", 3, "mkdir a b c d"),
            ("files", 1_000, "for i in $(seq 6000); do : > f$i; done"),
            ("file_bytes", 9, "echo 1234567890 > f"),
            ("file_bytes", 1_000_000, "truncate -s 2000000 f"),
            ("tree_bytes", 5_000, "for i in 1 2 3 4; do head -c 2000 /dev/zero > f$i; done"),
        ],
    )
    async def test_more_than_may_come_back_does_not_come_back_at_all(
        self, limit: str, most: int, script: str
    ) -> None:
        outcome = await self.run(script, limits=replace(self.limits, **{limit: most}))
        assert outcome.status == "failed", outcome
        assert f"({limit})" in (outcome.error or "")
        assert "Nothing was written" in (outcome.error or "")
        assert (outcome.changed, outcome.deleted) == ({}, ())

    @pytest.mark.parametrize(
        "script",
        [
            "printf x > \"$(printf 'a\\377b')\"",
            'd=$(printf "d%.0s" $(seq 200)); for i in $(seq 30); do mkdir $d; cd $d; done; echo x > f',
        ],
    )
    async def test_a_path_that_nobody_else_could_have_is_told_and_not_brought_back(self, script: str) -> None:
        outcome = await self.run(script)
        assert outcome.status == "failed"
        assert "cannot be brought back" in (outcome.error or "")

    async def test_a_thousand_files_go_in_and_come_back(self) -> None:
        files = {f"/d{number % 40}/f{number}": b"a" * number for number in range(1_000)}
        outcome = await self.run("for d in d*; do sed -i s/a/b/ $d/*; done", files=files)
        assert len(outcome.changed) == 999  # one is empty
        assert outcome.changed["/d39/f999"].startswith(b"ba")
