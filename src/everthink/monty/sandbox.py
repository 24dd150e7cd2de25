"""Python for models: Monty, an interpreter of its own, in locked worker processes.

    Job --check of types--> a worker --call--> Host.call --answer, one at a time--> ... --> Outcome

Code sees the functions that its job names, and files; nothing else of this machine. With `now` and `seed` a
second run with the same answers in the same order is the same run: answers are given to the guest one by one,
in the order in which the host has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ..kinds import check_options
from ..sandbox.checks import refusal
from ..sandbox.child import CannotStart
from ..sandbox.kept import Kept
from ..sandbox.pool import OPTIONS
from ..sandbox.port import Host, HostRefused, Isolation, Job, Language, NoHost, Outcome, Pause, Stream
from ..weight import unhurried
from .advice import BUILTINS, advised, blocking
from .files import FILES, HostFiles, Tree, answered
from .values import NotAwaited, TooMuch, from_guest, to_guest
from .workers import MEMORY, Workers

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

__all__ = ["MontySandbox"]

T = TypeVar("T")

SLOW, SLOW_IN_ALL = 0.05, 0.5
"""Seconds of our own time that reading one message of a guest may take, and that all of those may which take
longer. Honest ones take a thousandth of it."""


class MontySandbox:
    """Runs Python in an interpreter that has no machine, in locked processes, which are kept warm."""

    languages: frozenset[Language] = frozenset({"python"})
    isolation: Isolation = "interpreter"

    def __init__(self, *, most: int = 4, jobs_each: int = 500, idle_after: float = 60.0) -> None:
        """At most so many jobs at once, in workers that each run so many and end when they idle."""
        given = {"most": most, "jobs_each": jobs_each, "idle_after": idle_after}
        check_options("MontySandbox", OPTIONS, **given)
        self._workers = Workers(most=most, jobs_each=jobs_each, idle_after=idle_after)
        self._runs: set[_Run] = set()

    async def check(self) -> str | None:
        """Why no Python can run here; `None` when some just did."""
        outcome = await self.run(Job(language="python", source="40 + 2"), NoHost())
        if outcome.value == 42:
            return None
        return outcome.error or f"It answered {outcome.value!r} in the place of 42."

    async def held(self) -> dict[str, str]:
        """The steps with which a worker is locked in: "" for those that hold, else why not."""
        return await self._workers.held()

    async def run(self, job: Job, host: Host) -> Outcome:
        """Run a job to its end."""
        if (refused := _refusal(job)) is not None:
            return Outcome(status="failed", error=refused)
        try:
            async with self._workers.lent() as pool:
                run = _Run(self._workers, pool, job, host)
                self._runs.add(run)
                try:
                    return await run.outcome()
                finally:
                    self._runs.discard(run)
        except CannotStart as error:
            return Outcome(status="failed", error=f"Python cannot run here. {error}")

    async def aclose(self) -> None:
        """End all workers; what runs is killed."""
        for run in tuple(self._runs):
            run.kill()
        while self._runs:
            await asyncio.wait([asyncio.ensure_future(run.over.wait()) for run in self._runs])
            await asyncio.sleep(0)
        await self._workers.aclose()


class _Ended(Exception):
    """The host has ended the guest."""


class _Run:
    """One job in a worker."""

    def __init__(self, workers: Workers, pool: Monty, job: Job, host: Host) -> None:
        self._workers, self._pool, self._job, self._host = workers, pool, job, host
        self._streams: dict[Stream, Kept] = {
            "stdout": Kept(job.limits.output),
            "stderr": Kept(job.limits.output),
        }
        self._loop = asyncio.get_running_loop()
        self._session: MontySession | None = None
        self._pid: int | None = None
        self._tree = Tree(job)
        has_files = any(name.startswith(f"{FILES}.") for name in job.names)
        self._files = HostFiles(self._ask_files) if has_files else self._tree
        self._calls = 0
        # Only the thread that calls Monty writes these two: seconds, and what the guest has given last.
        self._slow = 0.0
        self._given: Any = None
        # Calls that are under way, those that have an answer in the order they got it, those that the guest
        # may have waited for (it names all that are open), those that pass the time, and who waits for one.
        self._asked: dict[int, asyncio.Task[Any]] = {}
        self._answered: deque[int] = deque()
        self._awaited: set[int] = set()
        self._sleeps: set[int] = set()
        self._news = asyncio.Event()
        self._ended: BaseException | None = None
        self._was_killed = False
        self._is_computing = False
        self.over = asyncio.Event()

    async def outcome(self) -> Outcome:
        """Run it."""
        from pydantic_monty import MontyCrashedError, MontyError

        began = time.monotonic()
        limits = self._job.limits
        ended = Outcome(status="crashed", error="The sandbox crashed.")
        try:
            async with asyncio.timeout(limits.wall):
                ended = await self._drive()
        except TimeoutError:
            ended = Outcome(
                status="timeout", error=f"The code did not end within {limits.wall:g} seconds (wall)."
            )
        except _Ended:
            ended = Outcome(status="paused")
        except _TooSlow:
            words = "It took too long to read what the code gave. Give no tuple of tuples as a key."
            ended = Outcome(status="failed", error=words, exit_code=1)
        except MontyCrashedError as error:
            words = "it was killed" if self._was_killed else str(error)
            ended = Outcome(status="crashed", error=f"The sandbox crashed: {words}.")
        except MontyError as error:
            ended = self._failed(error)
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
            dropped_bytes=sum(kept.dropped for kept in self._streams.values()),
            calls=self._calls,
            seconds=time.monotonic() - began,
        )

    # --- driving the guest

    async def _drive(self) -> Outcome:
        from pydantic_monty import MontyComplete, MontyTypingError

        session = await self._begin()
        source, inputs = self._source(), {} if self._job.input is None else {"input": self._job.input}
        given: dict[str, Any] = {
            "inputs": to_guest(inputs),
            "print_callback": self._printed,
            "cwd": self._job.cwd,
            "skip_type_check": not self._job.check_types,
        }
        modules = sorted(_modules(self._job.names))
        if modules:
            await self._through(lambda: session.feed_start(f"import {', '.join(modules)}", **given))
        try:
            said = await self._call(lambda: session.feed_start(source, **given))
            said = await self._answer_all(said)
        except MontyTypingError as error:
            found = blocking(error.display(), self._job.names)
            if found is not None:
                return Outcome(status="failed", error=advised(found, self._job.names), exit_code=1)
            given["skip_type_check"] = True
            said = await self._call(lambda: session.feed_start(source, **given))
            said = await self._answer_all(said)
        assert isinstance(said, MontyComplete)
        try:
            await self._finish()
            value = await unhurried(from_guest, self._given)
        except NotAwaited as error:
            return Outcome(status="failed", error=f"RuntimeError: {error}", exit_code=1)
        except TooMuch as error:
            words = f"The result {error}. Return less, or write it to a file."
            return Outcome(status="failed", error=words, exit_code=1)
        return Outcome(status="done", value=value, exit_code=0)

    async def _finish(self) -> None:
        """Wait for calls that the code has not waited for. Raises when one was refused: nobody heard it."""
        while True:
            if self._ended is not None:
                raise _Ended
            self._news.clear()
            while self._answered:
                call_id = self._answered.popleft()
                error = self._asked.pop(call_id).exception()
                if error is not None and call_id not in self._awaited:
                    raise NotAwaited(f"{error}\nNobody has awaited this: write `await` before the call.")
            if self._asked.keys() <= self._sleeps:
                return
            await self._news.wait()

    def _source(self) -> str:
        source = self._job.source
        if self._job.style != "function":
            return source
        is_async = "\nasync def run(" in f"\n{source}"
        return f"{source}\n{'await ' if is_async else ''}run(input)\n"

    async def _begin(self) -> MontySession:
        job, limits = self._job, self._job.limits
        policy: dict[str, Any] = {"sleep": "zero" if job.now is not None else "call_host"}
        if job.now is not None:
            policy["datetime"] = datetime.fromtimestamp(job.now / 1000, UTC)
        if job.seed is not None:
            policy["random_start"] = {"seed": job.seed}
        plain = [stub or _any(name) for name, stub in job.names.items() if "." not in name]
        session = self._pool.checkout(
            script_name=f"{job.path.removesuffix('.py')}.py",
            limits={
                "max_feed_duration_secs": float(limits.cpu),
                "max_memory": limits.memory,
                "max_suspensions": 20 * limits.calls + 10_000,
                "max_recursion_depth": 500,
            },
            type_check=job.check_types,
            type_check_stubs=BUILTINS + "\n".join(plain),
            type_check_format="concise",
            os_policy=policy,  # pyright: ignore[reportArgumentType]
            external_modules=_modules(job.names),
        )
        self._session = await self._call(session.__enter__)
        self._pid = self._session.worker_pid  # not asked later: it waits for the guest
        return self._session

    async def _through(self, begin: Callable[[], Any]) -> None:
        await self._answer_all(await self._call(begin))

    async def _answer_all(self, said: Any) -> Any:
        """Answer the guest until it has come to its end."""
        from pydantic_monty import FunctionSnapshot, FutureSnapshot, MontyComplete, NameLookupSnapshot

        while not isinstance(said, MontyComplete):
            if self._ended is not None:
                raise _Ended
            match said:
                case FunctionSnapshot() if said.is_os_function:
                    said = await self._answer_system(said)
                case FunctionSnapshot() if said.function_name not in self._job.names:
                    # A name that the checker of types knows, and the interpreter does not: exit().
                    said = await self._raise(said, "NameError", f"name '{said.function_name}' is not defined")
                case FunctionSnapshot():
                    await self._ask(said)
                    said = await self._call(lambda s=said: s.resume({"future": ...}))
                case FutureSnapshot():
                    call_id, asked = await self._next_of(said.pending_call_ids)
                    answer = await self._workers.call(lambda task=asked: _as_answer(task))
                    said = await self._call(lambda s=said, given={call_id: answer}: s.resume(given))
                case NameLookupSnapshot():
                    said = await self._call(self._looked_up(said))
                case _:
                    raise AssertionError(f"Monty says {said!r}")
        return said

    def _looked_up(self, said: Any) -> Callable[[], Any]:
        name = said.variable_name
        if said.object_id is None and name in self._job.names and "." not in name:
            return lambda: said.resume(value=_named(name))
        return said.resume

    async def _answer_system(self, said: Any) -> Any:
        """Files and time; what is not here stays undefined."""
        name = str(said.function_name)
        if name.startswith("import"):
            return await self._call(said.resume_auto)
        if name == "system.sleep":
            await asyncio.sleep(max(0.0, float(self._given[0][0])))
            return await self._call(lambda: said.resume({"return_value": None}))
        if name in ("system.async_sleep", "asyncio.sleep"):
            self._sleeps.add(said.call_id)
            self._add(said.call_id, asyncio.sleep(max(0.0, float(self._given[0][0]))))
            return await self._call(lambda: said.resume({"future": ...}))
        if name != "open" and not name.startswith("Path."):
            return await self._call(said.resume_not_handled)
        try:
            args, kwargs = self._given
            await unhurried(from_guest, self._given)  # only to see that it is not too much
            value: Any = await answered(self._files, name, args, kwargs)
        except TooMuch as error:
            return await self._raise(said, "OSError", f"What {name} is given {error}.")
        except KeyError:
            return await self._call(said.resume_not_handled)
        except UnicodeDecodeError as error:
            return await self._raise(said, "UnicodeDecodeError", str(error))
        except OSError as error:
            kind = type(error).__name__
            return await self._raise(said, kind if kind in _KNOWN_ERRORS else "OSError", str(error))
        except _Ended:
            raise  # why is known already
        except Exception as error:
            self._ended = error
            raise _Ended from error
        return await self._call(lambda: said.resume({"return_value": value}))

    async def _raise(self, said: Any, kind: str, words: str) -> Any:
        return await self._call(lambda: said.resume({"exc_type": kind, "message": words}))

    async def _call(self, function: Callable[[], T]) -> T:
        """Call Monty in a thread. Cancelled meanwhile, the worker is killed and the thread comes back."""
        calling = asyncio.ensure_future(self._workers.call(lambda: self._timed(function)))
        self._is_computing = True
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            self.kill()
            while not calling.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([calling])
            if not calling.cancelled():
                calling.exception()
            raise
        finally:
            self._is_computing = False

    def _timed(self, function: Callable[[], T]) -> T:
        """Call Monty, in its thread, and see how long its values take to be read here.

        A tuple that holds itself a million times is a few bytes, and a key of a dict: the client hashes it.
        Nobody else is served meanwhile, so code that has had this done for a while is ended.
        """
        from pydantic_monty import FunctionSnapshot, MontyComplete

        began = time.thread_time()
        said = function()
        # The client makes objects of values when it is asked for them.
        if isinstance(said, FunctionSnapshot):
            self._given = [said.args, said.kwargs]
        elif isinstance(said, MontyComplete):
            self._given = said.output
        if (took := time.thread_time() - began) > SLOW:
            self._slow += took
            if self._slow > SLOW_IN_ALL:
                raise _TooSlow
        return said

    def kill(self) -> None:
        """Kill the worker; the pool replaces it."""
        self._was_killed = True
        if self._pid is not None and self._session is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    # --- calls of the host

    async def _ask(self, said: Any) -> None:
        name = str(said.function_name)
        if not self._may_ask(name):
            return
        try:
            args, kwargs = await unhurried(from_guest, self._given)
        except NotAwaited as error:
            self._add(said.call_id, _refused(str(error)))
            return
        except TooMuch as error:
            words = f"What {name} is given {error}. Give it less, or write it to a file and pass the path."
            self._add(said.call_id, _refused(words))
            return
        self._add(said.call_id, self._host.call(name, args, kwargs))

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
                self.kill()

    async def _next_of(self, pending: Sequence[int]) -> tuple[int, asyncio.Task[Any]]:
        """The first answer that one of these calls has got."""
        self._awaited.update(pending)
        while True:
            if self._ended is not None:
                raise _Ended
            found = next((one for one in self._answered if one in pending), None)
            if found is not None:
                self._answered.remove(found)
                return found, self._asked.pop(found)
            self._news.clear()
            await self._news.wait()

    # --- what it writes, and how it ends

    def _printed(self, stream: Stream, text: str) -> None:
        """In the thread that waits for the worker."""
        self._loop.call_soon_threadsafe(self._take, stream, text)

    def _take(self, stream: Stream, text: str) -> None:
        if new := self._streams[stream].take(text.encode("utf-8", "replace")):
            self._host.output(stream, new)

    def _failed(self, error: Any) -> Outcome:
        limits = self._job.limits
        words = str(error)
        if "feed time limit exceeded" in words:
            told = f"The code has worked for more than {limits.cpu:g} seconds (cpu)."
            return Outcome(status="timeout", error=told)
        if "memory limit" in words and "MemoryError" in words:
            told = f"The code needs more memory than it may use (memory: {limits.memory:,} bytes)."
            return Outcome(status="memory", error=told)
        shown = error.display() if hasattr(error, "display") else words
        return Outcome(status="failed", error=advised(shown, self._job.names), exit_code=1)

    async def _leave(self) -> None:
        """Nobody waits for what is still asked, and the worker is free again."""
        for task in self._asked.values():
            task.cancel()
        session, self._session = self._session, None
        try:
            if self._asked:
                await asyncio.wait(self._asked.values())
        finally:
            if session is not None:
                from pydantic_monty import MontyError

                with contextlib.suppress(MontyError):
                    await self._workers.call(lambda: session.__exit__(None, None, None))
            self.over.set()


def _as_answer(task: asyncio.Task[Any]) -> Any:
    """What a call came to, for the guest."""
    error = task.exception()
    if error is not None:
        return {"exc_type": "RuntimeError", "message": str(error)}
    return {"return_value": to_guest(task.result())}


async def _refused(words: str) -> None:
    raise HostRefused(words)


class _TooSlow(Exception):
    """Reading what the guest gives has held everybody up for too long."""


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
    if job.limits.memory > MEMORY // 2:
        most, wanted = MEMORY // 2, job.limits.memory
        return f"Code may use {most:,} bytes here, and not {wanted:,} (memory). Nothing was run."
    return refusal(job)


def _any(name: str) -> str:
    return f"async def {name}(*args: Any, **kwargs: Any) -> Any: ..."


def _named(name: str) -> Callable[..., None]:
    def function(*args: Any, **kwargs: Any) -> None:
        """Never called: Monty asks us."""

    function.__name__ = name
    return function


def _modules(names: Mapping[str, str]) -> dict[str, Any]:
    """The functions whose names have a dot, as modules that a guest can import."""
    from pydantic_monty import ExternalModule

    stubs: dict[str, dict[str, str]] = {}
    for name, stub in names.items():
        module, dot, function = name.partition(".")
        if dot and module != FILES:
            stubs.setdefault(module, {})[function] = stub or _any(function)
    return {
        module: ExternalModule(
            {name: _named(name) for name in functions},
            stubs="from typing import Any, Literal, Mapping, Sequence\n"
            + "\n".join(functions.values())
            + "\n",
        )
        for module, functions in stubs.items()
    }
