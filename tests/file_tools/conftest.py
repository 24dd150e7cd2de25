"""An agent with files, whose model does what a test says."""

from __future__ import annotations

import pytest

from tests.conftest import OpenApp
from tests.file_tools.support import MakeDesk, desk_maker
from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture
def desk(open_app: OpenApp) -> MakeDesk:
    """Makes agents: `agent = await desk(workspace_bash=False)`."""
    return desk_maker(open_app)
