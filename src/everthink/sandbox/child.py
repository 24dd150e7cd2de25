"""A locked process of ours: started, spoken to in frames, ended.

    pool --start--> a process --ready--> send, receive ... end

Nothing that it says is believed: a frame is bounded before it is read, and of a known form or the child is
spent. It is in a group of its own, which is killed as a whole, and it dies with us.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal, TextIO

import msgspec

from ..programs import logged
from .frames import PREFIX, lengths, packed
from .lock import NEEDED, unsupported

__all__ = [
    "BOOT",
    "Begun",
    "Call",
    "CannotStart",
    "Child",
    "Done",
    "Failed",
    "Gone",
    "Out",
    "Over",
    "Ready",
    "Said",
    "Sleep",
    "System",
    "Waits",
]

log = logging.getLogger("everthink.sandbox")

STARTING = 30.0
"""Seconds that a child gets to say that it is ready."""
LONGEST_HEAD = 16 * 1024 * 1024
"""Bytes of the JSON of one frame: paths, and what a command is given."""

BOOT = """
import sys, types
folder, libraries, guest = sys.argv[1:4]
del sys.argv[1:4]
sys.path.extend(libraries.splitlines())
package = types.ModuleType("sandboxed")
package.__path__ = [folder]
sys.modules["sandboxed"] = package
import importlib
importlib.import_module("sandboxed." + guest).main()
"""
"""Loads a guest from our folder under another name, so that nothing else of ours is imported."""


class CannotStart(Exception):
    """No child can run here; the words say why."""


class Gone(Exception):
    """A child has died, or said what it may not say: it is of no use any more."""


class Ready(msgspec.Struct, tag_field="t", tag="ready"):
    """It has given up its rights: each step with what went wrong, "" for those that hold."""

    held: dict[str, str]


class Begun(msgspec.Struct, tag_field="t", tag="begun"):
    """It has the whole job, and runs it now."""


class Out(msgspec.Struct, tag_field="t", tag="out"):
    """Output, in the bytes behind it."""

    stream: Literal["stdout", "stderr"]


class Call(msgspec.Struct, tag_field="t", tag="call"):
    """A guest asks the host. A command is in here; the arguments of a function are behind it, as JSON."""

    id: int
    name: str
    args: list[Any] = []
    stdin: str = ""
    cwd: str = "/"
    refused: str | None = None
    """Why nothing is behind it: Monty's client has found it to be too much."""


class System(msgspec.Struct, tag_field="t", tag="system"):
    """Monty: code asks for a file, with what is behind it, and waits."""

    name: str


class Sleep(msgspec.Struct, tag_field="t", tag="sleep"):
    """Monty: code lets time pass, as a call of this number; with none it waits."""

    id: int | None
    seconds: float


class Waits(msgspec.Struct, tag_field="t", tag="waits"):
    """Monty: code waits for the answer to one of these calls."""

    ids: list[int]


class Failed(msgspec.Struct, tag_field="t", tag="failed"):
    """Monty: code cannot go on. After `types` it can, when its host has only doubts."""

    kind: Literal["types", "raised", "crashed"]
    words: str
    shown: str
    dropped: int = 0


class Over(msgspec.Struct, tag_field="t", tag="over"):
    """A limit is reached and the guest cannot stop what runs: it is to be killed."""

    limit: Literal["cpu", "memory"]


class Done(msgspec.Struct, tag_field="t", tag="done"):
    """A job has ended; the contents of the changed files are behind it, and after them its value."""

    exit: int | None = None
    error: str | None = None
    """What the engine says of it."""
    raised: str | None = None
    """An exception that nobody caught."""
    value: int | None = None
    """Bytes of its value in JSON."""
    refused: str | None = None
    stopped: str | None = None
    dropped: int = 0
    over: str | None = None
    path: str | None = None
    changed: list[tuple[str, int]] = []
    deleted: list[str] = []
    folders: list[str] = []


Said = Ready | Begun | Out | Call | System | Sleep | Waits | Failed | Over | Done
_decode = msgspec.json.Decoder(Said).decode
_encode = msgspec.json.encode


