"""The commands in a folder of their own, and databases of both kinds for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.postgres import postgres_database, postgres_server, postgres_url

__all__ = ["postgres_database", "postgres_server", "postgres_url"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Runs commands in an empty folder, without settings of the machine."""
    monkeypatch.chdir(tmp_path)
    for name in ("EVERTHINK_STORE", "HOST", "PORT"):
        monkeypatch.delenv(name, raising=False)
    return CliRunner()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    is_file = request.param == "sqlite"
    return f"sqlite:///{tmp_path}/agents.db" if is_file else request.getfixturevalue("postgres_url")
