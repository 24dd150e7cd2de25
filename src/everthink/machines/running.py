"""One job in a machine: sent, answered, stopped, and what came of it.

    Job --a line--> the runner --out, call ... done--> checks --> Outcome
                                     |  ^
                           Host.call v  | answer

The runner's own clock comes first, and keeps what was written; ours ends the machine. Nothing that comes out
is believed: `tree.unpacked` and `sandbox.checks` compare it with the job.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..messages import encode_json
from ..sandbox.bash import as_result
from ..sandbox.checks import BroughtBack, brought_back, parents_of
from ..sandbox.child import Done as Told
from ..sandbox.child import Gone
from ..sandbox.kept import Kept
from ..sandbox.port import Host, HostRefused, Job, Outcome, Pause, Status, Stream
from ..sandbox.running import (
    GRACE,
    NO_MEMORY,
    NOTHING_WRITTEN,
    OVER_LIMIT,
    TIMED_OUT,
    too_long,
)
from ..words import said as on_one_line
from .frames import Call, Done, Lines, Out
from .port import Pipe
from .tree import packed, unpacked

__all__ = ["Run"]

_NO_FILES = BroughtBack({}, (), frozenset())
_LIMITS = ("wall", "cpu", "memory", "output", "calls", "files", "file_bytes", "tree_bytes", "processes")
_THREAD = 1 << 20
"""Bytes of a tree from which on it is unpacked beside the loop."""


class Run:
    """One job in one process. `outcome` runs it, once."""

    def __init__(self, pipe: Pipe, job: Job, host: Host) -> None:
        self._pipe, self._job, self._host = pipe, job, host
        known = len(job.files) + len(job.folders)
        self._lines = Lines(pipe, job.limits, known)
        self._streams: dict[Stream, Kept] = {
            "stdout": Kept(job.limits.output),
            "stderr": Kept(job.limits.output),
        }
        self._calls = 0
        self._is_over_calls = False
        self._answering: set[asyncio.Task[None]] = set()
        # What ends the job from our side: the machine is ended then, and whoever reads it looks here.
        self._ended: BaseException | None = None
        self._has_heard = False

    async def outcome(self) -> Outcome:
        """Run it. The machine is gone when this returns, or raises."""
        began = time.monotonic()
        wall = self._job.limits.wall
        try:
            async with asyncio.timeout(wall + GRACE):
                ended = await self._until_done()
        except TimeoutError:
            ended = self._killed(too_long(wall, "wall"))
        except Gone as gone:
            ended = self._lost(gone)
        finally:
            await self._leave()
        if ended.status == "crashed" and not self._has_heard:
            ended = replace(ended, error=self._never_begun(ended.error))
        return replace(
            ended,
            stdout=self._streams["stdout"].text(),
            stderr=self._streams["stderr"].text(),
            dropped_bytes=ended.dropped_bytes + sum(kept.dropped for kept in self._streams.values()),
            calls=self._calls,
            seconds=time.monotonic() - began,
            place=getattr(self._pipe, "place", ""),
        )

    async def _until_done(self) -> Outcome:
        # A machine that does not read is not waited for: it may have ended, and said why.
        sending = asyncio.create_task(self._pipe.write(_line(_job(self._job))))
        try:
            while True:
                said = await self._lines.next()
                self._has_heard = True
                match said:
                    case Out():
                        self._take(said.s, said.d)
                    case Call():
                        await self._ask(said)
                    case Done():
                        return await self._done(said)
        finally:
            sending.cancel()
            await asyncio.wait({sending})

    def _take(self, stream: Stream, data: bytes) -> None:
        if text := self._streams[stream].take(data):
            self._host.output(stream, text)

    async def _leave(self) -> None:
        """End the machine, even if whoever waits for it is cancelled meanwhile; then that is raised."""
        for task in self._answering:
            task.cancel()
        ending = asyncio.create_task(self._pipe.kill())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await asyncio.wait({ending})
            raise
        finally:
            if self._answering:
                await asyncio.wait(self._answering)

    # --- calls of the host

    async def _ask(self, call: Call) -> None:
        is_command = call.stdin is not None
        if call.name not in (self._job.commands if is_command else self._job.names):
            raise Gone("a call that the job does not have")
        if self._calls >= self._job.limits.calls:
            if not self._is_over_calls:
                self._is_over_calls = True
                await self._send({"stop": "calls"})
            await self._send({"id": call.id, "refused": self._too_many_calls()})
            return
        self._calls += 1
        task = asyncio.create_task(self._answer(call, is_command=is_command))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, call: Call, *, is_command: bool) -> None:
        kwargs = {"stdin": call.stdin, "cwd": call.cwd} if is_command else call.kwargs
        try:
            value = await self._host.call(call.name, call.args, kwargs)
            answer = {"value": as_result(value) if is_command else value}
            line = _line({"id": call.id, **answer})
        except HostRefused as refused:
            line = _line({"id": call.id, "refused": str(refused)})
        except Exception as error:  # noqa: BLE001 - raised again where the outcome is waited for
            self._ended = error
            await self._pipe.kill()
            return
        await self._pipe.write(line)

    async def _send(self, said: dict[str, Any]) -> None:
        await self._pipe.write(_line(said))

    # --- how it ended

    async def _done(self, done: Done) -> Outcome:
        """The end that a runner tells of."""
        if done.refused is not None:
            return Outcome(status="failed", error=f"{on_one_line(done.refused)}. {NOTHING_WRITTEN}")
        files = _NO_FILES
        if done.over is None:
            if len(done.tree) > _THREAD:
                files = await asyncio.to_thread(_compared, done, self._job)
            else:
                files = _compared(done, self._job)
        status, words, exit_code = self._ending(done)
        if words is not None and status in ("timeout", "memory", "calls"):
            self._take("stderr", f"{self._job.language}: {words}\n".encode())
        error = words
        if done.over is not None:
            if status == "done":
                status, exit_code = "failed", exit_code or OVER_LIMIT
            error = " ".join(filter(None, (error, self._too_much_to_bring(done))))
        return Outcome(
            status=status,
            value=done.value if status == "done" else None,
            error=error,
            exit_code=exit_code,
            dropped_bytes=max(0, min(done.dropped, 1 << 62)),
            changed=files.changed,
            deleted=files.deleted,
            folders=files.folders,
        )

    def _ending(self, done: Done) -> tuple[Status, str | None, int]:
        """How a job ended, what is to be said of it, and its exit code."""
        limits = self._job.limits
        exit_code = (done.exit or 0) & 255
        if self._is_over_calls:
            return "calls", self._too_many_calls(), OVER_LIMIT
        match done.stopped:
            case "wall" | "cpu":
                return "timeout", too_long(getattr(limits, done.stopped), done.stopped), TIMED_OUT
            case "memory":
                words = f"The script needs more memory than it may use (memory: {limits.memory:,} bytes)."
                return "memory", words, NO_MEMORY
            case "tree_bytes":
                words = (
                    f"The script wrote more than the disk of {limits.tree_bytes:,} bytes has (tree_bytes)."
                )
                return "failed", words, OVER_LIMIT
            case _:
                pass
        if done.error is not None:
            return "failed", on_one_line(done.error), exit_code or 1
        return "done", None, exit_code

    def _lost(self, gone: Gone) -> Outcome:
        """The machine is gone, or nothing that it says can be believed."""
        if isinstance(self._ended, Pause):
            return Outcome(status="paused")
        if self._ended is not None:
            raise self._ended
        return Outcome(status="crashed", error=f"The machine crashed: {gone}. {NOTHING_WRITTEN}")

    def _never_begun(self, error: str | None) -> str | None:
        """With what a machine said on its standard error that ended without a word of its runner. All of that
        has been read only now that it is gone."""
        said: Sequence[str] = getattr(self._pipe, "said", ())
        words = on_one_line(" ".join(said), 300)
        return f"{error} It said: {words}" if words else error

    def _killed(self, words: str) -> Outcome:
        """A limit, reached by a machine that did not stop: it is ended with all that it did."""
        self._take("stderr", f"{self._job.language}: {words}\n".encode())
        error = f"{words} It was killed. {NOTHING_WRITTEN}"
        return Outcome(status="timeout", error=error, exit_code=TIMED_OUT)

    def _too_many_calls(self) -> str:
        return f"The script asked the host more than {self._job.limits.calls:,} times (calls)."

    def _too_much_to_bring(self, done: Done) -> str:
        limits, which = self._job.limits, on_one_line(done.path or "A file", 200)
        match done.over:
            case "file_bytes":
                found = f"{which} is larger than {limits.file_bytes:,} bytes (file_bytes)."
            case "tree_bytes":
                found = f"The changed files have more than {limits.tree_bytes:,} bytes together (tree_bytes)."
            case "name":
                found = (
                    f"{which} cannot be brought back: its name is no text, too long, or it cannot be read."
                )
            case _:
                found = f"The script changed more than {limits.files:,} files and folders (files)."
        return f"{found} {NOTHING_WRITTEN}"


def _job(job: Job) -> dict[str, Any]:
    """What the runner is told."""
    folders = job.folders | parents_of((*job.files, *job.folders))
    return {
        "language": job.language,
        "source": job.source,
        "path": job.path,
        "style": job.style,
        "input": job.input,
        "args": job.args,
        "stdin": base64.b64encode(job.stdin).decode(),
        "env": dict(job.env),
        "cwd": job.cwd,
        "tree": base64.b64encode(packed(job.files, folders)).decode() if folders or job.files else "",
        "folders": sorted(folders),
        "collect": job.collect,
        "names": dict(job.names),
        "commands": job.commands,
        "seed": job.seed,
        "limits": {name: getattr(job.limits, name) for name in _LIMITS},
    }


def _line(said: dict[str, Any]) -> bytes:
    return encode_json(said) + b"\n"


def _compared(done: Done, job: Job) -> BroughtBack:
    """The difference that this job can have made. Raises `Gone`."""
    files = unpacked(done.tree, job.limits) if done.tree else []
    told = Told(
        changed=[(path, len(data)) for path, data in files],
        deleted=done.deleted,
        folders=done.folders,
    )
    return brought_back(told, b"".join(data for _, data in files), job)
