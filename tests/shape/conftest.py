from collections.abc import Iterator

import pytest

from .source import modules


@pytest.fixture(scope="package", autouse=True)
def parsed() -> Iterator[None]:
    """What was parsed goes with the last test that looks at it: it is half a gigabyte."""
    yield
    modules.cache_clear()
