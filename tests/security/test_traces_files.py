"""The database is for one user: its files are private from their first moment, and links are not followed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from everthink.errors import StoreUnreadable
from everthink.open_store import open_store
from everthink.runtime.schema import MIGRATIONS

pytestmark = pytest.mark.anyio

FILES = ("everthink.db", "everthink.db-wal", "everthink.db-shm", "everthink.db.lock")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o377])
async def test_what_we_make_is_ours_alone_whatever_the_umask_is(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "app" / ".everthink"
    before = os.umask(umask)
    try:
        store = await open_store(f"sqlite:///{folder}/everthink.db", MIGRATIONS)
        await store.fetch("SELECT 1")
    finally:
        os.umask(before)
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)
    assert {name: mode(folder / name) for name in FILES} == dict.fromkeys(FILES, 0o600)
    await store.close()


@pytest.mark.slow
def test_no_file_is_open_to_others_at_any_moment(tmp_path: Path) -> None:
    """A private mode that comes a moment after the file is too late: the system calls tell."""
    code = (
        "import asyncio, os, sys\n"
        "from everthink.runtime.schema import MIGRATIONS\n"
        "from everthink.open_store import open_store\n"
        "real, made = os.open, []\n"
        "def spy(path, flags, mode=0o777, **more):\n"
        "    if flags & os.O_CREAT: made.append(oct(mode))\n"
        "    return real(path, flags, mode, **more)\n"
        "os.open = spy; os.umask(0)\n"
        "async def main():\n"
        "    store = await open_store(sys.argv[1], MIGRATIONS); await store.close()\n"
        "asyncio.run(main()); print(*made)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, f"{tmp_path}/everthink.db"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["0o600", "0o600"]  # the lock and the database, before SQLite sees it


async def test_files_that_an_older_release_made_are_tightened_and_a_folder_stays(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(0o755)
    store = await open_store(folder / "everthink.db", MIGRATIONS)
    await store.close()
    for name in ("everthink.db", "everthink.db.lock"):
        (folder / name).chmod(0o664)
    (folder / "everthink.db-wal").touch(0o666)
    (folder / "everthink.db-wal").chmod(0o666)
    store = await open_store(folder / "everthink.db", MIGRATIONS)
    await store.fetch("SELECT 1")
    assert {name: mode(folder / name) for name in FILES} == dict.fromkeys(FILES, 0o600)
    assert mode(folder) == 0o755
    await store.close()


@pytest.mark.parametrize("name", [*FILES, "everthink.db-journal"])
@pytest.mark.parametrize("dangling", [False, True])
async def test_a_planted_link_is_refused_and_its_target_is_not_touched(
    tmp_path: Path, name: str, dangling: bool
) -> None:
    folder, victim = tmp_path / ".everthink", tmp_path / "victim"
    folder.mkdir()
    if not dangling:
        victim.write_text("precious")
        victim.chmod(0o644)
    (folder / name).symlink_to(victim)
    with pytest.raises(StoreUnreadable) as refusal:
        await open_store(folder / "everthink.db", MIGRATIONS)
    assert "link" in str(refusal.value)
    assert str(folder / name) in str(refusal.value)
    if dangling:
        assert not victim.exists()
    else:
        assert (victim.read_text(), mode(victim)) == ("precious", 0o644)


@pytest.mark.parametrize("name", [*FILES, "everthink.db-journal"])
@pytest.mark.parametrize("rights", [0o600, 0o644])
async def test_a_planted_hard_link_is_refused_and_what_it_names_is_not_touched(
    tmp_path: Path, name: str, rights: int
) -> None:
    # Given a file of ours under a second name, where the database would write
    folder, victim = tmp_path / ".everthink", tmp_path / "victim"
    folder.mkdir()
    if name != "everthink.db":
        await (await open_store(folder / "everthink.db", MIGRATIONS)).close()
        (folder / name).unlink(missing_ok=True)
    victim.write_bytes(b"SQLite format 3\0precious")
    victim.chmod(rights)
    os.link(victim, folder / name)

    # When the database is opened
    with pytest.raises(StoreUnreadable) as refusal:
        await open_store(folder / "everthink.db", MIGRATIONS)

    # Then nothing is written there, and it says which file
    assert "hard link" in str(refusal.value)
    assert str(folder / name) in str(refusal.value)
    assert (victim.read_bytes(), mode(victim)) == (b"SQLite format 3\0precious", rights)


async def test_a_database_that_was_backed_up_by_a_hard_link_is_used_from_a_copy(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    store = await open_store(folder / "everthink.db", MIGRATIONS)
    await store.close()
    os.link(folder / "everthink.db", tmp_path / "backup.db")
    with pytest.raises(StoreUnreadable, match="to a new name with `cp`"):
        await open_store(folder / "everthink.db", MIGRATIONS)
    shutil.copyfile(folder / "everthink.db", folder / "copy.db")
    store = await open_store(folder / "copy.db", MIGRATIONS)
    assert await store.fetch("SELECT 1")
    await store.close()


@pytest.mark.parametrize("name", ["everthink.db", "everthink.db.lock"])
async def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(StoreUnreadable, match="it is no file"):
        await open_store(tmp_path / "everthink.db", MIGRATIONS)


async def test_a_folder_may_be_a_link_of_ours_and_not_of_somebody_elses(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    store = await open_store(tmp_path / "data" / "everthink.db", MIGRATIONS)
    await store.close()
    assert (tmp_path / "disk" / "everthink.db").exists()
    if os.geteuid() != 0:
        pytest.skip("only root can play another user")
    os.lchown(tmp_path / "data", 65534, 65534)
    with pytest.raises(StoreUnreadable, match="another user made"):
        await open_store(tmp_path / "data" / "everthink.db", MIGRATIONS)
