"""Processes that play one story each and may die at a chosen commit.

    test --line: environment, arguments--> Nursery --fork--> run(**arguments) --> how that process ended

Importing happens once, in the process that forks, so that every single commit can be the last of a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from everthink.store.crashpoints import COUNT_COMMITS

__all__ = ["Nursery", "commits_of", "fork_for_each_line"]

ROOT = Path(__file__).parents[2]


class Nursery:
    """The process that forks others, each of which writes into a new folder of `folder`."""

    def __init__(self, module: str, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def new_folder(self, story: str) -> Path:
        """Where a process is to write its commits and its effects."""
        self._number += 1
        folder = self._folder / f"{story}-{self._number}"
        folder.mkdir()
        return folder

    def is_killed(self, folder: Path, at: str | None, **arguments: Any) -> bool:
        """Play to the end, or to the commit `at`. True when the process died there."""
        ended = self.ended(folder, at, **arguments)
        is_killed = ended == {"signal": signal.SIGKILL}
        assert ended == {"code": 0} or (is_killed and at is not None), (arguments, at, ended)
        return is_killed

    def ended(self, folder: Path, at: str | None, **arguments: Any) -> dict[str, int]:
        """The same, whoever kills it. How the process ended: its code, or its signal."""
        environ = {COUNT_COMMITS: str(folder / "commits"), "EFFECTS": str(folder / "effects")}
        if at is not None:
            environ["EVERTHINK_CRASH_AT"] = at
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"environ": environ, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def commits_of(folder: Path) -> list[dict[str, Any]]:
    """The commits of a process, in order."""
    return [json.loads(line) for line in (folder / "commits").read_text().splitlines()]


def fork_for_each_line(run: Callable[..., Awaitable[None]]) -> None:
    """In the process of a nursery: fork a process for each line, and say how it ended."""
    for line in sys.stdin:
        asked = json.loads(line)
        process = os.fork()
        if not process:
            os.environ.update(asked["environ"])
            _play(run, asked["arguments"])
        _, status = os.waitpid(process, 0)
        is_killed = os.WIFSIGNALED(status)
        ended = {"signal": os.WTERMSIG(status)} if is_killed else {"code": os.WEXITSTATUS(status)}
        print(json.dumps(ended), flush=True)


def _play(run: Callable[..., Awaitable[None]], arguments: dict[str, Any]) -> None:
    async def play() -> None:
        await run(**arguments)

    try:
        asyncio.run(play())
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)
