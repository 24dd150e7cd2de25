import pytest

from everthink.sqlite import store
from everthink.sqlite.database import open_database

pytest.register_assert_rewrite("everthink.testing.contracts.store")

# These tests make tables of their own, and look at how tables are made.
from tests.support.postgres import empty_postgres_url as postgres_url  # noqa: E402
from tests.support.postgres import own_cluster, postgres_database, postgres_server  # noqa: E402

__all__ = ["own_cluster", "postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each database has its tables made: nothing is copied here."""
    monkeypatch.setattr(store, "open_database", open_database)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
