"""docs/howto-front-end.md: its page, type-checked, built, and used in Chromium against the real server.

the page's files --> vite dev (proxy), vite build (same origin, other origin) --> front_end/journeys.mjs
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support.chromium import shared_chromium
from ..support.commands import Command
from ..support.node import free_port, judge, packages_of, walk, workbench
from .pages import ROOT, files

HERE = Path(__file__).parent
UI = ROOT / "ui"
WALKER = ROOT / "tests" / "journeys" / "page"
PAGE = "howto-front-end.md"
INDEX = """<!doctype html><link rel="icon" href="data:," /><div id="root"></div>
<script type="module" src="/src/main.tsx"></script>
"""
WALKS = ["proxied", "same-origin", "other-origin", "refused"]


class Project:
    """The files of the how-to where it says they are: Python beside the folder `page`."""

    def __init__(self, folder: Path, packages: Path) -> None:
        self.folder, self.page = folder, folder / "page"
        for name, text in files(PAGE).items():
            file = folder / name if name.endswith(".py") else self.page / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        # What `npm create vite` puts there.
        (self.page / "index.html").write_text(INDEX)
        shutil.copy(UI / "tsconfig.json", self.page / "tsconfig.json")
        (self.page / "package.json").write_text('{"type": "module"}')
        (self.page / "node_modules").symlink_to(packages / "node_modules")

    def run(self, program: str, *args: str, **env: str) -> None:
        command = [str(self.page / "node_modules" / ".bin" / program), *args]
        done = subprocess.run(
            command, cwd=self.page, env={**os.environ, **env}, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def point_proxy_at(self, address: str) -> None:
        config = self.page / "vite.config.ts"
        text = config.read_text()
        assert "http://127.0.0.1:8787" in text
        config.write_text(text.replace("http://127.0.0.1:8787", f"http://{address}"))

    @contextlib.contextmanager
    def dev(self) -> Iterator[str]:
        """Vite's development server."""
        port = free_port()
        command = [str(self.page / "node_modules" / ".bin" / "vite"), "--host", "127.0.0.1", "--strictPort"]
        with subprocess.Popen(
            [*command, "--port", str(port)],
            cwd=self.page,
            env={**os.environ, "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as vite:
            try:
                assert vite.stdout
                said: list[str] = []
                while not any("Local:" in line for line in said):
                    said.append(vite.stdout.readline())
                    assert said[-1], "Vite ended:\n" + "".join(said)
                threading.Thread(target=vite.stdout.read, daemon=True).start()
                yield f"http://127.0.0.1:{port}"
            finally:
                vite.terminate()


@contextlib.contextmanager
def static(folder: Path, port: int) -> Iterator[str]:
    """Some other web server."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", port), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def serving(folder: Path, target: str) -> Iterator[str]:
    with Command(folder, "serve", target, "--port", "0") as server:
        yield server.until(r"serves \S+ at http://(\S+)")[1]


@pytest.fixture(scope="module")
def packages() -> Path:
    return packages_of(UI)


@pytest.fixture(scope="module")
def walked(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    chromium = shared_chromium()
    walker = workbench(
        tmp_path_factory.mktemp("walker") / "bench",
        packages_of(WALKER),
        HERE / "front_end" / "journeys.mjs",
    )
    near = Project(tmp_path_factory.mktemp("near"), packages)
    same = Project(tmp_path_factory.mktemp("same"), packages)
    away = Project(tmp_path_factory.mktemp("away"), packages)
    allowed, foreign = free_port(), free_port()
    (away.folder / "away.py").write_text(
        "from app import App, Concierge\n"
        f'app = App(Concierge, allow_origins=["http://127.0.0.1:{allowed}"], cors=True)\n'
    )
    same.run("vite", "build")
    with contextlib.ExitStack() as stack:
        near.point_proxy_at(stack.enter_context(serving(near.folder, "app:app")))
        elsewhere = stack.enter_context(serving(away.folder, "away:app"))
        away.run("vite", "build", VITE_AGENTS=elsewhere)
        given = {
            "chromium": chromium,
            "pages": {
                "proxied": stack.enter_context(near.dev()),
                "same-origin": "http://" + stack.enter_context(serving(same.folder, "main:site")),
                "other-origin": stack.enter_context(static(away.page / "dist", allowed)),
            },
            "refused": stack.enter_context(static(away.page / "dist", foreign)),
        }
        return walk(walker, given)


@pytest.mark.parametrize("name", WALKS)
def test_its_page_works(walked: dict[str, dict[str, Any]], name: str) -> None:
    judge(walked[name])


def test_its_files_have_the_right_types(packages: Path, tmp_path: Path) -> None:
    Project(tmp_path, packages).run("tsc", "--noEmit")


def test_it_names_the_versions_that_we_test_with() -> None:
    text = (ROOT / "docs" / PAGE).read_text("utf-8")
    named = re.search(r"npm install (agents@.*)", text)
    assert named
    used = json.loads((UI / "package.json").read_text())["dependencies"]
    for package in named[1].split():
        name, _, version = package.rpartition("@")
        assert used[name] == version
