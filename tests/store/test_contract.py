"""Every adapter of ours passes the one contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.postgres import Server

from everthink.store.port import Migration, Store
from everthink.store.postgres import open_postgres
from everthink.store.sqlite import open_sqlite
from everthink.testing.contracts.store import StoreContract

pytestmark = pytest.mark.anyio


class TestSqliteFile(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "agents.db"

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_sqlite(self.path, migrations)


class TestSqliteInMemory(StoreContract):
    keeps_data = False

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_sqlite(":memory:", migrations)


class TestPostgres(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, postgres_url: str) -> None:
        self.url = postgres_url

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_postgres(self.url, migrations)


class TestPostgresWithoutTemporaryFunctions(StoreContract):
    """A user who may use the tables and nothing else."""

    @pytest.fixture(autouse=True)
    def place(self, postgres_server: Server, postgres_url: str) -> None:
        database = postgres_url.rpartition("/")[2]
        user = f"{database}_user"
        postgres_server.run(f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC", url=postgres_url)
        postgres_server.run(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'", url=postgres_url)
        postgres_server.run(f"GRANT CREATE ON SCHEMA public TO {user}", url=postgres_url)
        self.url = postgres_server.at(database, user=user, password="secret")

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_postgres(self.url, migrations)
