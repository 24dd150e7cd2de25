import pytest

pytest.register_assert_rewrite("everthink.testing.contracts.files")

from tests.support.postgres import postgres_database, postgres_server, postgres_url  # noqa: E402

__all__ = ["postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
