"""Servers for tests of MCP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.mcp.serving import Serving


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    """Forks servers; those that still run at the end are killed."""
    process = Serving()
    yield process
    process.close()
