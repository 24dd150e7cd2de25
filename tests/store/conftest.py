import pytest

pytest.register_assert_rewrite("everthink.testing.contracts.store")

from tests.support.postgres import own_cluster, postgres_server, postgres_url  # noqa: E402

__all__ = ["own_cluster", "postgres_server", "postgres_url"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
