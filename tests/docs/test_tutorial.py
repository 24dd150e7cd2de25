"""docs/tutorial.md: its last steps, as somebody would type them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.commands import PATIENCE, Command
from .pages import ROOT, written

PAGE = "tutorial.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(PAGE, tmp_path)


def chat(folder: Path, address: str, text: str, *words: str) -> str:
    """What `everthink chat` prints for one message."""
    whom = f"{address}/agents/travel/ada"
    command = [sys.executable, "-m", "everthink.cli", "chat", whom, "-m", text, *words]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_agent_is_served_and_asks_before_it_books(folder: Path) -> None:
    with Command(folder, "serve", "travel:app", "--port", "0") as server:
        address = server.until(r"serves travel:app at (http://\S+)")[1]
        assert "sunny in Rome" in chat(folder, address, "What is the weather in Rome?")
        denied = chat(folder, address, "Book a hotel room in Pisa for 2 nights")
        assert "is booked" not in denied
        booked = chat(folder, address, "Book a hotel room in Rome for 3 nights", "--yes")
        assert "A room in Rome for 3 nights is booked" in booked
        assert server.interrupt() == 0
    assert (folder / ".everthink" / "everthink.db").exists()


def test_dev_shows_a_page(folder: Path) -> None:
    with Command(folder, "dev", "travel:app", "--port", "0") as server:
        address = server.until(r"Open (http://\S+)")[1]
        page = subprocess.run(
            [sys.executable, "-c", f"import urllib.request as r; print(r.urlopen('{address}').read())"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "<title>" in page.stdout
        assert "sunny in Oslo" in chat(folder, address, "What is the weather in Oslo?")
        assert server.interrupt() == 0


def test_its_picture_is_there() -> None:
    assert (ROOT / "docs" / "images" / "page-approval.png").exists()
