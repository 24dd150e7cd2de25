"""The page in Chromium, with the published hooks, while the server is killed: one whole answer, once.

pytest --> journeys.mjs --spawns, kills--> server.py (a page and an agent)     a browser looks on
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import shared_chromium
from tests.support.node import free_port, judge, packages_of, walk, workbench

HERE = Path(__file__).parent
PAGE = HERE.parent / "page"
ROOT = HERE.parents[2]
JOURNEYS = re.findall(
    r"^  async (\w+)\(", (HERE / "journeys.mjs").read_text().split("const journeys")[1], re.M
)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How every journey went."""
    browser = shared_chromium()
    folder = tmp_path_factory.mktemp("killed")
    place = workbench(folder / "walk", packages_of(PAGE), HERE / "journeys.mjs", PAGE / "tab.mjs")
    servers: dict[str, Any] = {}
    for name in JOURNEYS:
        port, notes = free_port(), folder / f"{name}.txt"
        store = f"sqlite:///{folder}/{name}.db"
        servers[name] = {
            "page": f"http://127.0.0.1:{port}",
            "notes": str(notes),
            "command": [sys.executable, "-m", "tests.journeys.killed.server", str(port), store, str(notes)],
        }
    whole = " ".join(f"w{number}" for number in range(70))
    given = {"chromium": browser, "cwd": str(ROOT), "whole": whole, "servers": servers}
    return walk(place, given)


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_server_killed(walked: dict[str, dict[str, Any]], name: str) -> None:
    """The reader sees one whole answer, and the tool has acted once."""
    judge(walked[name])
