"""One Chromium for all browser tests of this process. Each of them has a context, a profile, of its own.

pytest --> Chromium, headless  <--DevTools-- node journeys.mjs: browser.newContext() for each journey
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest

from .node import needs

__all__ = ["remove_shared_chromium", "shared_chromium"]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Several tabs run at once, and only one can be in front.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
]
PATIENCE = 60.0


class _Chromium:
    """A browser that others connect to, and its profile, which nobody uses."""

    def __init__(self) -> None:
        browser = needs(
            "chromium", "Chromium is not installed: apt-get install -y --no-install-recommends chromium"
        )
        self._folder = Path(tempfile.mkdtemp(prefix="everthink-chromium-"))
        self._process = subprocess.Popen(
            [browser, *FLAGS, f"--user-data-dir={self._folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.close)
        self.address = self._answered()

    def _answered(self) -> str:
        """Where it listens. It writes its port, then its path, into a file."""
        told, until = self._folder / "DevToolsActivePort", time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(FileNotFoundError):
                port, _, path = told.read_text().partition("\n")
                if path.strip():
                    return f"ws://127.0.0.1:{port}{path.strip()}"
            time.sleep(0.02)
        self.close()
        pytest.fail("Chromium did not start.")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        atexit.unregister(self.close)
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
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
