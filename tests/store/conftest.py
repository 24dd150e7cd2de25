import pytest

pytest.register_assert_rewrite("everthink.testing.contracts.store")

from tests.support.postgres import (  # noqa: E402
    own_cluster,
    postgres_database,
    postgres_server,
    postgres_url,
)

__all__ = ["own_cluster", "postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
