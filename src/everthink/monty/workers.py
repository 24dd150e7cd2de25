"""Worker processes of Monty, locked in, and the threads from which they are driven.

    MontySandbox --lent--> Workers --a shell line in memory--> locked_program --> monty

Monty has an interface for asyncio of its own. Its threads can abort a process that ends soon after, so the
plain one is used here, each call in a thread of ours. Workers go when nobody has needed one for a while.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from .. import sandbox
from ..sandbox.child import BOOT, CannotStart
from ..sandbox.lock import NEEDED, unsupported

if TYPE_CHECKING:
    from pydantic_monty import Monty

__all__ = ["INSTALL", "MEMORY", "Workers"]

INSTALL = "Python of models needs pydantic-monty, which is not installed: pip install 'everthink[sandbox]'"
MEMORY = 512 * 1024 * 1024
"""Bytes that a worker may have in all: its jobs have limits of their own, far below."""
T = TypeVar("T")


class Workers:
    """At most so many at work."""

    def __init__(self, *, most: int, jobs_each: int, idle_after: float) -> None:
        self._most, self._jobs_each, self._idle_after = most, jobs_each, idle_after
        self._room = asyncio.Semaphore(most)
        self._opening = asyncio.Lock()
        # Of threads and pool, both or none are there.
        self._threads: ThreadPoolExecutor | None = None
        self._pool: Monty | None = None
        self._line: int | None = None
        self._lent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[Monty]:
        """The pool, for one job. Raises `CannotStart`."""
        async with self._room:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            async with self._opening:
                pool = self._pool or await self._open()
            self._lent += 1
            try:
                yield pool
            finally:
                self._lent -= 1
                if not self._lent and not self._is_closed:
                    self._timer = asyncio.get_running_loop().call_later(self._idle_after, self._send_away)

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function that blocks. Whoever is cancelled meanwhile sees to it that it ends soon."""
        assert self._threads is not None
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def _open(self) -> Monty:
        if self._is_closed:
            raise CannotStart("The sandbox is closed.")
        if find_spec("pydantic_monty") is None:
            raise CannotStart(INSTALL)
        from pydantic_monty import Monty

        path = self._begin()
        pool = Monty(
            binary_path=path,
            min_processes=1,
            max_processes=self._most,
            max_checkouts_per_worker=self._jobs_each,
            checkout_timeout=30.0,
        )
        self._threads = ThreadPoolExecutor(self._most + 1, "everthink-monty")
        try:
            await self.call(pool.__enter__)
        except Exception as error:
            self._threads.shutdown(wait=False)
            self._threads = None
            self._forget_line()
            raise CannotStart(f"A worker of Monty does not start: {error}") from error
        self._pool = pool
        return pool

    def _begin(self) -> str:
        """What a worker is started with: a path, since Monty gives it neither arguments nor environment."""
        from pydantic_monty._binary import find_monty_binary

        try:
            binary = os.path.realpath(find_monty_binary())
        except FileNotFoundError as error:
            raise CannotStart(f"{error}. Install it: pip install 'everthink[sandbox]'") from error
        if unsupported() is not None:
            return binary
        line = shlex.join(_command("run", binary, parent=os.getpid()))
        # In memory, so that no file is left behind; the shell reads it by the name that it has with us.
        self._line = os.memfd_create("everthink-monty", os.MFD_CLOEXEC)
        os.write(self._line, f'#!/bin/sh\nexec {line} "$@" 2>/dev/null\n'.encode())
        os.fchmod(self._line, 0o500)
        return f"/proc/{os.getpid()}/fd/{self._line}"

    def _forget_line(self) -> None:
        if self._line is not None:
            os.close(self._line)
            self._line = None

    async def held(self) -> dict[str, str]:
        """The steps with which a worker is locked in: "" for those that hold, else why not."""
        if (problem := unsupported()) is not None:
            return dict.fromkeys(NEEDED, problem)
        from pydantic_monty._binary import find_monty_binary

        asked = await asyncio.create_subprocess_exec(
            *_command("held", find_monty_binary(), parent=os.getpid()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
        )
        said, _ = await asked.communicate()
        return json.loads(said) if said else dict.fromkeys(NEEDED, "the process did not start")

    def _send_away(self) -> None:
        self._timer = None
        closing = asyncio.create_task(self._close_if_idle())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close_if_idle(self) -> None:
        async with self._opening:
            if not self._lent:
                await self._close()

    async def _close(self) -> None:
        pool, threads, self._pool, self._threads = self._pool, self._threads, None, None
        if pool is not None and threads is not None:
            await asyncio.get_running_loop().run_in_executor(threads, lambda: pool.__exit__(None, None, None))
            threads.shutdown(wait=False)
        self._forget_line()

    async def aclose(self) -> None:
        """End all workers. Nothing is at work any more: whoever runs jobs has ended them."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        async with self._opening:
            await self._close()


def _command(what: str, binary: str, *, parent: int) -> list[str]:
    folder = os.path.dirname(sandbox.__file__)
    guest = ["-I", "-S", "-c", BOOT, folder, folder, "locked_program"]
    return [sys.executable, *guest, what, str(MEMORY), str(parent), binary]
