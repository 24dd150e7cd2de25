"""Sandboxes that the tests of a file share: to start a child takes longer than most of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from everthink.engines.sandboxes import Sandboxes
from everthink.extensions import ExtensionManager
from tests.extensions.sources import managing


@pytest.fixture
async def engines() -> AsyncIterator[Sandboxes]:
    """What runs extensions."""
    pytest.importorskip("quickjs_rs")
    pytest.importorskip("pydantic_monty")
    opened = Sandboxes()
    yield opened
    await opened.close()


@pytest.fixture
async def manager(engines: Sandboxes) -> AsyncIterator[ExtensionManager]:
    """A manager without an agent."""
    async with managing(engines) as made:
        yield made
