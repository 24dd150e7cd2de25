"""One script in a child: sent, answered, stopped, and what came of it.

    Job --frame--> the child --out, call, ... done--> Outcome
                                       |  ^
                             Host.call v  | answer

Only a guest that says `done`, with what its job can have done, leaves the child fit for another job. In every
other case the pool ends it, and nothing that the script wrote is kept.
"""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from ..messages import encode_json
from ..words import said as on_one_line
from .checks import BroughtBack, brought_back
from .child import Begun, Call, Child, Done, Gone, Out, Over
from .port import Host, HostRefused, Job, Outcome, Pause, Status, Stream

__all__ = [
    "GRACE",
    "NOTHING_WRITTEN",
    "NO_MEMORY",
    "OVER_LIMIT",
    "TIMED_OUT",
    "Kept",
    "NotBegun",
    "Run",
    "as_result",
    "too_long",
]

LONGEST_PART = 65_536
"""Bytes of output in one frame, at most."""
GRACE = 3.0
"""Seconds after which a script that does not stop at its limit is killed."""
TIMED_OUT, OVER_LIMIT, NO_MEMORY, BAD_SYNTAX = 124, 126, 137, 2
"""Exit codes of scripts that did not come to their own end."""

NOTHING_WRITTEN = "Nothing was written."
_NO_FILES = BroughtBack({}, (), frozenset())
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError", "Cannot allocate memory")
"""What a child says last when the kernel gives it no more memory."""


class NotBegun(Exception):
    """The child was dead before it had the job: another one can run it."""


class Run:
    """One script in a child. `outcome` runs it, once."""

    def __init__(self, child: Child, job: Job, host: Host) -> None:
        self._child, self._job, self._host = child, job, host
        self._streams: dict[Stream, Kept] = {
            "stdout": Kept(job.limits.output),
            "stderr": Kept(job.limits.output),
        }
        self._has_begun = False
        self._calls = 0
        self._is_over_calls = False
        self._answering: set[asyncio.Task[None]] = set()
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
            ended = self._over("timeout", too_long(wall, "wall"))
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
            "commands": job.commands,
            "collect": job.collect,
            "folders": list(job.folders),
            "files": [(path, len(data)) for path, data in job.files.items()],
            "stdin": len(job.stdin),
            "limits": {
                name: getattr(limits, name)
                for name in ("wall", "cpu", "memory", "output", "files", "file_bytes", "tree_bytes")
            },
        }
        self._child.send(head, job.stdin, *job.files.values())
        await self._child.sent()
        while True:
            said, body = await self._child.receive(most=max(limits.tree_bytes, LONGEST_PART))
            match said:
                case Begun():
                    self._has_begun = True
                case Out():
                    self._take(said.stream, body)
                case Call():
                    self._ask(said)
                case Over(limit="memory"):
                    return self._over("memory", self._too_much_memory())
                case Over():
                    return self._over("timeout", too_long(limits.cpu, "cpu"))
                case Done():
                    return self._done(said, body)
                case _:
                    raise Gone("a frame that has no place here")

    def _take(self, stream: Stream, data: bytes) -> None:
        if text := self._streams[stream].take(data):
            self._host.output(stream, text)

    # --- calls of the host

    def _ask(self, call: Call) -> None:
        if call.name not in self._job.commands:
            raise Gone("a command that the job does not have")
        if self._calls >= self._job.limits.calls:
            self._is_over_calls = True
            self._child.send({"t": "stop"})
            self._child.send({"t": "answer", "id": call.id, "refused": self._too_many_calls()})
            return
        self._calls += 1
        task = asyncio.create_task(self._answer(call))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, call: Call) -> None:
        try:
            value = await self._host.call(call.name, call.args, {"stdin": call.stdin, "cwd": call.cwd})
            answer = {"value": as_result(value)}
        except HostRefused as refused:
            answer = {"refused": str(refused)}
        except Exception as error:  # noqa: BLE001 - raised again where the outcome is waited for
            self._ended = error
            self._child.kill()
            return
        self._child.send({"t": "answer", "id": call.id, **answer})

    async def _leave_calls(self) -> None:
        """Nobody waits for what is still asked."""
        for task in self._answering:
            task.cancel()
        if self._answering:
            await asyncio.wait(self._answering)

    # --- how it ended

    def _done(self, done: Done, body: bytes) -> Outcome:
        """The end that a guest tells of. Only this one leaves the child fit for another job."""
        if done.refused is not None:
            self._child.is_idle = True
            return Outcome(status="failed", error=f"{on_one_line(done.refused)}. {NOTHING_WRITTEN}")
        files = brought_back(done, body, self._job) if done.over is None else _NO_FILES
        self._child.is_idle = True
        status, words, exit_code = self._ending(done)
        if words is not None:
            self._take("stderr", f"bash: {words}\n".encode())
        error = None if status == "done" else words
        if done.over is not None:
            if status == "done":
                status, exit_code = "failed", exit_code or OVER_LIMIT
            error = " ".join(filter(None, (error, self._too_much_to_bring(done))))
        return Outcome(
            status=status,
            error=error,
            exit_code=exit_code,
            dropped_bytes=max(0, min(done.dropped, 1 << 62)),
            changed=files.changed,
            deleted=files.deleted,
            folders=files.folders,
        )

    def _ending(self, done: Done) -> tuple[Status, str | None, int]:
        """How a script ended, what is to be said of it, and its exit code."""
        limits, problem = self._job.limits, on_one_line(done.error or "")
        exit_code = (done.exit or 0) & 255
        if self._is_over_calls:
            return "calls", self._too_many_calls(), OVER_LIMIT
        if done.stopped == "cpu":
            return "timeout", too_long(limits.cpu, "cpu"), TIMED_OUT
        if "execution timeout" in problem:
            return "timeout", too_long(limits.wall, "wall"), TIMED_OUT
        if "memory limit" in problem or "budget exhausted" in problem:
            return "memory", f"{self._too_much_memory()} ({problem})", NO_MEMORY
        if problem.startswith("parse error"):
            return "done", problem, BAD_SYNTAX
        if "limit exceeded" in problem or " exceeded (" in problem:
            return "failed", f"The script went over a limit of bash here ({problem}).", OVER_LIMIT
        if problem:
            return "failed", problem, exit_code or 1
        return "done", None, exit_code

    def _lost(self, gone: Gone) -> Outcome:
        """The child is dead, or nothing that it says can be believed."""
        if not self._has_begun:
            raise NotBegun(str(gone))
        if isinstance(self._ended, Pause):
            return Outcome(status="paused")
        if self._ended is not None:
            raise self._ended
        if any(sign in line for line in self._child.said for sign in _OUT_OF_MEMORY):
            return self._over("memory", self._too_much_memory())
        return Outcome(status="crashed", error=f"The sandbox crashed: {gone}. {NOTHING_WRITTEN}")

    def _over(self, status: Status, words: str) -> Outcome:
        """A limit, reached by a script that did not stop: its child is ended with all that it did."""
        exit_code = TIMED_OUT if status == "timeout" else NO_MEMORY
        self._take("stderr", f"bash: {words}\n".encode())
        return Outcome(status=status, error=f"{words} It was killed. {NOTHING_WRITTEN}", exit_code=exit_code)

    def _too_much_memory(self) -> str:
        return f"The script needs more memory than it may use (memory: {self._job.limits.memory:,} bytes)."

    def _too_many_calls(self) -> str:
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


