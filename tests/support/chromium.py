"""One Chromium for all browser tests of this process. Each of them has a context, a profile, of its own.

    pytest --> chromium.mjs: Chromium, headless  <-- node journeys.mjs: browser.newContext() for each journey

The folders that connect name the same version of playwright-core.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from .node import needs, packages_of, workbench

__all__ = ["remove_shared_chromium", "shared_chromium"]

SCRIPT = Path(__file__).with_name("chromium.mjs")
PACKAGES = Path(__file__).parents[1] / "journeys" / "page"


class _Chromium:
    """A browser that others connect to. It ends when we close its input, or end ourselves."""

    def __init__(self) -> None:
        browser = needs(
            "chromium", "Chromium is not installed: apt-get install -y --no-install-recommends chromium"
        )
        node = needs("node", "Node.js 20 or newer is needed to start the browser.")
        self._folder = Path(tempfile.mkdtemp(prefix="everthink-chromium-"))
        place = workbench(self._folder / "bench", packages_of(PACKAGES), SCRIPT)
        self._process = subprocess.Popen(
            [node, SCRIPT.name, browser], cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self.close)
        assert self._process.stdout
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.close()
            pytest.fail("Chromium did not start.")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        atexit.unregister(self.close)
        try:
            self._process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def _shared() -> _Chromium:
    return _Chromium()


def shared_chromium() -> str:
    """The address of the one browser of this process, which is started by whoever asks first."""
    if not _shared().is_running:
        remove_shared_chromium()
    return _shared().address


def remove_shared_chromium() -> None:
    """At the end of the run."""
    if _shared.cache_info().currsize:
        _shared().close()
        _shared.cache_clear()
