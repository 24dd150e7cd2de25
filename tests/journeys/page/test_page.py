"""The page in headless Chromium, against our server: journeys.mjs walks, this file asks how it went.

    pytest --one browser, one server--> journeys.mjs --a JSON line each--> one test each

`EVERTHINK_PICTURES=docs/images pytest tests/journeys/page` takes the pictures of the docs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
STATIC = ROOT / "src" / "everthink" / "devtools" / "static"
WALKS = (HERE / "journeys.mjs").read_text().split("const journeys")[1]
JOURNEYS = re.findall(r"^  async (\w+)\(", WALKS, re.M)
JOURNEYS.remove("pictures")


def needs(name: str, why: str) -> str:
    """The program, or the end of the test: a failure on a build machine, a skip elsewhere."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


def installed(folder: Path, place: Path, npm: str) -> Path:
    """A folder's packages as its lock file says, once for each machine and lock file."""
    if (place / "installed").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(folder / name, place / name)
    # Not `npm ci`: a lock file written where the registry lacks other platforms' builds would not do for it.
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.fail(f"npm could not install what {folder} names (is there a network?):\n{done.stderr}")
    (place / "installed").touch()
    return place


def kept_for(folder: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()[:16]
    return cache / "everthink-tests" / f"{folder.name}-{digest}"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def command(port: int, store: Path) -> list[str]:
    return [sys.executable, "-m", "tests.journeys.page.serve", str(port), f"sqlite:///{store}"]


@contextlib.contextmanager
def served(store: Path) -> Iterator[str]:
    """The page and its agents on a port of this machine."""
    port = free_port()
    log = store.with_suffix(".log")
    with (
        log.open("w") as written,
        subprocess.Popen(command(port, store), cwd=ROOT, stdout=written, stderr=written) as server,
    ):
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(100):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{address}/index.html", timeout=5).close()
                    break
                if server.poll() is not None:
                    break
                time.sleep(0.1)
            else:
                pytest.fail("The server did not answer.")
            if server.poll() is not None:
                pytest.fail(f"The server ended:\n{log.read_text()}")
            yield address
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """How every journey went."""
    node = needs("node", "Node.js 20 or newer is needed to drive the browser.")
    npm = needs("npm", "npm is needed to fetch playwright-core.")
    browser = needs(
        "chromium", "Chromium is not installed: apt-get install -y --no-install-recommends chromium"
    )
    place = installed(HERE, kept_for(HERE), npm)
    shutil.copy(HERE / "journeys.mjs", place / "journeys.mjs")
    folder = tmp_path_factory.mktemp("page")
    spare = free_port()
    given: dict[str, Any] = {
        "chromium": browser,
        "spare": {
            "cwd": str(ROOT),
            "page": f"http://127.0.0.1:{spare}",
            "command": command(spare, folder / "spare.db"),
        },
    }
    if pictures := os.environ.get("EVERTHINK_PICTURES"):
        given["pictures"] = str(Path(pictures).resolve())
    with served(folder / "page.db") as address:
        given["page"] = address
        done = subprocess.run(
            [node, "journeys.mjs", json.dumps(given)], cwd=place, capture_output=True, text=True, timeout=300
        )
    if done.returncode:
        pytest.fail(f"journeys.mjs failed:\n{done.stderr}")
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", JOURNEYS)
def test_journey(walked: dict[str, dict[str, Any]], name: str) -> None:
    """One walk through the page."""
    went = walked[name]
    if not went["ok"]:
        frames = "\n--- another tab ---\n".join("\n".join(tab) for tab in went["frames"])
        pytest.fail(f"{went['error']}\n\nThe page showed:\n{went['shown']}\n\nIts last frames:\n{frames}")


def test_pictures_are_taken_when_asked_for(walked: dict[str, dict[str, Any]]) -> None:
    """And the journey that takes them holds."""
    assert walked["pictures"]["ok"], walked["pictures"]["error"]


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
    assert not changed, f"Not what ui/ builds: {changed}. Run `npm install && npm run build` in ui/."