class Child:
    """One process. One job at a time is in it."""

    def __init__(self, process: asyncio.subprocess.Process, stack: ExitStack, said: deque[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stack = process, stack
        self._stdin, self._stdout = process.stdin, process.stdout
        self.said = said
        """The last lines on its standard error."""
        self.held: dict[str, str] = {}
        self.jobs = 0
        self.kept: set[str] = set()
        """Under which names something may be kept in it."""
        self.is_idle = True
        """True when no job is in it, and it may get one."""

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """False when it is known to be dead."""
        return self._process.returncode is None

    @property
    def died_of(self) -> int | None:
        """The signal that has ended it, when it is known to be dead by one."""
        code = self._process.returncode
        return -code if code is not None and code < 0 else None

    @classmethod
    async def start(
        cls,
        guest: str,
        libraries: Sequence[str],
        *options: str,
        memory: int,
        beside: str | None = None,
        is_safe: bool = False,
    ) -> Child:
        """Start a guest that needs libraries, and wait until it has given up its rights.

        It is a module of our folder, or of `beside`. One that `is_safe` may run where nothing can be locked.
        """
        if not is_safe and (problem := unsupported()) is not None:
            raise CannotStart(problem)
        folders = "\n".join(dict.fromkeys(_folder(library) for library in libraries))
        said: deque[str] = deque(maxlen=5)
        with ExitStack() as stack:
            errors = stack.enter_context(logged(log, f"sandbox {guest}", said.append))
            process = await _started(
                *("-I", "-S", "-c", BOOT, beside or os.path.dirname(__file__), folders, guest),
                *(str(memory), str(os.getpid()), *options),
                errors=errors,
            )
            child = cls(process, stack, said)
            try:
                await child._begin()
            except BaseException:
                await asyncio.shield(child.end())
                raise
            child._stack = stack.pop_all()
            return child

    async def _begin(self) -> None:
        try:
            async with asyncio.timeout(STARTING):
                said, _ = await self.receive(most=0)
        except (Gone, TimeoutError) as error:
            words = f": {' / '.join(self.said)}" if self.said else ""
            raise CannotStart(f"The child process did not start{words}") from error
        if not isinstance(said, Ready):
            raise CannotStart("The child process says something else than that it is ready.")
        self.held = said.held
        if unsupported() is not None:
            return
        for step in NEEDED:
            if problem := said.held.get(step, "it was not tried"):
                raise CannotStart(f"The child process could not be locked in ({step}: {problem}).")

    def send(self, head: dict[str, Any], *parts: bytes) -> None:
        """Write a frame. Lost when the child is dead: the next `receive` says so."""
        self._stdin.write(packed(_encode(head), parts))

    async def sent(self) -> None:
        """Wait until the child has read most of what was written."""
        with contextlib.suppress(ConnectionError):
            await self._stdin.drain()

    async def receive(self, *, most: int) -> tuple[Said, bytes]:
        """The next frame, with at most so many bytes behind it."""
        try:
            head, body = lengths(await self._stdout.readexactly(PREFIX))
            if head > LONGEST_HEAD or body > most:
                raise Gone(f"a frame of {head:,} and {body:,} bytes")
            said = _decode(await self._stdout.readexactly(head))
            return said, await self._stdout.readexactly(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Gone(f"it ended ({await self._status()})") from None
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Gone(f"a frame that is none: {error}") from None

    async def _status(self) -> str:
        await self.end()
        code = self._process.returncode
        return signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """Kill it and all that it has started. Whoever waits for a frame of it hears that it is gone."""
        self.is_idle = False
        # Not Process.kill(): that looks for the exit status, which asyncio's watcher then misses.
        with contextlib.suppress(ProcessLookupError):
            if self.is_alive:
                os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it, and wait until it is gone. For whoever reads its frames, and nobody else."""
        self.kill()
        self._stdin.close()
        # wait() returns when the pipes have ended as well, so what is left in them is read.
        with contextlib.suppress(ConnectionError):
            while await self._stdout.read(1 << 16):
                pass
        await self._process.wait()
        self._stack.close()


def _folder(library: str) -> str:
    found = importlib.util.find_spec(library)
    if found is None or found.origin is None:
        raise CannotStart(f"It needs {library}, which is not installed: pip install 'everthink[sandbox]'")
    return os.path.dirname(os.path.dirname(found.origin))


async def _started(*args: str, errors: TextIO) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={"LANG": "C.UTF-8", "TZ": "UTC"},
            cwd="/",
            start_new_session=True,
            limit=1 << 20,
        )
    except OSError as error:
        raise CannotStart(f"The child process cannot be started: {error}") from error
