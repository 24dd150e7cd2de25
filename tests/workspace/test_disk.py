"""A real directory: what is outside stays outside, and an edit that fails leaves no trace."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from everthink.confined import Confined
from everthink.errors import WorkspaceError
from everthink.testing.contracts.files.case import refused
from everthink.workspace import Copy, DiskFiles, MakeFolder, Move, Put, Remove, Workspace, WorkspaceLimits

pytestmark = pytest.mark.anyio

WAYS = pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "part by part"])


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("SECRET")
    (tmp_path / "root").mkdir()
    return tmp_path


def _left(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def _turning_into_a_link(folder: Path, target: Path) -> Generator[None]:
    """Meanwhile the folder becomes a link and a folder again, all the time."""
    aside, stop = folder.with_name("aside"), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for step in (
                lambda: os.rename(folder, aside),
                lambda: os.symlink(target, folder),
                lambda: os.unlink(folder),
                lambda: os.rename(aside, folder),
            ):
                with suppress(OSError):
                    step()
            shutil.rmtree(aside, ignore_errors=True)  # whoever writes has made the folder anew

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        yield
    finally:
        stop.set()
        swapping.join()


@WAYS
async def test_no_link_leads_out(outside: Path, openat2: bool) -> None:
    root = outside / "root"
    (root / "in.txt").write_text("inside")
    links = {
        "up": "../secret",
        "far_up": "../../../../../../etc/passwd",
        "absolute": str(outside / "secret"),
        "folder": str(outside),
        "magic": "/proc/self/root/etc/passwd",
        "here": "in.txt",
        "rooted": "/in.txt",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    files = Workspace(DiskFiles(root, openat2=openat2))
    for name in ("up", "far_up", "absolute", "magic"):
        assert await files.read_file(name) is None, name
    assert await files.read_file("folder/secret") is None
    assert await files.read_file("../secret") is None
    assert await files.read_dir("folder") == []
    # They lead to paths of the workspace, as every link does.
    assert await files.read_file("here") == "inside"
    assert await files.read_file("rooted") == "inside"
    with refused("ENOTDIR"):
        await files.write_file("folder/new", "x")
    await files.write_file("up", "written")
    assert (root / "secret").read_text() == "written"
    assert (outside / "secret").read_text() == "SECRET"
    hits = await files.grep("SECRET")
    assert hits.found == []


@WAYS
def test_a_folder_that_turns_into_a_link_is_never_followed(outside: Path, openat2: bool) -> None:
    root = outside / "root"
    (root / "r").mkdir()
    (root / "r" / "secret").write_text("inside")
    confined = Confined(root, openat2=openat2)
    seen: set[bytes] = set()
    with _turning_into_a_link(root / "r", outside):
        for _ in range(10_000):
            try:
                fd = confined.open("/r/secret", os.O_RDONLY)
            except OSError:
                continue
            seen.add(os.read(fd, 10))
            os.close(fd)
    confined.close()
    assert seen <= {b"inside"}


@WAYS
async def test_writes_do_not_follow_either(outside: Path, openat2: bool) -> None:
    root = outside / "root"
    (root / "r").mkdir()
    files = Workspace(DiskFiles(root, openat2=openat2))
    with _turning_into_a_link(root / "r", outside):
        for n in range(300):
            with suppress(WorkspaceError):
                await files.write_file("/r/secret", str(n))
    assert (outside / "secret").read_text() == "SECRET"
    assert _names(outside) == ["root", "secret"]


async def test_pipes_sockets_and_strange_names_are_not_there(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = outside / "root"
    os.mkfifo(root / "pipe")
    monkeypatch.chdir(root)  # the name of a socket is short
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    listening.close()
    for name in (b"back\\slash", b"line\nbreak", "cafe\u0301".encode(), b"\xff", b"fine"):
        os.close(os.open(os.path.join(os.fsencode(root), name), os.O_CREAT))
    files = Workspace(DiskFiles(root))
    assert [entry.path for entry in await files.read_dir("/")] == ["/fine"]
    assert [entry.path for entry in await files.glob("**")] == ["/fine"]
    for name in ("pipe", "socket"):
        assert await files.read_file(name) is None
        assert not await files.exists(name)


async def test_what_others_write_is_seen_at_once(outside: Path) -> None:
    root = outside / "root"
    files = Workspace(DiskFiles(root))
    (root / "a").write_text("theirs")
    assert await files.read_file("/a") == "theirs"
    await files.append_file("/a", " and ours")
    assert (root / "a").read_text() == "theirs and ours"


async def test_nothing_of_ours_is_left_behind(outside: Path) -> None:
    root = outside / "root"
    files = Workspace(DiskFiles(root))
    await files.write_file("/a/b", "1")
    await files.write_file("/a/b", "2")
    await files.cp("/a", "/c", recursive=True)
    await files.mv("/c/b", "/a/b")
    await files.rm("/c", recursive=True)
    assert _left(root) == ["a", "a/b"]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The disk is full for whatever is called `last`."""
    rename = os.rename

    def fails(source: str, path: str, **where: int) -> None:
        if path == "last":
            raise OSError(28, "No space left on device")
        rename(source, path, **where)

    monkeypatch.setattr(os, "rename", fails)
    yield
    monkeypatch.undo()


async def test_when_one_edit_fails_the_others_are_taken_back(outside: Path, full: None) -> None:
    root = outside / "root"
    files = Workspace(DiskFiles(root))
    await files.write_file("/kept/a", "before")
    await files.write_file("/moved/b", "b")
    await files.write_file("/gone/deep/c", "c")
    before = _left(root)
    with pytest.raises(WorkspaceError, match=r"EDQUOT: .*No space left.*Nothing was changed"):
        await files.apply(
            [
                Put("/kept/a", b"after"),
                Put("/new/deep/d", b"d"),
                Move("/moved", "/elsewhere"),
                Remove("/gone", recursive=True),
                Copy("/kept", "/copy"),
                MakeFolder("/folder"),
                Put("/new/last", b"x"),
            ]
        )
    assert _left(root) == before
    assert (root / "kept" / "a").read_text() == "before"
    assert (root / "gone" / "deep" / "c").read_text() == "c"


async def test_bounds_count_what_others_wrote(outside: Path) -> None:
    root = outside / "root"
    files = Workspace(DiskFiles(root), limits=WorkspaceLimits(files_bytes=100))
    await files.write_file("/a", "x" * 60)
    (root / "theirs").write_text("x" * 30)
    await files.write_file("/b", "x" * 9)
    os.unlink(root / "theirs")
    await files.write_file("/c", "x" * 31)
    with refused("EDQUOT"):
        await files.write_file("/d", "x")


async def test_a_very_large_file_is_read_in_parts(outside: Path) -> None:
    files = Workspace(DiskFiles(outside / "root", most_bytes=10))
    await files.write_file("/a", "12345678901")
    with pytest.raises(WorkspaceError, match=r"EFBIG: .*read_file_stream"):
        await files.read_file("/a")
    assert await files.read_file_bytes("/a", start=9, length=10) == b"01"


async def test_a_directory_is_made_and_can_be_let_go(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path / "not" / "yet")
    await Workspace(files).write_file("/a", "x")
    files.close()
    assert await Workspace(files).read_file("/a") == "x"


async def test_what_the_system_refuses_is_a_letter(outside: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("nothing is refused to root")
    root = outside / "root"
    root.chmod(0o500)
    with refused("EPERM"):
        await Workspace(DiskFiles(root)).write_file("/a", "x")
