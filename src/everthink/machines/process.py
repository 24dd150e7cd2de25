"""A process of this computer as a pipe: started as a group of its own, read, written, ended.

    an adapter --argv--> Process --> write, read ... kill

`subprocess` and not `asyncio.subprocess`: it can start as another user on every loop, and nobody else waits
for its exit status. It is waited for in a thread, which is short: only what was killed is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TextIO

from ..programs import logged
from .port import CannotSpawn

__all__ = ["Process", "answer", "first_of"]

log = logging.getLogger("everthink.machines")

_READ = 1 << 16
_FIRST = 5
"""Lines of a program's standard error that are enough to say why it does not start."""


class Process:
    """Started by `start`; a `Pipe`."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdout: asyncio.StreamReader,
        stdin: asyncio.StreamWriter,
        reading: asyncio.ReadTransport,
        stack: ExitStack,
    ) -> None:
        self._process, self._stdout, self._stdin, self._reading = process, stdout, stdin, reading
        self._stack = stack
        self._ended: asyncio.Task[None] | None = None
        self.said: Sequence[str] = ()
        """What it says on its standard error, where somebody wants to know."""
        self.place = ""
        """The folder of this computer that its files are in: `work`, its home, and `tmp`."""
        self.before: Callable[[], None] = lambda: None
        """Called before the group is killed."""
        self.after: Callable[[], Awaitable[None]] = _nothing
        """Awaited when it is gone."""

    @property
    def exit_code(self) -> int | None:
        """How it ended, once it is gone."""
        return self._process.returncode

    @property
    def pid(self) -> int:
        """Its process, which leads its group."""
        return self._process.pid

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        name: str,
        env: Mapping[str, str],
        user: int | None = None,
        pass_fds: Sequence[int] = (),
        said: Callable[[str], object] = lambda line: None,
    ) -> Process:
        """Start a program, as another user if one is named. Raises `CannotSpawn`."""
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            errors = stack.enter_context(logged(log, name, said))
            process = _started(argv, env, errors, user=user, pass_fds=pass_fds)
            assert process.stdin is not None
            assert process.stdout is not None
            stdout = asyncio.StreamReader(limit=_READ)
            try:
                reading, _ = await loop.connect_read_pipe(
                    lambda: asyncio.StreamReaderProtocol(stdout), process.stdout
                )
                writing, flow = await loop.connect_write_pipe(
                    lambda: asyncio.streams.FlowControlMixin(loop), process.stdin
                )
            except BaseException:  # nobody else knows of it yet
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
            stdin = asyncio.StreamWriter(writing, flow, None, loop)
            return cls(process, stdout, stdin, reading, stack.pop_all())

    async def write(self, data: bytes) -> None:
        """Send to its standard input; lost when it is dead."""
        with contextlib.suppress(ConnectionError):
            self._stdin.write(data)
            await self._stdin.drain()

    async def read(self) -> bytes:
        """What came next; nothing at its end."""
        try:
            return await self._stdout.read(_READ)
        except ConnectionError:
            return b""

    async def wait(self) -> int:
        """Wait until it ends by itself; its exit code."""
        return await asyncio.to_thread(self._process.wait)

    async def kill(self) -> None:
        """End its group, and wait until it is gone."""
        if self._ended is None:
            self._ended = asyncio.create_task(self._end())
        await asyncio.shield(self._ended)

    async def _end(self) -> None:
        self.before()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._process.returncode is None:  # nobody has waited for it: the number is still its own
                os.killpg(self._process.pid, signal.SIGKILL)
        await asyncio.to_thread(self._process.wait)
        self._reading.close()
        self._stdin.close()
        self._stdout.feed_eof()
        self._stack.close()
        await self.after()


def _started(
    argv: Sequence[str],
    env: Mapping[str, str],
    errors: TextIO,
    *,
    user: int | None,
    pass_fds: Sequence[int],
) -> subprocess.Popen[bytes]:
    """As asyncio does it, too: on the loop, for a few milliseconds."""
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=env,
            cwd="/",
            bufsize=0,
            start_new_session=True,
            pass_fds=pass_fds,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
    except OSError as error:
        raise CannotSpawn(f"{argv[0]} cannot be started: {error}.") from error


def first_of(said: list[str]) -> Callable[[str], object]:
    """Keeps the first lines that a program says."""
    return lambda line: said.append(line) if len(said) < _FIRST else None


async def answer(
    argv: Sequence[str], *, name: str, env: Mapping[str, str], user: int | None = None, within: float = 30.0
) -> tuple[int, str]:
    """The exit code of a program that ends soon, and what it says."""
    said: list[str] = []
    try:
        process = await Process.start(argv, name=name, env=env, user=user, said=said.append)
    except CannotSpawn as error:
        return 127, str(error)
    out, code = b"", 1
    try:
        async with asyncio.timeout(within):
            while part := await process.read():
                out += part
            code = await process.wait()
    except TimeoutError:
        said.append(f"it did not end within {within:g} seconds")
    finally:
        await process.kill()
    return code, out.decode(errors="replace") + " ".join(said)


async def _nothing() -> None:
    pass
