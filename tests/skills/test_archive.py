"""Archives of strangers: unpacked within bounds, or refused whole."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from everthink.errors import SkillError
from everthink.skills.archive import unpacked
from everthink.skills.tree import Bounds

from .sites import tarred, zipped

SMALL = Bounds(file_bytes=1_000, tree_bytes=3_000, entries=20, depth=2, path_bytes=40)


def tar_with(change: Callable[[tarfile.TarInfo], object], data: bytes = b"") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        info = tarfile.TarInfo("a/x")
        info.size = len(data)
        change(info)
        archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zip_with(name: str, mode: int = 0, data: bytes = b"x", encrypted: bool = False) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, data)
    made = out.getvalue()
    if encrypted:
        for sign, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            at = made.index(sign) + place
            made = made[:at] + b"\1\0" + made[at + 2 :]
    return made


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_files_come_out_as_they_went_in(pack: Callable[[dict[str, str | bytes]], bytes]) -> None:
    files: dict[str, str | bytes] = {
        "a/SKILL.md": b"x",
        "a/b/c.bin": bytes(range(256)),
        "a/e.txt": b"",
        "é.md": b"y",
    }

    assert unpacked(pack(files)) == files


def test_what_tools_leave_behind_does_not() -> None:
    files: dict[str, str | bytes] = {
        "a/.git/config": "x",
        "__MACOSX/a/._x": "x",
        "a/.DS_Store": "x",
        "a/x": "x",
    }

    assert unpacked(zipped(files)) == {"a/x": b"x"}
    assert unpacked(tarred({"./a/x": "x"})) == {"a/x": b"x"}


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../../x", "a\\..\\x", "a//x", "./../x", "a/./x", "C:\\x", "a\nb", "a/\x7f"]
)
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_no_path_leads_out(pack: Callable[[dict[str, str | bytes]], bytes], name: str) -> None:
    with pytest.raises(SkillError, match="no path below its root"):
        unpacked(pack({"ok.md": "x", name: "x"}))


def link(kind: bytes) -> Callable[[tarfile.TarInfo], None]:
    def change(info: tarfile.TarInfo) -> None:
        info.type, info.linkname = kind, "/etc/passwd"

    return change


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tar_with(link(tarfile.SYMTYPE)), "link or a device"),
        (tar_with(link(tarfile.LNKTYPE)), "link or a device"),
        (tar_with(link(tarfile.CHRTYPE)), "link or a device"),
        (tar_with(link(tarfile.FIFOTYPE)), "link or a device"),
        (zip_with("x", stat.S_IFLNK | 0o777, b"/etc/passwd"), "link or a device"),
        (zip_with("x", stat.S_IFCHR | 0o600), "link or a device"),
        (zip_with("x", encrypted=True), "encrypted"),
        (b"", "neither a zip nor a tar.gz"),
        (b"PK\3\4 and so on", "damaged"),
        (b"\x1f\x8b and so on", "damaged"),
        (gzip.compress(b"no tar" * 200), "damaged"),
        (tarred({"x": b"y" * 5_000})[:-20], "damaged"),
        (zipped({"x": b"y" * 5_000})[:-30], "damaged"),
        (zipped({"X.md": "1", "x.md": "2"}), "there twice"),
        (zipped({"a": "1", "a/b": "2"}), "a file and a folder"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_an_archive_that_is_not_safe_or_not_whole_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(SkillError, match=words) as raised:
        unpacked(data)
    assert raised.value.kept == "Nothing was unpacked."


@pytest.mark.parametrize("pack", [zipped, tarred])
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"x": b"y" * 1_001}, "more than 1,000 bytes"),
        ({f"{n}": b"y" * 900 for n in range(4)}, "more than 3,000 bytes"),
        ({f"{n}": b"" for n in range(21)}, "more than 20 files"),
        ({"a/b/c/d/e/f/g/h": b"x"}, "too deep"),
    ],
)
def test_an_archive_that_is_too_large_is_refused(
    pack: Callable[[dict[str, bytes]], bytes], files: dict[str, bytes], words: str
) -> None:
    with pytest.raises(SkillError, match=words):
        unpacked(pack(files), SMALL)


def test_a_bomb_is_refused_before_it_goes_off() -> None:
    bombs = [
        gzip.compress(b"\0" * (200 << 20), compresslevel=1),
        zipped({"x": b"\0" * (64 << 20)}),
        # Sizes that it tells of itself are not believed.
        zipped({"x": b"\0" * (64 << 20)}).replace(
            (64 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little")
        ),
    ]
    for bomb in bombs:
        began = time.process_time()
        with pytest.raises(SkillError):
            unpacked(bomb)
        assert time.process_time() - began < 5


def test_archives_of_noise_are_refused_and_never_raise_otherwise() -> None:
    import random

    dice = random.Random(11)
    for good in (zipped({"a/SKILL.md": b"x" * 500}), tarred({"a/SKILL.md": b"x" * 500})):
        for _ in range(400):
            noise = bytearray(good)
            for _ in range(dice.randrange(1, 6)):
                noise[dice.randrange(2, len(noise))] = dice.randrange(256)
            try:
                unpacked(bytes(noise))
            except SkillError:
                pass


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_would_be_unpacked_as_a_whole_is_not_unpacked(method: int) -> None:
    # Given some kilobytes that become 100 MiB, in a way of packing whose bytes cannot be counted as they come
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        archive.writestr("a/SKILL.md", "---\nname: a\ndescription: A.\n---\nDo it.\n")
        archive.writestr("a/bomb", b"\0" * (100 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(SkillError, match="packed in another way than deflate"):
            unpacked(packed.getvalue())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_two_ways_to_write_one_letter_are_one_name() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a/SKILL.md", "---\nname: a\ndescription: A.\n---\nDo it.\n")
        archive.writestr("a/caf\u00e9.md", "one")
        archive.writestr("a/cafe\u0301.md", "two")
    with pytest.raises(SkillError, match="is there twice"):
        unpacked(packed.getvalue())
