"""A real server process on a real port with a real database, for tests that pull the plug.

    async with Node("shop.agents:Support", store=f"sqlite:///{folder}/test.db") as node:
        chat = await node.connect(Support, "room-1", resumes=True)
        await chat.say("Capital of France?")
        await chat.until_text("The capital is ")
        await node.restart()                       # kill -9, then start again on the same port

It is `everthink serve` itself, so what holds here holds in production. The port stays the same for the
life of a Node; while the process is down, connections are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import AgentError
from ..store.crashpoints import COUNT_COMMITS, CRASH_AT
from .server_address import Place

__all__ = ["Node", "NodeFailed"]

_READY = re.compile(rb"^everthink serves .* at http://")
_LOG_LINES = 1000
_STORE = "EVERTHINK_STORE"
_NOT_INHERITED = frozenset({_STORE, CRASH_AT, COUNT_COMMITS})


class NodeFailed(AgentError):
    """A node did not start, or did not do what it was told."""


class Node(Place):
    """A server process. Starts with the block, dies with it.

    `target` is what `everthink serve` takes: `"module:app"`, a folder of agents, or `"module:Agent"`; the
    last two live in `store`. `folder` is its working directory, `env` is added to the environment.
    """

    def __init__(
        self,
        target: str,
        *,
        store: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        patience: float = 30.0,
    ) -> None:
        super().__init__()
        self.target, self.store = target, store
        self.starts = 0
        """How often it was started."""
        self._folder = Path(folder) if folder is not None else Path.cwd()
        self._env = dict(env or {})
        self._patience = patience
        self._process: asyncio.subprocess.Process | None = None
        self._lines: deque[str] = deque(maxlen=_LOG_LINES)
        self._reading: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self._reserved: socket.socket | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- what it is

    @property
    def is_running(self) -> bool:
        """True while there is a process, be it paused."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._running().pid

    @property
    def exit_code(self) -> int | None:
        """How the last process ended: 0, an error's number, or minus the number of a signal."""
        return self._process.returncode if self._process is not None else None

    @property
    def log(self) -> str:
        """What its processes wrote to standard output and error, the last 1,000 lines."""
        return "\n".join(self._lines)

    # --- its life

    async def start(self, **env: str) -> None:
        """Start the process; returns when it serves. `env` is for this start alone."""
        if self.is_running:
            raise NodeFailed("The node runs already.", next_step="Call kill(), term() or restart().")
        self._reserve()
        self._is_ready.clear()
        self.starts += 1
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everthink.testing.child_process"),
            *("everthink.cli", "serve", self.target, "--port", str(self.port), "--no-access-log"),
            cwd=self._folder,
            env=self._environment(env),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._reading = asyncio.create_task(self._read(self._process))
        ready = asyncio.ensure_future(self._is_ready.wait())
        try:
            await asyncio.wait(
                [ready, self._reading], timeout=self._patience, return_when=asyncio.FIRST_COMPLETED
            )
            if not ready.done():
                raise await self._not_started()
        finally:
            ready.cancel()

    async def kill(self) -> None:
        """SIGKILL: no goodbye, nothing is finished. Returns when it is dead."""
        if self._process is not None:
            self._signal(self._process, signal.SIGKILL)
            await self._gone()

    async def restart(self, **env: str) -> None:
        """Kill the process if it runs, and start it again on the same port and database."""
        await self.kill()
        await self.start(**env)

    async def term(self) -> int:
        """SIGTERM: let it stop in its own time. Returns its exit code."""
        self._signal(self._running(), signal.SIGTERM)
        return await self.died()

    async def died(self) -> int:
        """Return the exit code once the process has ended by itself: -9 at a crash point."""
        try:
            async with asyncio.timeout(self._patience):
                return await self.wait()
        except TimeoutError:
            raise NodeFailed(
                f"The node did not end within {self._patience:g} s.", kept=self._told()
            ) from None

    async def wait(self) -> int:
        """Return the exit code once the process has ended, however long that takes."""
        process = self._process
        if process is None:
            raise NodeFailed("The node was never started.")
        await self._gone()
        assert process.returncode is not None
        return process.returncode

    async def close(self) -> None:
        """Close the tabs, kill the process, give up the port. The end of the block does it."""
        await self.leave()
        await self.kill()
        if self._reserved is not None:
            self._reserved.close()

    async def pause(self) -> None:
        """SIGSTOP: the process stands still, its sockets stay open. Returns when it does."""
        process = self._running()
        self._signal(process, signal.SIGSTOP)
        if hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):
                await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT: it goes on where it stood."""
        self._signal(self._running(), signal.SIGCONT)

    # ---

    @staticmethod
    def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        # Not process.send_signal: it looks for the exit code first, and takes it from whoever waits for it.
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)

    def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            raise NodeFailed("The node does not run.", kept=self._told(), next_step="Call start().")
        return self._process

    def _reserve(self) -> None:
        """Take a port for good. Where it can be shared it is held: nobody gets it between two starts."""
        if self.port:
            return
        reserved = socket.socket()
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        self.port = reserved.getsockname()[1]
        if sys.platform == "linux":
            self._reserved = reserved  # Bound and not listening: the server may bind it as well.
        else:
            reserved.close()

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        # Not among the arguments, which anybody on this machine can read: a URL may hold a password.
        store = {} if self.store is None else {_STORE: self.store}
        return {**inherited, "PYTHONUNBUFFERED": "1", **store, **self._env, **env}

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        begun = b""
        while data := await process.stdout.read(65536):
            *lines, begun = (begun + data).split(b"\n")
            self._lines += [line.decode(errors="replace") for line in lines]
            if any(_READY.match(line) for line in lines):
                self._is_ready.set()
        if begun:
            self._lines.append(begun.decode(errors="replace"))

    async def _gone(self) -> None:
        assert self._process is not None
        assert self._reading is not None
        await self._process.wait()
        await self._reading

    async def _not_started(self) -> NodeFailed:
        assert self._reading is not None
        ended = self._reading.done()
        await self.kill()
        what = "ended before it served" if ended else f"did not serve within {self._patience:g} s"
        return NodeFailed(f"{self.target} {what}.", kept=self._told())

    def _told(self) -> str:
        return "Its last lines:\n" + "\n".join(list(self._lines)[-20:]) if self._lines else "It said nothing."
