"""Servers in processes of their own, to be killed and started again.

serving.start("sessions", folder) --> Running: its address, its deeds; kill(), again()
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from everthink.mcp import HttpServer, StdioServer

__all__ = ["ROOT", "Running", "Serving", "children", "deeds", "is_gone", "parent", "stdio", "tasks", "until"]

ROOT = Path(__file__).parents[2]
PATIENCE = 20.0


class Serving:
    """The process that forks servers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mcp.offering", "fork"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.pid = self._process.pid

    def start(self, kind: str, folder: Path, port: int = 0) -> Running:
        """A server of this kind, as soon as it can be connected to."""
        return Running(self, kind, folder, *self.fork(kind, folder, port))

    def fork(self, kind: str, folder: Path, port: int) -> tuple[int, int]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([kind, port, str(folder)]) + "\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        return said["pid"], said["port"]

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Running:
    """A server that runs, or did."""

    def __init__(self, serving: Serving, kind: str, folder: Path, pid: int, port: int) -> None:
        self._serving, self.kind, self.folder, self.pid, self.port = serving, kind, folder, pid, port
        self.url = f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"

    def place(self, **options: Any) -> HttpServer:
        return HttpServer(self.url, **options)

    async def kill(self) -> None:
        """End it without a word, and see that nobody listens any more."""
        assert parent(self.pid) == self._serving.pid, "it has ended by itself"
        os.kill(self.pid, signal.SIGKILL)
        await until(lambda: is_gone(self.pid))

    def again(self) -> None:
        """Start it at the same address."""
        self.pid, _ = self._serving.fork(self.kind, self.folder, self.port)

    @property
    def deeds(self) -> list[str]:
        return deeds(self.folder)


def deeds(folder: Path) -> list[str]:
    """What the server of a folder has done."""
    with contextlib.suppress(FileNotFoundError):
        return (folder / "deeds").read_text().splitlines()
    return []


def stdio(folder: Path, **options: Any) -> StdioServer:
    """The same server as a process that is started for an app."""
    return StdioServer(
        sys.executable, ("-m", "tests.mcp.offering", "stdio", str(folder)), cwd=str(ROOT), **options
    )


# --- looking


async def until(is_so: Any, what: str = "") -> None:
    """Return when something is so. It happens in another process, which tells nobody."""
    ends = asyncio.get_running_loop().time() + PATIENCE
    while not is_so():
        assert asyncio.get_running_loop().time() < ends, what or "it never came to that"
        await asyncio.sleep(0.003)


def is_gone(pid: int) -> bool:
    """True when a process has ended, and somebody has taken note of it."""
    return not Path(f"/proc/{pid}").exists()


def children() -> set[int]:
    """The processes that this one has started, also those that have ended and nobody took note of."""
    found = {int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()}
    return {pid for pid in found if parent(pid) == os.getpid()}


def parent(pid: int) -> int | None:
    """Who has started a process, if it is there."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def tasks() -> set[asyncio.Task[Any]]:
    """The tasks that are not over, but for those of the test itself."""
    found = {task for task in asyncio.all_tasks() if not task.done()} - {asyncio.current_task()}
    return {task for task in found if "TestRunner" not in repr(task.get_coro())}
