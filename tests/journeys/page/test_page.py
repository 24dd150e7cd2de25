"""The page in headless Chromium, against our server: journeys.mjs walks, this file asks how it went.

    pytest --one browser, one server--> journeys.mjs --a JSON line each--> one test each

`EVERTHINK_PICTURES=docs/images pytest tests/journeys/page` takes the pictures of the docs again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import shared_chromium
from tests.support.node import (
    free_port,
    installed,
    judge,
    kept_for,
    needs,
    packages_of,
    serving,
    walk,
    workbench,
)

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
STATIC = ROOT / "src" / "everthink" / "devtools" / "static"
PARTS = (
    "asking.mjs",
    "chatting.mjs",
    "coding.mjs",
    "delegating.mjs",
    "extending.mjs",
    "filing.mjs",
    "finding.mjs",
    "inspecting.mjs",
    "learning.mjs",
    "marking.mjs",
    "messaging.mjs",
    "remembering.mjs",
    "serving.mjs",
    "signing.mjs",
    "stopping.mjs",
)
WALKS = [(HERE / name).read_text().split("const journeys")[1] for name in PARTS]
NAMES = re.findall(r"^  async (\w+)\(", "".join(WALKS), re.M)
PICTURES = [name for name in NAMES if name.startswith("pictures")]
JOURNEYS = [name for name in NAMES if name not in PICTURES]


SHOP = [sys.executable, "-m", "tests.journeys.page.messaging"]
LIBRARY = [sys.executable, "-m", "tests.journeys.page.library"]


def command(port: int, store: Path) -> list[str]:
    return [sys.executable, "-m", "tests.journeys.page.serve", str(port), f"sqlite:///{store}"]


def own_servers(folder: Path) -> dict[str, Any]:
    """Servers that journeys start themselves, and may kill."""
    spare, shared, common, library, shelf, family, shop, stand = (free_port() for _ in range(8))
    commands = {
        "spare": (spare, command(spare, folder / "spare.db")),
        "family": (family, command(family, folder / "family.db")),
        "shared": (shared, [*command(shared, folder / "shared.db"), "shared"]),
        "common": (common, [*command(common, folder / "common.db"), "shared"]),
        "library": (library, [*LIBRARY, str(library)]),
        "shelf": (shelf, [*LIBRARY, str(shelf)]),
        "shop": (shop, [*SHOP, str(shop), f"sqlite:///{folder / 'shop.db'}"]),
        "stand": (stand, [*SHOP, str(stand), f"sqlite:///{folder / 'stand.db'}"]),
    }
    return {
        name: {"cwd": str(ROOT), "page": f"http://127.0.0.1:{port}", "command": line}
        for name, (port, line) in commands.items()
    }


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How every journey went."""
    browser = shared_chromium()
    folder = tmp_path_factory.mktemp("page")
    place = workbench(folder / "bench", packages_of(HERE), *HERE.glob("*.mjs"))
    given: dict[str, Any] = {"chromium": browser, **own_servers(folder)}
    if pictures := os.environ.get("EVERTHINK_PICTURES"):
        given["pictures"] = str(Path(pictures).resolve())
    port = free_port()
    other = free_port()
    with (
        serving(command(port, folder / "page.db"), port, folder / "page.log") as address,
        serving(
            [*command(other, folder / "guarded.db"), "guarded"], other, folder / "guarded.log"
        ) as guarded,
    ):
        return walk(place, {**given, "page": address, "guarded": guarded})


@pytest.mark.parametrize("name", JOURNEYS)
def test_journey(walked: dict[str, dict[str, Any]], name: str) -> None:
    """One walk through the page."""
    judge(walked[name])


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_taken_when_asked_for(walked: dict[str, dict[str, Any]], name: str) -> None:
    """And the journey that takes them holds."""
    assert walked[name]["ok"], walked[name]["error"]


def test_the_page_is_small_and_asks_no_one_else() -> None:
    """Everything it loads comes from the package."""
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1_500_000
    assert not [path.name for path in files if path.suffix == ".map"]
    html = (STATIC / "index.html").read_text()
    assert "Content-Security-Policy" in html
    assert not re.findall(r"""(?:src|href)=["']?(?:https?:)?//""", html)
    styles = "".join(path.read_text() for path in files if path.suffix == ".css")
    assert "url(" not in styles
    assert "@import" not in styles


def test_the_built_page_is_what_its_source_builds(tmp_path: Path) -> None:
    """The bundle in the package is checked in: it must not fall behind `ui/`."""
    npm = needs("npm", "Node.js 20 or newer, with npm, is needed to build the page.")
    source = ROOT / "ui"
    place = installed(source, kept_for(source), npm)
    for path in source.iterdir():
        if path.name in ("node_modules", "package.json", "package-lock.json", ".npmrc"):
            continue
        if path.is_dir():
            shutil.rmtree(place / path.name, ignore_errors=True)
            shutil.copytree(path, place / path.name)
        else:
            shutil.copy(path, place / path.name)
    build = [npm, "run", "build", "--", "--outDir", str(tmp_path / "static"), "--emptyOutDir"]
    done = subprocess.run(build, cwd=place, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr

    def contents(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }

    built, kept = contents(tmp_path / "static"), contents(STATIC)
    changed = sorted(name for name in built.keys() | kept.keys() if built.get(name) != kept.get(name))
    assert not changed, f"Not what ui/ builds: {changed}. Run `npm ci && npm run build` in ui/."