def too_long(seconds: float, limit: str) -> str:
    """A script reached its limit of time: which, in a sentence."""
    if limit == "cpu":
        return f"The script has worked for more than {seconds:g} seconds (cpu)."
    return f"The script did not end within {seconds:g} seconds (wall)."


def as_result(value: Any) -> dict[str, Any]:
    """What a command prints, and its exit code: a text as it is, what is said in full, or JSON."""
    result: dict[str, Any] = {"stdout": "", "stderr": "", "exit_code": 0}
    if value is None:
        return result
    if isinstance(value, str):
        return result | {"stdout": value}
    if isinstance(value, Mapping) and value and cast("Mapping[str, Any]", value).keys() <= result.keys():
        said = result | dict(cast("Mapping[str, Any]", value))
        if all(isinstance(said[name], type(result[name])) for name in result):
            return said | {"exit_code": int(said["exit_code"]) & 255}
    return result | {"stdout": f"{encode_json(value).decode()}\n"}


class Kept:
    """One stream: its beginning as text, and how much was dropped."""

    def __init__(self, most: int) -> None:
        self._room = most
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._texts: list[str] = []
        self.dropped = 0

    def take(self, data: bytes) -> str:
        """The text that is new."""
        kept = data[: self._room]
        self._room -= len(kept)
        self.dropped += len(data) - len(kept)
        text = self._decoder.decode(kept)
        self._texts.append(text)
        return text

    def text(self) -> str:
        """All of it. Half a character at its end is left out when there would have been more."""
        if not self.dropped and self._room:
            self._texts.append(self._decoder.decode(b"", final=True))
        return "".join(self._texts)
