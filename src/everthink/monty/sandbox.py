"""Python for models: Monty, an interpreter of its own, in locked worker processes.

    Job --> guest.py, Monty's client --> a worker --call--> Host.call --answers, one by one--> Outcome

Code sees the functions that its job names, and files; nothing else of this machine. With `now` and `seed` a
second run with the same answers in the same order is the same run: answers are given to the guest one by one,
in the order in which the host has them. No object that code has made is made here: what it gives comes as
JSON of a bounded length, from a process that may be held by it.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from .. import sandbox
from ..sandbox.checks import refusal
from ..sandbox.child import (
    BOOT,
    Begun,
    Call,
    CannotStart,
    Child,
    Done,
    Failed,
    Gone,
    Out,
    Over,
    Said,
    Sleep,
    System,
    Waits,
)
from ..sandbox.engine import ChildSandbox
from ..sandbox.kept import Kept
from ..sandbox.lock import unsupported
from ..sandbox.port import Host, HostRefused, Isolation, Job, Language, NoHost, Outcome, Pause, Stream
from ..sandbox.running import GRACE, NotBegun, Runs, out_of_memory
from ..weight import unhurried
from .advice import BUILTINS, advised, blocking
from .files import FILES, Answer, HostFiles, Tree, answered
from .values import in_json, out_of_json, to_guest

__all__ = ["MontySandbox"]

WORKER_MEMORY = 512 * 1024 * 1024
"""Bytes that a worker may have in all: its jobs have limits of their own, far below."""
CLIENT_MEMORY = 512 * 1024 * 1024
"""Bytes that its client may have beside what it starts with: what code gives is objects there, and text."""
LONGEST_BODY = 36 * 1024 * 1024
"""Bytes of the JSON of one value, at most: a little more than a client says."""
LEAVING = 5.0
"""Seconds in which a client that waits for us says that its worker is free again."""


class MontySandbox(ChildSandbox):
    """Runs Python in an interpreter that has no machine, in locked processes, which are kept warm."""

    languages: frozenset[Language] = frozenset({"python"})
    isolation: Isolation = "interpreter"
    name = "Python"

    def __init__(self, *, most: int = 4, jobs_each: int = 500, idle_after: float = 60.0) -> None:
        """At most so many jobs at once, in workers that each run so many and end when they idle."""
        super().__init__(most=most, jobs_each=jobs_each, idle_after=idle_after)

    async def check(self) -> str | None:
        """Why no Python can run here; `None` when some just did."""
        outcome = await self.run(self._probe(), NoHost())
        if outcome.value == 42:
            return None
        return outcome.error or f"It answered {outcome.value!r} in the place of 42."

    async def run(self, job: Job, host: Host) -> Outcome:
        """Run a job to its end."""
        if (refused := self._refusal(job)) is not None:
            return Outcome(status="failed", error=refused)
        return await super().run(job, host)

    async def _start(self, memory: int) -> Child:
        given = json.dumps(_worker())
        here = os.path.dirname(os.path.dirname(__file__))
        libraries = ("pydantic_monty", "typing_extensions")
        return await Child.start("monty.guest", libraries, given, memory=memory, beside=here, is_safe=True)

    def _memory(self, job: Job) -> int:
        return CLIENT_MEMORY

    def _run(self, child: Child, job: Job, host: Host) -> _Run:
        return _Run(child, job, host)

    def _refusal(self, job: Job) -> str | None:
        return _refusal(job)

    def _probe(self) -> Job:
        return Job(language="python", source="40 + 2")


class _Ended(Exception):
    """The host has ended the guest."""


class _Run(Runs):
    """One job in a client and its worker."""

    def __init__(self, child: Child, job: Job, host: Host) -> None:
        self._child, self._job, self._host = child, job, host
        self._streams: dict[Stream, Kept] = {
            "stdout": Kept(job.limits.output),
            "stderr": Kept(job.limits.output),
        }
        self._tree = Tree(job)
        has_files = any(name.startswith(f"{FILES}.") for name in job.names)
        self._files = HostFiles(self._ask_files) if has_files else self._tree
        self._calls = 0
        self._dropped = 0
        # Calls that are under way, those that have an answer in the order they got it, those that the guest
        # may have waited for (it names all that are open), those that pass the time, and who waits for one.
        self._asked: dict[int, asyncio.Task[Any]] = {}
        self._answered: deque[int] = deque()
        self._awaited: set[int] = set()
        self._sleeps: set[int] = set()
        self._news = asyncio.Event()
        self._ended: BaseException | None = None
        self._has_begun = False
        # Whether the guest works; else it waits for us, and can be told to leave.
        self._is_computing = True

    async def outcome(self) -> Outcome:
        """Run it. Raises `NotBegun` when the child has died while it rested."""
        began = time.monotonic()
        limits = self._job.limits
        self._child.is_idle = False
        ended = Outcome(status="crashed", error="The sandbox crashed.")
        try:
            async with asyncio.timeout(limits.wall):
                ended = await self._drive()
        except TimeoutError:
            words = f"The code did not end within {limits.wall:g} seconds (wall)."
            ended = Outcome(status="timeout", error=words)
        except _Ended:
            ended = Outcome(status="paused")
        except Gone as gone:
            ended = self._lost(gone)
        except BaseException:
            self._is_computing = True  # cancelled: killed, whatever it does
            raise
        finally:
            await self._leave()
        if isinstance(self._ended, Pause):
            ended = Outcome(status="paused")
        elif self._ended is not None and not isinstance(self._ended, _TooManyCalls):
            raise self._ended
        elif self._ended is not None:
            ended = Outcome(
                status="calls", error=f"The code asked the host more than {limits.calls:,} times (calls)."
            )
        if ended.status == "done":
            ended = replace(
                ended,
                changed=self._tree.changed(),
                deleted=self._tree.deleted(),
                folders=self._tree.left(),
            )
        return replace(
            ended,
            stdout=self._streams["stdout"].text(),
            stderr=self._streams["stderr"].text(),
            dropped_bytes=self._dropped + sum(kept.dropped for kept in self._streams.values()),
            calls=self._calls,
            seconds=time.monotonic() - began,
        )

    # --- driving the guest

    async def _drive(self) -> Outcome:
        job, body = self._job, b""
        if job.input is not None:
            body = await unhurried(_packed, job.input)
        self._say(self._begin(), body)
        await self._child.sent()
        while True:
            said, body = await self._next()
            match said:
                case Begun():
                    self._has_begun = True
                case Call():
                    await self._ask(said, body)
                case Sleep():
                    await self._sleep(said)
                case System():
                    self._is_computing = False
                    await self._answer_system(said, body)
                case Waits():
                    self._is_computing = False
                    await self._answer_one_of(said.ids)
                case Failed(kind="types"):
                    self._is_computing = False
                    if (found := blocking(said.shown, job.names)) is not None:
                        return Outcome(status="failed", error=advised(found, job.names), exit_code=1)
                    self._say({"t": "again"})
                case Failed():
                    return self._failed(said)
                case Done():
                    return await self._done(said, body)
                case Over(limit="memory"):
                    return self._too_much_memory()
                case _:
                    raise Gone("a frame that has no place here")

    async def _next(self) -> tuple[Said, bytes]:
        """What the guest says next, besides output."""
        # A worker that looks at no limit is ended with its client.
        async with asyncio.timeout(2 * self._job.limits.cpu + GRACE) as late:
            while True:
                try:
                    said, body = await self._child.receive(most=LONGEST_BODY)
                except asyncio.CancelledError:
                    if late.expired():
                        raise Gone("it did not end at its limit") from None
                    raise
                if self._ended is not None:
                    raise _Ended
                if not isinstance(said, Out):
                    return said, body
                self._take(said.stream, body)

    def _say(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Let the guest go on."""
        self._child.send(head, body)
        self._is_computing = True

    def _begin(self) -> dict[str, Any]:
        job, limits = self._job, self._job.limits
        plain = [stub or _any(name) for name, stub in job.names.items() if "." not in name]
        return {
            "t": "job",
            "source": self._source(),
            "script": f"{job.path.removesuffix('.py')}.py",
            "checks": job.check_types,
            "stubs": BUILTINS + "\n".join(plain),
            "modules": _modules(job.names),
            "names": list(job.names),
            "cwd": job.cwd,
            "now": job.now,
            "seed": job.seed,
            "limits": {
                "cpu": limits.cpu,
                "memory": limits.memory,
                "calls": limits.calls,
                "output": limits.output,
            },
        }

    def _source(self) -> str:
        source = self._job.source
        if self._job.style != "function":
            return source
        is_async = "\nasync def run(" in f"\n{source}"
        return f"{source}\n{'await ' if is_async else ''}run(input)\n"

    # --- calls of the host

    async def _ask(self, call: Call, body: bytes) -> None:
        if not self._may_ask(call.name):
            raise _Ended
        if call.refused is not None:
            self._add(call.id, _refused(call.refused))
            return
        args, kwargs = await self._given(body)
        self._add(call.id, self._host.call(call.name, args, kwargs))

    async def _given(self, body: bytes) -> tuple[Sequence[Any], Mapping[str, Any]]:
        given = await unhurried(_unpacked, body)
        try:
            args, kwargs = given
        except (TypeError, ValueError):
            raise Gone("a call that is given nothing") from None
        return args, kwargs

    def _may_ask(self, name: str) -> bool:
        if self._calls >= self._job.limits.calls:
            self._end(_TooManyCalls())
            return False
        if name not in self._job.names:
            self._end(_TooManyCalls())  # nothing but what the job names can be called
            return False
        self._calls += 1
        return True

    async def _ask_files(self, name: str, args: Sequence[Any]) -> Any:
        if not self._may_ask(name):
            raise _Ended
        return await self._host.call(name, args, {})

    async def _sleep(self, sleep: Sleep) -> None:
        if sleep.id is not None:
            self._sleeps.add(sleep.id)
            self._add(sleep.id, asyncio.sleep(sleep.seconds))
            return
        self._is_computing = False
        await asyncio.sleep(sleep.seconds)
        self._say({"t": "answer"})

    def _add(self, call_id: int, asked: Any) -> None:
        task = asyncio.ensure_future(asked)
        self._asked[call_id] = task
        task.add_done_callback(functools.partial(self._has_answer, call_id))

    def _has_answer(self, call_id: int, task: asyncio.Future[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, HostRefused):
            self._end(error)
        self._answered.append(call_id)
        self._news.set()

    def _end(self, error: BaseException) -> None:
        """End the guest, whatever it does."""
        if self._ended is None:
            self._ended = error
            self._news.set()
            if self._is_computing:
                self._child.kill()

    async def _answer_one_of(self, pending: Sequence[int]) -> None:
        """Give the guest the first answer that one of these calls has got."""
        self._awaited.update(pending)
        while True:
            if self._ended is not None:
                raise _Ended
            found = next((one for one in self._answered if one in pending), None)
            if found is not None:
                break
            self._news.clear()
            await self._news.wait()
        self._answered.remove(found)
        task = self._asked.pop(found)
        if (error := task.exception()) is not None:
            self._say({"t": "answer", "id": found, **_raised("RuntimeError", str(error))})
            return
        try:
            answer, body = {"kind": "value"}, await unhurried(_packed, task.result())
        except ValueError as error:  # a whole number that cannot be written
            answer, body = _raised("RuntimeError", f"What it gave cannot be given to code: {error}"), b""
        self._say({"t": "answer", "id": found, **answer}, body)

    async def _answer_system(self, asked: System, body: bytes) -> None:
        """Files of the guest."""
        name = asked.name
        args, kwargs = await self._given(body)
        answer, part = {"kind": "unknown"}, b""
        try:
            value: Any = await answered(self._files, name, args, kwargs)
            kind, value = (value.kind, value.value) if isinstance(value, Answer) else ("value", value)
            answer, part = {"kind": kind}, await unhurried(_packed, value)
        except KeyError:
            pass
        except UnicodeDecodeError as error:
            answer = _raised("UnicodeDecodeError", str(error))
        except OSError as error:
            kind = type(error).__name__
            answer = _raised(kind if kind in _KNOWN_ERRORS else "OSError", str(error))
        except (_Ended, Gone):
            raise  # why is known already
        except Exception as error:
            self._ended = error
            raise _Ended from error
        if self._ended is not None:
            raise _Ended
        self._say({"t": "answer", **answer}, part)

    # --- what it writes, and how it ends

    def _take(self, stream: Stream, data: bytes) -> None:
        if new := self._streams[stream].take(data):
            self._host.output(stream, new)

    async def _done(self, done: Done, body: bytes) -> Outcome:
        self._child.is_idle, self._dropped = True, done.dropped
        if (refused := await self._finish()) is not None:
            return Outcome(status="failed", error=f"RuntimeError: {refused}", exit_code=1)
        if done.refused is not None:
            return Outcome(status="failed", error=done.refused, exit_code=1)
        return Outcome(status="done", value=await unhurried(_unpacked, body), exit_code=0)

    async def _finish(self) -> str | None:
        """Wait for calls that the code has not waited for. Words when one was refused: nobody heard it."""
        while True:
            if self._ended is not None:
                raise _Ended
            self._news.clear()
            while self._answered:
                call_id = self._answered.popleft()
                error = self._asked.pop(call_id).exception()
                if error is not None and call_id not in self._awaited:
                    return f"{error}\nNobody has awaited this: write `await` before the call."
            if self._asked.keys() <= self._sleeps:
                return None
            await self._news.wait()

    def _failed(self, failed: Failed) -> Outcome:
        limits, words = self._job.limits, failed.words
        self._dropped = failed.dropped
        if failed.kind == "crashed":
            return Outcome(status="crashed", error=f"The sandbox crashed: {words}.")
        self._child.is_idle = True
        if "feed time limit exceeded" in words:
            told = f"The code has worked for more than {limits.cpu:g} seconds (cpu)."
            return Outcome(status="timeout", error=told)
        if "memory limit" in words and "MemoryError" in words:
            return self._too_much_memory()
        return Outcome(status="failed", error=advised(failed.shown, self._job.names), exit_code=1)

    def _lost(self, gone: Gone) -> Outcome:
        """The child is dead, or nothing that it says can be believed."""
        if self._child.died_of == signal.SIGPROF:
            words = f"It took more than {self._job.limits.cpu:g} seconds (cpu) to read what the code gave."
            return Outcome(status="timeout", error=f"{words} Give no tuple of tuples as a key.")
        if not self._has_begun and self._ended is None:
            raise NotBegun(str(gone))
        if out_of_memory(self._child.said):
            return self._too_much_memory()
        return Outcome(status="crashed", error=f"The sandbox crashed: {gone}.")

    def _too_much_memory(self) -> Outcome:
        most = self._job.limits.memory
        told = f"The code needs more memory than it may use (memory: {most:,} bytes)."
        return Outcome(status="memory", error=told)

    async def _leave(self) -> None:
        """Nobody waits for what is still asked, and the worker is free again, or killed."""
        for task in self._asked.values():
            task.cancel()
        if self._asked:
            await asyncio.wait(self._asked.values())
        if self._child.is_idle:
            return
        if self._is_computing:
            self._child.kill()
            return
        self._say({"t": "leave"})
        try:
            async with asyncio.timeout(LEAVING):
                said, _ = await self._child.receive(most=0)
            self._child.is_idle = isinstance(said, Done)
        except (Gone, TimeoutError):
            self._child.kill()


def _packed(value: Any) -> bytes:
    return in_json(to_guest(value))


def _unpacked(body: bytes) -> Any:
    try:
        return out_of_json(body)
    except (ValueError, RecursionError) as error:
        raise Gone(f"a value that is none: {error}") from None


def _raised(exception: str, words: str) -> dict[str, str]:
    return {"kind": "raised", "exception": exception, "words": words}


async def _refused(words: str) -> None:
    raise HostRefused(words)


class _TooManyCalls(Exception):
    """The limit of calls is reached."""


_KNOWN_ERRORS = frozenset(
    {"FileNotFoundError", "FileExistsError", "IsADirectoryError", "NotADirectoryError", "PermissionError"}
)


def _refusal(job: Job) -> str | None:
    if job.language != "python":
        return f"{job.language} is not run here, only python. Nothing was run."
    if job.style == "command":
        return "Python is run here as a snippet or a function, not as a command. Nothing was run."
    if job.limits.memory > WORKER_MEMORY // 2:
        most, wanted = WORKER_MEMORY // 2, job.limits.memory
        return f"Code may use {most:,} bytes here, and not {wanted:,} (memory). Nothing was run."
    return refusal(job)


def _any(name: str) -> str:
    return f"async def {name}(*args: Any, **kwargs: Any) -> Any: ..."


def _modules(names: Mapping[str, str]) -> dict[str, Any]:
    """The functions whose names have a dot, as modules that a guest can import."""
    stubs: dict[str, dict[str, str]] = {}
    for name, stub in names.items():
        module, dot, function = name.partition(".")
        if dot and module != FILES:
            stubs.setdefault(module, {})[function] = stub or _any(function)
    first = "from typing import Any, Literal, Mapping, Sequence\n"
    return {
        module: {"names": list(functions), "stubs": first + "\n".join(functions.values()) + "\n"}
        for module, functions in stubs.items()
    }


def _worker() -> dict[str, Any]:
    """The program of a worker, and the words of the command that locks it in. Raises `CannotStart`."""
    if find_spec("pydantic_monty") is None:
        raise CannotStart("It needs pydantic_monty, which is not installed: pip install 'everthink[sandbox]'")
    from pydantic_monty._binary import find_monty_binary

    try:
        binary = os.path.realpath(find_monty_binary())
    except FileNotFoundError as error:
        raise CannotStart(f"{error}. Install it: pip install 'everthink[sandbox]'") from error
    if unsupported() is not None:
        return {"binary": binary, "line": []}
    folder = os.path.dirname(sandbox.__file__)
    guest = [sys.executable, "-I", "-S", "-c", BOOT, folder, folder, "locked_program"]
    return {"binary": binary, "line": [*guest, "run", str(WORKER_MEMORY), "{parent}", binary]}
