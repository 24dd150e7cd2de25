"""What every guest does that runs in a child of ours: frames, output, a watch on its work, one job at a time.

    host --job, answer, stop--> standard input  standard output --ready, begun, out, call, over, done--> host

A guest beside this module says how its engine is loaded and how it runs one job; `serve` does the rest. The
standard library only, and the modules beside it that need nothing else. Rights are given up before the first
job is seen. Nothing here is a promise to the host, which checks every frame.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from .frames import PREFIX, lengths, packed
from .lock import lock_down

__all__ = ["Guest", "Output", "Refused", "Running", "Watch", "Wire", "collected", "main", "with_parents"]

_PART = 32_768
"""Bytes of output in one frame, at most."""
_LOOK = 0.05
"""Seconds between looks at the work that was done."""
_LATE = 2.0
"""Seconds of work after which a script that was told to stop is given up."""


class Refused(Exception):
    """The host does not do what a guest asks."""


class Wire:
    """Both pipes."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, Any], memoryview]]] = {}
        self._writing = threading.Lock()  # the watch writes, too

    def send(self, head: dict[str, Any], *parts: bytes) -> None:
        """Write a frame. Whoever reads too slowly makes us wait."""
        view = memoryview(packed(json.dumps(head).encode(), parts))
        with self._writing:
            while view:
                view = view[os.write(1, view) :]

    async def receive(self) -> tuple[dict[str, Any], memoryview]:
        """The next frame of the host."""
        head, body = lengths(await self._reader.readexactly(PREFIX))
        said = json.loads(await self._reader.readexactly(head))
        return said, memoryview(await self._reader.readexactly(body))

    def ask(self, asked: dict[str, Any], *parts: bytes) -> asyncio.Future[tuple[dict[str, Any], memoryview]]:
        """Call the host. It is asked by now; its answer comes later, or `Refused`."""
        self._asked += 1
        answer = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
        self.send({"t": "call", "id": self._asked, **asked}, *parts)
        return answer

    def answered(self, said: dict[str, Any], body: memoryview) -> None:
        """Hand an answer to whoever waits for it."""
        answer = self._waiting.pop(said["id"], None)
        if answer is None or answer.done():
            return
        if "refused" in said:
            answer.set_exception(Refused(said["refused"]))
        else:
            answer.set_result((said, body))

    def forget(self) -> None:
        """Nobody waits any more."""
        for answer in self._waiting.values():
            answer.cancel()
        self._waiting.clear()


class Output:
    """One stream of a script: the beginning goes to the host, the rest is counted."""

    def __init__(self, send: Callable[..., None], stream: str, most: int) -> None:
        self._send, self._stream, self._room = send, stream, most
        self.dropped = 0

    def write(self, data: bytes) -> None:
        """Take what the script has written."""
        kept, self._room = data[: self._room], self._room - min(len(data), self._room)
        self.dropped += len(data) - len(kept)
        for start in range(0, len(kept), _PART):
            self._send({"t": "out", "stream": self._stream}, kept[start : start + _PART])


class Watch:
    """A thread that looks at the work of a job: tells it to stop, and the host when it does not stop."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._loop = asyncio.get_running_loop()
        self._began, self._cpu = 0.0, 0.0
        self._stop: Callable[[str], None] | None = None
        self._job = threading.Event()
        threading.stack_size(1 << 18)  # what is left of the memory is the job's
        threading.Thread(target=self._look, daemon=True).start()
        threading.stack_size(0)

    def begin(self, cpu: float, stop: Callable[[str], None]) -> None:
        """Look at a job from now on."""
        self._began, self._cpu, self._stop = time.process_time(), cpu, stop
        self._job.set()

    def end(self) -> None:
        """The job is over."""
        self._job.clear()
        self._stop = None

    @property
    def is_over(self) -> bool:
        """True when the job has worked for longer than it may."""
        return time.process_time() - self._began > self._cpu

    def _look(self) -> None:
        while True:
            self._job.wait()
            time.sleep(_LOOK)
            worked, stop = time.process_time() - self._began, self._stop
            if stop is None or worked <= self._cpu:
                continue
            self._loop.call_soon_threadsafe(stop, "cpu")
            if worked > self._cpu + _LATE:
                self._wire.send({"t": "over", "limit": "cpu"})
                return  # the host kills us


class Running(ABC):
    """One job."""

    @abstractmethod
    def stop(self, why: str) -> None:
        """End it as soon as it can be."""

    @abstractmethod
    async def outcome(self) -> tuple[dict[str, Any], list[bytes]]:
        """Run it, and return what the host is to be told of its end."""


class Guest(ABC):
    """An engine in a child."""

    @abstractmethod
    def load(self) -> None:
        """Load what is needed, while there are files. No thread may be left by it."""

    async def warm(self) -> None:
        """Run something behind the lock, so that the first job need not wait."""
        await asyncio.sleep(0)

    @abstractmethod
    def job(self, wire: Wire, watch: Watch, job: dict[str, Any], body: memoryview) -> Running:
        """A job of the host."""


def collected(job: dict[str, Any], path: str) -> bool:
    """Whether changes of a path are brought back."""
    return any(top == "/" or path == top or path.startswith(f"{top}/") for top in job["collect"])


def with_parents(folders: Iterable[str], files: Iterable[str]) -> set[str]:
    """Folders and all that are above them and above files, the root left out."""
    known: set[str] = set()
    for path in (*folders, *(path.rpartition("/")[0] for path in files)):
        while path and path not in known:
            known.add(path)
            path = path.rpartition("/")[0]
    return known


async def _serve(guest: Guest, memory: int, parent: int) -> None:
    """Give up all rights, say which are gone, then run jobs until the host closes the pipe."""
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
    wire = Wire(reader)
    guest.load()
    held = lock_down(memory=memory, parent=parent)
    watch = Watch(wire)
    await guest.warm()
    wire.send({"t": "ready", "held": held})
    gc.collect()
    gc.freeze()
    running: Running | None = None
    working: asyncio.Task[None] | None = None
    while True:
        try:
            said, body = await wire.receive()
        except asyncio.IncompleteReadError:
            os._exit(0)  # nobody is there any more
        if said["t"] == "job":
            running = guest.job(wire, watch, said, body)
            wire.send({"t": "begun"})
            working = asyncio.create_task(_work(wire, running))
        elif said["t"] == "answer":
            wire.answered(said, body)
        elif said["t"] == "stop" and running is not None and working is not None and not working.done():
            running.stop("host")
        del body


async def _work(wire: Wire, running: Running) -> None:
    try:
        head, parts = await running.outcome()  # by now the interpreter is gone, and its descriptors with it
        wire.send({"t": "done", **head}, *parts)
    except MemoryError:
        wire.send({"t": "over", "limit": "memory"})
    except Exception as error:  # noqa: BLE001 - the host is told, whatever it is
        wire.send({"t": "done", "refused": f"{type(error).__name__}: {error}"[:500]})
    gc.collect()


def main(guest: Guest) -> None:
    """Run as the program that a child is."""
    asyncio.run(_serve(guest, memory=int(sys.argv[1]), parent=int(sys.argv[2])))
