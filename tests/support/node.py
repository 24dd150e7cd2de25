"""Run a script of tests/journeys/node in Node, with the packages it names."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

__all__ = ["run_node"]

SCRIPTS = Path(__file__).parent.parent / "journeys" / "node"


def run_node(script: str, given: Any) -> Any:
    """Give `given` to the script as JSON; returns what it writes. Packages are installed once per machine."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        if not os.environ.get("CI"):
            pytest.skip("Node.js is not installed; install Node 20 or newer to run this test.")
        pytest.fail("Node.js 20 or newer, with npm, is needed to test against the browser's own package.")
    place = _installed(npm)
    shutil.copy(SCRIPTS / script, place / script)
    done = subprocess.run(
        [node, script], cwd=place, input=json.dumps(given), capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        pytest.fail(f"{script} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def _installed(npm: str) -> Path:
    manifest = SCRIPTS / "package.json"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = cache / "everthink-tests" / hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]
    if (place / "installed").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(manifest, place / "package.json")
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.fail(f"npm could not install what {manifest} names (is there a network?):\n{done.stderr}")
    (place / "installed").touch()
    return place
