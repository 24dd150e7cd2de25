"""Every backend of ours passes the one contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everthink.clock import Clock, SystemClock
from everthink.errors import WorkspaceError
from everthink.object_contents import ObjectContents
from everthink.postgres import open_postgres
from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import open_sqlite
from everthink.store.port import AgentStore, Store
from everthink.testing import ManualClock
from everthink.testing.contracts.files import FilesContract, HistoryContract
from everthink.workspace import (
    DiskFiles,
    Files,
    MemoryFiles,
    MountedFiles,
    Put,
    Remove,
    WorkspaceLimits,
)
from everthink.workspace.stored import StoredFiles

pytestmark = pytest.mark.anyio


class StoredContract(FilesContract, HistoryContract):
    database: Store

    async def open(self) -> Files:
        # Of two agents in one database, neither sees the files of the other.
        other = self.files_of("Assistant/other")
        if not await other.list("/"):
            await other.apply([Put("/other/secret.txt", b"secret"), Put("/a", b"other")])
        return self.files_of("Assistant/room 1")

    def files_of(self, agent: str, clock: Clock | None = None, turn: str | None = None) -> StoredFiles:
        store = AgentStore(self.database, agent)
        return StoredFiles(store, clock=clock or SystemClock(), origin=lambda: ("call", turn))

    async def test_old_changes_and_their_bytes_are_forgotten_and_newer_ones_come_back(self) -> None:
        clock = ManualClock()
        files = self.files_of("Assistant/room 1", clock)
        for n in range(8):
            await clock.advance(1)
            await files.apply([Put("/a", str(n).encode()), Put("/same", b"same"), Remove("/same")])
        assert await files.sweep(WorkspaceLimits(history=7)) == 5
        kept = await files.changes()
        assert [change.seq for change in kept] == list(range(18, 25))
        await files.restore(17)
        assert await files.read("/a") == b"5"
        with pytest.raises(WorkspaceError, match="no way back"):
            await files.restore(16)
        await clock.advance(31 * 24 * 3600)
        await files.sweep(WorkspaceLimits())
        # What was done in the same moment as the last change stays with it.
        assert [change.seq for change in await files.changes()] == list(range(22, 27))
        assert await files.read("/a") == b"5"

    async def test_a_turn_is_undone(self) -> None:
        await self.files_of("Assistant/room 1", turn="one").apply([Put("/a/b", b"1"), Put("/c", b"1")])
        files = self.files_of("Assistant/room 1", turn="two")
        await files.apply([Put("/c", b"2"), Remove("/a", recursive=True), Put("/d/e", b"2")])
        await files.undo("two")
        assert [entry.path async for entry, _ in files.scan()] == ["/a", "/a/b", "/c"]
        assert await files.read("/c") == b"1"


# What the contract says of one backend it says of all; the index names this one.
@pytest.mark.memory_case(*range(233, 252), *range(253, 284), 600, 601, 602, 613)
class TestStoredInSqlite(StoredContract):
    @pytest.fixture(autouse=True)
    async def place(self, tmp_path: Path) -> AsyncIterator[None]:
        self.database = await open_sqlite(tmp_path / "agents.db", MIGRATIONS, synchronous="NORMAL")
        yield
        await self.database.close()


class TestStoredInPostgres(StoredContract):
    @pytest.fixture(autouse=True)
    async def place(self, postgres_url: str) -> AsyncIterator[None]:
        self.database = await open_postgres(postgres_url, MIGRATIONS)
        yield
        await self.database.close()


class TestStoredWithObjects(FilesContract, HistoryContract):
    """Everything but the smallest files is in an object store."""

    @pytest.fixture(autouse=True)
    async def place(self, tmp_path: Path) -> AsyncIterator[None]:
        from obstore.store import MemoryStore

        self.objects = MemoryStore()
        self.database = await open_sqlite(tmp_path / "agents.db", MIGRATIONS, synchronous="NORMAL")
        yield
        await self.database.close()

    async def open(self) -> Files:
        objects = ObjectContents(self.objects, prefix="files", agent="Assistant/room 1")
        store = AgentStore(self.database, "Assistant/room 1")
        return StoredFiles(store, clock=SystemClock(), objects=objects, spill_from=3)

    @pytest.mark.skip(reason="the files of this test are in objects")
    async def test_what_there_is_is_counted(self) -> None: ...


class TestMemory(FilesContract, HistoryContract):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.files = MemoryFiles()

    async def open(self) -> Files:
        return self.files


class TestDisk(FilesContract):
    keeps_media_types = knows_hashes = False

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.files = DiskFiles(tmp_path / "files")

    async def open(self) -> Files:
        return self.files


class TestDiskWithoutOpenat2(FilesContract):
    """As on an older kernel, or on another system."""

    keeps_media_types = knows_hashes = False

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.files = DiskFiles(tmp_path / "files", openat2=False)

    async def open(self) -> Files:
        return self.files


class TestMounted(FilesContract):
    """Mounts that no test uses, around what all of them use."""

    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.files = MountedFiles({"/": MemoryFiles()})

    async def open(self) -> Files:
        return self.files
