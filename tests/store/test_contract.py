"""Every adapter of ours passes the one contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from everthink.postgres import open_postgres
from everthink.sqlite import open_sqlite
from everthink.sqlite import search as texts
from everthink.store.port import Migration, Store
from everthink.testing.contracts.store import SearchContract, StoreContract
from tests.support.postgres import Server

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


class TestSqliteWithoutFullText(SearchContract):
    """A SQLite that was built without FTS5."""

    finds_stems = folds_accents = keeps_words_apart = False

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(texts, "has_fts5", lambda connection: False)  # type: ignore
        self.path = tmp_path / "agents.db"

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_sqlite(self.path, migrations)


class TestPostgres(StoreContract):
    folds_accents = False

    @pytest.fixture(autouse=True)
    def place(self, postgres_url: str) -> None:
        self.url = postgres_url

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_postgres(self.url, migrations)


@pytest.fixture(scope="module")
def modest_database(postgres_server: Server) -> Iterator[str]:
    """A database in which the user `everthink_modest` may not make temporary functions."""
    url = postgres_server.create_database()
    postgres_server.run(
        f"REVOKE TEMPORARY ON DATABASE {url.rpartition('/')[2]} FROM PUBLIC",
        "CREATE ROLE everthink_modest LOGIN PASSWORD 'any'",
    )
    yield url
    postgres_server.drop_database(url)
    postgres_server.run("DROP ROLE everthink_modest")


@pytest.mark.slow  # each test makes its tables; what it has to hold, TestPostgres holds in `make check`
class TestPostgresWithoutTemporaryFunctions(StoreContract):
    """A user who may make tables and nothing else."""

    folds_accents = False

    @pytest.fixture(autouse=True)
    def place(self, postgres_server: Server, modest_database: str) -> Iterator[None]:
        with postgres_server.empty(modest_database, owner="everthink_modest") as url:
            _, _, name = url.rpartition("/")
            self.url = postgres_server.at(name, user="everthink_modest")
            yield

    async def open(self, migrations: Sequence[Migration]) -> Store:
        return await open_postgres(self.url, migrations)
