"""Programs in Node: the packages they name, a server to talk to, and how their journeys went.

    pytest --> serving (own process)  <--sockets--  walk: node journeys.mjs --JSON lines--> a test each

Packages are installed once for each machine and lock file, and never into the working copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "free_port",
    "installed",
    "judge",
    "kept_for",
    "needs",
    "packages_of",
    "run_node",
    "serving",
    "walk",
    "workbench",
]

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "journeys" / "node"


def needs(name: str, why: str) -> str:
    """The program, or the end of the test: a failure on a build machine, a skip elsewhere."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


def kept_for(folder: Path) -> Path:
    """Where the packages of a folder's lock file are kept on this machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()[:16]
    return cache / "everthink-tests" / f"{folder.name}-{digest}"


def installed(folder: Path, place: Path, npm: str) -> Path:
    """A folder's packages as its lock file says, once for each machine and lock file."""
    if (place / "installed").exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=place.parent, prefix=f"{folder.name}-"))
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(folder / name, new / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=new, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.fail(f"npm could not install what {folder} names (is there a network?):\n{done.stderr}")
    (new / "installed").touch()
    try:
        new.rename(place)
    except OSError:  # somebody else was faster
        shutil.rmtree(new)
    return place


def packages_of(folder: Path) -> Path:
    """A place with the packages of a folder's lock file, ready to use."""
    npm = needs("npm", "Node.js 20 or newer, with npm, is needed to test against the browser's own packages.")
    return installed(folder, kept_for(folder), npm)


def workbench(place: Path, packages: Path, *files: Path) -> Path:
    """A new folder with these files and folders in it, and the packages beside them."""
    place.mkdir()
    for path in files:
        (shutil.copytree if path.is_dir() else shutil.copy)(path, place / path.name)
    (place / "node_modules").symlink_to(packages / "node_modules", target_is_directory=True)
    return place


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def serving(command: Sequence[str], port: int, log: Path) -> Generator[str]:
    """Run a server until the end of the block. Its address, once it answers."""
    address = f"http://127.0.0.1:{port}"
    with (
        log.open("w") as written,
        subprocess.Popen(command, cwd=ROOT, stdout=written, stderr=written) as server,
    ):
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(address, timeout=5).close()
                    break
                except urllib.error.HTTPError:
                    break
                except OSError:
                    if server.poll() is not None:
                        pytest.fail(f"The server ended:\n{log.read_text()}")
                    time.sleep(0.1)
            else:
                pytest.fail(f"The server did not answer:\n{log.read_text()}")
            yield address
        finally:
            server.terminate()
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                server.kill()


def walk(place: Path, given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Run `journeys.mjs`: how each journey went, by its name."""
    node = needs("node", "Node.js 20 or newer is needed to walk the journeys.")
    command = [node, "journeys.mjs", json.dumps(given)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=300)
    if done.returncode:
        pytest.fail(f"journeys.mjs failed:\n{done.stderr}")
    return {went["name"]: went for went in map(json.loads, done.stdout.splitlines())}


def judge(went: dict[str, Any]) -> None:
    """Fail if a journey did, with everything that was seen on the way."""
    if went["ok"]:
        return
    frames = "\n--- another ---\n".join("\n".join(frames) for frames in went["frames"])
    shown = f"\n\nThe page showed:\n{went['shown']}" if "shown" in went else ""
    pytest.fail(f"{went['error']}{shown}\n\nThe last frames:\n{frames}", pytrace=False)


def run_node(script: str, given: Any) -> Any:
    """Give `given` as JSON to a script of tests/journeys/node; returns what it writes."""
    node = needs("node", "Node.js 20 or newer is needed to test against the browser's own package.")
    with tempfile.TemporaryDirectory(prefix="everthink-node-") as folder:
        place = workbench(Path(folder) / "bench", packages_of(SCRIPTS), SCRIPTS / script)
        done = subprocess.run(
            [node, script], cwd=place, input=json.dumps(given), capture_output=True, text=True, timeout=120
        )
    if done.returncode:
        pytest.fail(f"{script} failed:\n{done.stderr}")
    return json.loads(done.stdout)
