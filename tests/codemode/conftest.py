"""An agent whose model runs code."""

from __future__ import annotations

import pytest

from tests.codemode.support import MakeCoder, coder_maker
from tests.conftest import OpenApp
from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture
def coder(open_app: OpenApp) -> MakeCoder:
    """Makes agents: `agent = await coder(lookup)`."""
    return coder_maker(open_app)
