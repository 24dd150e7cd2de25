"""Families in the published hooks, in Chromium: runs live and after reloads, children opened, servers killed.

page/ --vite--> useAgent({sub}), useAgentToolEvents <--Chromium-- journeys.mjs --spawns, kills--> server.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.hooks.test_hooks import built
from tests.support.chromium import shared_chromium
from tests.support.node import free_port, judge, packages_of, walk, workbench

HERE = Path(__file__).parent
HOOKS = HERE.parent / "hooks"
ROOT = HERE.parents[2]
JOURNEYS = re.findall(
    r"^  async (\w+)\(", (HERE / "journeys.mjs").read_text().split("const journeys")[1], re.M
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page and the journeys, ready to be walked."""
    folder = tmp_path_factory.mktemp("children")
    files = [HERE / "page", HERE / "journeys.mjs"]
    files += [HOOKS / name for name in ("package.json", "vite.config.js", "tab.mjs", "backstage.mjs")]
    place = workbench(folder / "bench", packages_of(HOOKS), *files)
    built(place, folder / "page")
    return place


def walk_with(bench: Path, stores: dict[str, str]) -> dict[str, dict[str, Any]]:
    """How these journeys went, each with a server of its own on that database."""
    servers: dict[str, Any] = {}
    for name, store in stores.items():
        port, page = free_port(), str(bench.parent / "page")
        command = [sys.executable, "-m", "tests.journeys.children.server", str(port), store, page]
        servers[name] = {"base": f"http://127.0.0.1:{port}", "command": command}
    given = {"chromium": shared_chromium(), "cwd": str(ROOT), "servers": servers, "only": list(stores)}
    return walk(bench, given)


@pytest.fixture(scope="module")
def walked(bench: Path) -> dict[str, dict[str, Any]]:
    """How every journey went."""
    return walk_with(bench, {name: f"sqlite:///{bench.parent}/{name}.db" for name in JOURNEYS})


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_family_in_the_page(walked: dict[str, dict[str, Any]], name: str) -> None:
    """Each run is shown once, whatever happens to the page and to the server."""
    judge(walked[name])


@pytest.mark.parametrize("name", ["killed_in_mid_run", "killed_with_two_at_once"])
def test_a_family_in_the_page_on_postgresql(bench: Path, postgres_url: str, name: str) -> None:
    """The next process takes the whole family over."""
    judge(walk_with(bench, {name: postgres_url})[name])
