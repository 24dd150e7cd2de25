"""One script in a child: sent, answered, stopped, and what came of it.

    Job --frame--> the child --out, call, ... done--> Outcome
                                       |  ^
                             Host.call v  | answer

A `Run` is of one engine: what a call and its answer are and how an end is read differs, in the methods at the
bottom. Only a guest that says `done`, with what its job can have done, leaves the child fit for another job.
In every other case the pool ends it, and nothing that the script wrote is kept.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..weight import unhurried
from ..words import said as on_one_line
from .checks import BroughtBack, brought_back
from .child import Begun, Call, Child, Done, Gone, Out, Over
from .kept import Kept
from .port import Host, HostRefused, Job, Outcome, Pause, Status, Stream

__all__ = [
    "GRACE",
    "NOTHING_WRITTEN",
    "NO_MEMORY",
    "OVER_LIMIT",
    "TIMED_OUT",
    "NotBegun",
    "Run",
    "out_of_memory",
    "too_long",
]

LONGEST_PART = 65_536
"""Bytes of output in one frame, at most."""
GRACE = 3.0
"""Seconds after which a script that does not stop at its limit is killed."""
MORE_CALLS = 1_000
"""So many calls beyond its limit may be on the way when a script is told to stop; then it is killed."""
TIMED_OUT, OVER_LIMIT, NO_MEMORY = 124, 126, 137
"""Exit codes of scripts that did not come to their own end."""

NOTHING_WRITTEN = "Nothing was written."
_NO_FILES = BroughtBack({}, (), frozenset())
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError", "Cannot allocate memory")
"""What a child says last when the kernel gives it no more memory."""
_LIMITS = ("wall", "cpu", "memory", "output", "calls", "files", "file_bytes", "tree_bytes")

Ended = tuple[Status, str | None, int]
"""How a script ended, what is to be said of it, and its exit code."""


class NotBegun(Exception):
    """The child was dead before it had the job: another one can run it."""


class Runs(ABC):
    """A job in a child."""

    @abstractmethod
    async def outcome(self) -> Outcome:
        """Run it, once. Raises `NotBegun` when the child has died while it rested."""


class Run(Runs):
    """One script in a child. `outcome` runs it, once."""

    def __init__(self, child: Child, job: Job, host: Host) -> None:
        self._child, self._job, self._host = child, job, host
        self._streams: dict[Stream, Kept] = {
            "stdout": Kept(job.limits.output),
            "stderr": Kept(job.limits.output),
        }
        self._has_begun = False
        self._calls = 0
        self._calls_beyond = 0
        self._answering: set[asyncio.Task[None]] = set()
        # What is long is written in a thread, and sent in the order in which it was answered all the same.
        self._sending = asyncio.Lock()
        # What ends the script from our side: it is killed then, and whoever waits for it looks here.
        self._ended: BaseException | None = None

    async def outcome(self) -> Outcome:
        """Run it. Raises `NotBegun` when the child has died while it rested."""
        began = time.monotonic()
        wall = self._job.limits.wall
        self._child.is_idle = False
        try:
            async with asyncio.timeout(wall + GRACE):
                ended = await self._until_done()
        except TimeoutError:
            ended = self._over("timeout", self.too_long("wall"))
        except Gone as gone:
            ended = self._lost(gone)
        finally:
            await self._leave_calls()
        return replace(
            ended,
            stdout=self._streams["stdout"].text(),
            stderr=self._streams["stderr"].text(),
            dropped_bytes=ended.dropped_bytes + sum(kept.dropped for kept in self._streams.values()),
            calls=self._calls,
            seconds=time.monotonic() - began,
        )

    async def _until_done(self) -> Outcome:
        job, limits = self._job, self._job.limits
        head = {
            "t": "job",
            "source": job.source,
            "cwd": job.cwd,
            "args": job.args,
            "env": dict(job.env),
            "collect": job.collect,
            "folders": list(job.folders),
            "files": [(path, len(data)) for path, data in job.files.items()],
            "stdin": len(job.stdin),
            "limits": {name: getattr(limits, name) for name in _LIMITS},
            **self.asked(),
        }
        self._child.send(head, job.stdin, *job.files.values())
        await self._child.sent()
        while True:
            said, body = await self._child.receive(
                most=max(limits.tree_bytes + limits.file_bytes, LONGEST_PART)
            )
            match said:
                case Begun():
                    self._has_begun = True
                case Out():
                    self.take(said.stream, body)
                case Call():
                    await self._ask(said, body)
                    if self._calls_beyond > MORE_CALLS:
                        return self._over("calls", self.too_many_calls())
                case Over(limit="memory"):
                    return self._over("memory", self.too_much_memory())
                case Over():
                    return self._over("timeout", self.too_long("cpu"))
                case Done():
                    return await self._done(said, body)
                case _:
                    raise Gone("a frame that has no place here")

    def take(self, stream: Stream, data: bytes) -> None:
        """Take output of the script, or words of ours about it."""
        if text := self._streams[stream].take(data):
            self._host.output(stream, text)

    # --- calls of the host

    async def _ask(self, call: Call, body: bytes) -> None:
        if call.name not in self.names():
            raise Gone("a call of what the job does not have")
        if self._calls >= self._job.limits.calls:
            if not self._calls_beyond:
                self._child.send({"t": "stop"})
            self._calls_beyond += 1
            self._child.send({"t": "answer", "id": call.id, "refused": self.too_many_calls()})
            return
        self._calls += 1
        try:  # before the next one is heard: the host is asked in the order of the script
            args, kwargs = await unhurried(self.arguments, call, body)
        except HostRefused as refused:
            self._child.send({"t": "answer", "id": call.id, "refused": str(refused)})
            return
        task = asyncio.create_task(self._answer(call, args, kwargs))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, call: Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        answer: dict[str, Any] = {}
        value, part = None, b""
        try:
            try:
                value = await self._host.call(call.name, args, kwargs)
            except HostRefused as refused:
                answer = {"refused": str(refused)}
            async with self._sending:
                if not answer:
                    answer, part = await unhurried(self.answer, value)
                self._child.send({"t": "answer", "id": call.id, **answer}, part)
                await self._child.sent()
        except Exception as error:  # noqa: BLE001 - raised again where the outcome is waited for
            self._ended = error
            self._child.kill()

    async def _leave_calls(self) -> None:
        """Nobody waits for what is still asked."""
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    # --- how it ended

    async def _done(self, done: Done, body: bytes) -> Outcome:
        """The end that a guest tells of. Only this one leaves the child fit for another job."""
        if done.refused is not None:
            self._child.is_idle = True
            return Outcome(status="failed", error=f"{on_one_line(done.refused)}. {NOTHING_WRITTEN}")
        if not 0 <= (done.value or 0) <= min(len(body), self._job.limits.file_bytes):
            raise Gone("a value that is too large")
        place = len(body) - (done.value or 0)
        files = brought_back(done, body[:place], self._job) if done.over is None else _NO_FILES
        status, error, exit_code = self.ending(done)
        value = None
        if done.value is not None and status == "done":
            try:
                value = await unhurried(self.value, body[place:])
            except HostRefused as refused:
                status, error, exit_code = "failed", str(refused), 1
        self._child.is_idle = True
        if done.over is not None:
            if status == "done":
                status, exit_code = "failed", exit_code or OVER_LIMIT
            error = " ".join(filter(None, (error, self._too_much_to_bring(done))))
        return Outcome(
            status=status,
            value=value,
            error=error,
            exit_code=exit_code,
            dropped_bytes=max(0, min(done.dropped, 1 << 62)),
            changed=files.changed,
            deleted=files.deleted,
            folders=files.folders,
        )

    def _lost(self, gone: Gone) -> Outcome:
        """The child is dead, or nothing that it says can be believed."""
        if not self._has_begun:
            raise NotBegun(str(gone))
        if isinstance(self._ended, Pause):
            return Outcome(status="paused")
        if self._ended is not None:
            raise self._ended
        if out_of_memory(self._child.said):
            return self._over("memory", self.too_much_memory())
        return Outcome(status="crashed", error=f"The sandbox crashed: {gone}. {NOTHING_WRITTEN}")

    def _over(self, status: Status, words: str) -> Outcome:
        """A limit, reached by a script that did not stop: its child is ended with all that it did."""
        codes: dict[Status, int] = {"timeout": TIMED_OUT, "memory": NO_MEMORY}
        self.tell(words)
        error = f"{words} It was killed. {NOTHING_WRITTEN}"
        return Outcome(status=status, error=error, exit_code=codes.get(status, OVER_LIMIT))

    # --- words

    def too_long(self, limit: str) -> str:
        """`wall` or `cpu` is over."""
        return too_long(self._job.limits.cpu if limit == "cpu" else self._job.limits.wall, limit)

    def too_much_memory(self) -> str:
        """`memory` is used up."""
        return f"The script needs more memory than it may use (memory: {self._job.limits.memory:,} bytes)."

    def too_many_calls(self) -> str:
        """`calls` is used up."""
        return f"The script asked the host more than {self._job.limits.calls:,} times (calls)."

    def _too_much_to_bring(self, done: Done) -> str:
        limits = self._job.limits
        match done.over:
            case "file_bytes":
                which = on_one_line(done.path or "A file", 200)
                found = f"{which} is larger than {limits.file_bytes:,} bytes (file_bytes)."
            case "tree_bytes":
                found = f"The changed files have more than {limits.tree_bytes:,} bytes together (tree_bytes)."
            case _:
                found = f"The script changed more than {limits.files:,} files and folders (files)."
        return f"{found} {NOTHING_WRITTEN}"

    # --- what an engine fills in

    @abstractmethod
    def asked(self) -> dict[str, Any]:
        """What its guest is told of the job besides what every guest is."""

    @abstractmethod
    def names(self) -> Sequence[str] | Mapping[str, Any]:
        """What its guest may call."""

    @abstractmethod
    def arguments(self, call: Call, body: bytes) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """With what the host is called. `HostRefused` is told to the guest."""

    @abstractmethod
    def answer(self, value: Any) -> tuple[dict[str, Any], bytes]:
        """The frame that brings what the host has answered."""

    @abstractmethod
    def ending(self, done: Done) -> Ended:
        """What the end is that a guest tells of. Of an end that is not its own the words are told."""

    def value(self, body: bytes) -> Any:
        """The value of the script. `HostRefused` when it cannot be taken."""
        raise Gone("a value, and this has none")

    def tell(self, words: str) -> None:
        """Say among the output of the script why it ended, where that is the custom."""


def too_long(seconds: float, limit: str) -> str:
    """A script reached its limit of time: which, in a sentence."""
    if limit == "cpu":
        return f"The script has worked for more than {seconds:g} seconds (cpu)."
    return f"The script did not end within {seconds:g} seconds (wall)."


def out_of_memory(said: Iterable[str]) -> bool:
    """Whether that is what a child said last."""
    return any(sign in line for line in said for sign in _OUT_OF_MEMORY)
