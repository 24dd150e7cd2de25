"""Every backend of ours passes the one contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everthink.clock import SystemClock
from everthink.postgres import open_postgres
from everthink.runtime.schema import MIGRATIONS
from everthink.sqlite import open_sqlite
from everthink.store.port import AgentStore, Store
from everthink.testing.contracts.files import FilesContract, HistoryContract
from everthink.workspace import DiskFiles, Files, MemoryFiles, MountedFiles
from everthink.workspace.objects import ObjectContents
from everthink.workspace.stored import StoredFiles

pytestmark = pytest.mark.anyio


class StoredContract(FilesContract, HistoryContract):
    database: Store

    async def open(self) -> Files:
        # Of two agents in one database, neither sees the files of the other.
        other = StoredFiles(AgentStore(self.database, "Assistant/other"), clock=SystemClock())
        if not await other.list("/"):
            from everthink.workspace import Put

            await other.apply([Put("/other/secret.txt", b"secret"), Put("/a", b"other")])
        return StoredFiles(AgentStore(self.database, "Assistant/room 1"), clock=SystemClock())


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
