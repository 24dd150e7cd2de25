"""Monty's client, in a process of its own: locked in, with one worker that it drives.

    sandbox.py --job, answer--> the client --> a worker, locked in by itself, in which the code runs
               <--call, system, sleep, waits, done, failed--

What code gives is made into objects, hashed, counted and written out here: a tuple in itself a million times,
as a key of a dict, costs this process its time and nobody else's. The kernel ends it when it has worked for
longer than a job may. It imports the standard library, what stands beside it and needs nothing else, and
Monty's client.
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from ..sandbox.frames import PREFIX, lengths, packed
from ..sandbox.guest import Output
from ..sandbox.lock import lock_down
from .values import NotAwaited, TooMuch, from_guest, given_in_json, out_of_json

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontySession

__all__ = ["main"]

THREADS = 3
"""Those of the client: one of ours, one that reads the worker, one that looks at the time."""
LONGEST_WORDS = 10_000
"""Characters of the beginning and of the end of an error."""
_FIRST = """
import asyncio, datetime, pathlib, decimal
class A:
    def __init__(self): self.x = 1
[A(), {(1,): {2}}, b'', 1.5, datetime.datetime.now(), datetime.date.today(), datetime.timedelta(1),
    datetime.timezone.utc, pathlib.Path('/a'), len, int, ValueError('x'), range(3), decimal.Decimal('1')]
"""
"""Has the client load all that it loads when it is first needed, while there are files."""


class _Left(Exception):
    """The host wants no more of the job."""


class _Pipes:
    """Both pipes. Reading waits: nothing else goes on here."""

    def send(self, head: dict[str, Any], *parts: bytes) -> None:
        """Write a frame. Whoever reads too slowly makes us wait."""
        view = memoryview(packed(json.dumps(head).encode(), parts))
        while view:
            view = view[os.write(1, view) :]

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next frame of the host. Without a host this process ends, and its worker with it."""
        head, body = lengths(self._read(PREFIX))
        return json.loads(self._read(head)), self._read(body)

    def _read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size:
            part = os.read(0, min(size, 1 << 20))
            if not part:
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _Job:
    """One job in the worker."""

    def __init__(self, pipes: _Pipes, pool: Monty, head: dict[str, Any], body: bytes) -> None:
        self._pipes, self._pool, self._head = pipes, pool, head
        self._input = out_of_json(body) if body else None
        self._names = frozenset[str](head["names"])
        most = head["limits"]["output"]
        self._streams = {name: Output(pipes.send, name, most) for name in ("stdout", "stderr")}

    def run(self) -> None:
        """Run it, and say how it ended."""
        from pydantic_monty import MontyCrashedError, MontyError

        session: MontySession | None = None
        try:
            session = self._begin()
            self._pipes.send({"t": "begun"})
            self._told(self._fed(session))
        except _Left:
            self._pipes.send({"t": "done", "stopped": "left"})
        except MontyCrashedError as error:
            self._fail("crashed", error)
            session = None
        except MontyError as error:
            self._fail("raised", error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if session is not None:
                session.__exit__(None, None, None)

    def _begin(self) -> MontySession:
        from pydantic_monty import ExternalModule

        head, limits = self._head, self._head["limits"]
        policy: dict[str, Any] = {"sleep": "zero" if head["now"] is not None else "call_host"}
        if head["now"] is not None:
            policy["datetime"] = datetime.fromtimestamp(head["now"] / 1000, UTC)
        if head["seed"] is not None:
            policy["random_start"] = {"seed": head["seed"]}
        modules = {
            module: ExternalModule({name: _named(name) for name in given["names"]}, stubs=given["stubs"])
            for module, given in head["modules"].items()
        }
        # The kernel ends this process then: what holds it is in the client, which looks at no signal.
        signal.setitimer(signal.ITIMER_PROF, limits["cpu"])
        return self._pool.checkout(
            script_name=head["script"],
            limits={
                "max_feed_duration_secs": float(limits["cpu"]),
                "max_memory": limits["memory"],
                "max_suspensions": 20 * limits["calls"] + 10_000,
                "max_recursion_depth": 500,
            },
            type_check=head["checks"],
            type_check_stubs=head["stubs"],
            type_check_format="concise",
            os_policy=policy,  # pyright: ignore[reportArgumentType]
            external_modules=modules,
        ).__enter__()

    def _fed(self, session: MontySession) -> Any:
        from pydantic_monty import MontyTypingError

        head = self._head
        given: dict[str, Any] = {
            "inputs": {} if self._input is None else {"input": self._input},
            "print_callback": self._printed,
            "cwd": head["cwd"],
            "skip_type_check": not head["checks"],
        }
        if head["modules"]:
            self._answered(session.feed_start(f"import {', '.join(sorted(head['modules']))}", **given))
        try:
            return self._answered(session.feed_start(head["source"], **given))
        except MontyTypingError as error:
            self._fail("types", error)
            self._heard()  # the host has only doubts, or leaves
            given["skip_type_check"] = True
            return self._answered(session.feed_start(head["source"], **given))

    def _heard(self) -> tuple[dict[str, Any], bytes]:
        said, body = self._pipes.receive()
        if said["t"] == "leave":
            raise _Left
        return said, body

    def _printed(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        self._streams[stream].write(text.encode("utf-8", "replace"))

    # --- what the code asks for

    def _answered(self, said: Any) -> Any:
        """Answer the code until it has come to its end."""
        from pydantic_monty import FunctionSnapshot, FutureSnapshot, MontyComplete, NameLookupSnapshot

        while not isinstance(said, MontyComplete):
            match said:
                case FunctionSnapshot() if said.is_os_function:
                    said = self._system(said)
                case FunctionSnapshot() if said.function_name not in self._names:
                    # A name that the checker of types knows, and the interpreter does not: exit().
                    words = f"name '{said.function_name}' is not defined"
                    said = said.resume({"exc_type": "NameError", "message": words})
                case FunctionSnapshot():
                    self._given({"t": "call", "id": said.call_id, "name": said.function_name}, said)
                    said = said.resume({"future": ...})
                case FutureSnapshot():
                    self._pipes.send({"t": "waits", "ids": list(said.pending_call_ids)})
                    head, body = self._heard()
                    said = said.resume({head["id"]: _answer(head, body)})
                case NameLookupSnapshot():
                    name = said.variable_name
                    is_ours = said.object_id is None and name in self._names and "." not in name
                    said = said.resume(value=_named(name)) if is_ours else said.resume()
                case _:
                    raise AssertionError(f"Monty says {said!r}")
        return said

    def _given(self, head: dict[str, Any], said: Any) -> None:
        """Tell the host of a call, and what it is given, or why that cannot be told."""
        try:
            body = given_in_json([said.args, said.kwargs])
        except NotAwaited as error:
            self._pipes.send({**head, "refused": str(error)})
        except TooMuch as error:
            name = said.function_name
            words = f"What {name} is given {error}. Give it less, or write it to a file and pass the path."
            self._pipes.send({**head, "refused": words})
        else:
            self._pipes.send(head, body)

    def _system(self, said: Any) -> Any:
        """Files and time; what is not here stays undefined."""
        name = str(said.function_name)
        if name.startswith("import"):
            return said.resume_auto()
        if name in ("system.sleep", "system.async_sleep", "asyncio.sleep"):
            return self._sleep(said, waits=name == "system.sleep")
        if name != "open" and not name.startswith("Path."):
            return said.resume_not_handled()
        args = list(said.args)
        if args and hasattr(args[0], "path"):
            args[0] = args[0].path  # an open file
        try:
            body = given_in_json([args, said.kwargs])
        except TooMuch as error:
            return said.resume({"exc_type": "OSError", "message": f"What {name} is given {error}."})
        except NotAwaited as error:
            return said.resume({"exc_type": "TypeError", "message": str(error)})
        self._pipes.send({"t": "system", "name": name}, body)
        head, body = self._heard()
        if head.get("kind") == "unknown":
            return said.resume_not_handled()
        return said.resume(_answer(head, body))

    def _sleep(self, said: Any, *, waits: bool) -> Any:
        try:
            seconds = min(max(0.0, float(said.args[0])), 1e9)
        except (TypeError, ValueError, IndexError) as error:
            return said.resume({"exc_type": "TypeError", "message": str(error)})
        self._pipes.send({"t": "sleep", "id": None if waits else said.call_id, "seconds": seconds})
        if not waits:
            return said.resume({"future": ...})
        self._heard()
        return said.resume({"return_value": None})

    # --- how it ended

    def _told(self, said: Any) -> None:
        try:
            value = given_in_json(said.output)
        except NotAwaited as error:
            self._done(refused=f"RuntimeError: {error}")
        except TooMuch as error:
            self._done(refused=f"The result {error}. Return less, or write it to a file.")
        else:
            self._done(value, value=len(value))

    def _done(self, *parts: bytes, **told: Any) -> None:
        dropped = sum(stream.dropped for stream in self._streams.values())
        self._pipes.send({"t": "done", "dropped": dropped, **told}, *parts)

    def _fail(self, kind: str, error: Any) -> None:
        shown = error.display() if hasattr(error, "display") else str(error)
        dropped = sum(stream.dropped for stream in self._streams.values())
        words = {"words": _short(str(error)), "shown": _short(shown), "dropped": dropped}
        self._pipes.send({"t": "failed", "kind": kind, **words})


def _answer(head: Mapping[str, Any], body: bytes) -> Any:
    """An answer of the host, for the code."""
    from pydantic_monty import MontyFileHandle, StatResult

    value: Any = out_of_json(body) if body else None
    match head["kind"]:
        case "raised":
            return {"exc_type": head["exception"], "message": head["words"]}
        case "file":
            try:
                return {"return_value": MontyFileHandle(*value)}
            except ValueError as error:
                return {"exc_type": "ValueError", "message": str(error)}
        case "folder":
            return {"return_value": [PurePosixPath(path) for path in value]}
        case "stat":
            is_folder, size, modified = value
            if is_folder:
                return {"return_value": StatResult.dir_stat(mtime=modified)}
            return {"return_value": StatResult.file_stat(size, mtime=modified)}
        case _:
            return {"return_value": value}


def _named(name: str) -> Callable[..., None]:
    def function(*args: Any, **kwargs: Any) -> None:
        """Never called: Monty asks us."""

    function.__name__ = name
    return function


def _short(text: str) -> str:
    if len(text) <= 2 * LONGEST_WORDS:
        return text
    return f"{text[:LONGEST_WORDS]}\n…\n{text[-LONGEST_WORDS:]}"


def _pool(binary: str, line: list[str]) -> Monty:
    """The client, with its worker. `line` locks that in first; with none it is started as it is."""
    from pydantic_monty import Monty

    path, place = binary, None
    if line:
        # What a worker is started with is a path: the client gives it neither arguments nor environment.
        # In memory, so that no file is left behind; the shell reads it by the name that it has with us.
        place = os.memfd_create("everthink-monty", os.MFD_CLOEXEC)
        command = shlex.join(word if word != "{parent}" else str(os.getpid()) for word in line)
        os.write(place, f'#!/bin/sh\nexec {command} "$@" 2>/dev/null\n'.encode())
        os.fchmod(place, 0o500)
        path = f"/proc/{os.getpid()}/fd/{place}"
    # Behind the lock no other worker can be started, and none be killed: the host ends all of us.
    pool = Monty(
        binary_path=path, min_processes=1, max_processes=1, feed_duration_limit_grace=None
    ).__enter__()
    with pool.checkout() as session:
        said: Any = session.feed_start(_FIRST)
        while not hasattr(said, "output"):
            said = said.resume_auto()
        from_guest(said.output)
    if place is not None:
        os.close(place)
    return pool


def main() -> None:
    """Run as the program that a child is."""
    memory, parent, given = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    pipes = _Pipes()
    pool = _pool(given["binary"], given["line"])
    pipes.send({"t": "ready", "held": lock_down(memory=memory, parent=parent, threads=THREADS)})
    gc.collect()
    gc.freeze()
    while True:
        head, body = pipes.receive()
        if head["t"] != "job":
            continue
        try:
            _Job(pipes, pool, head, body).run()
        except MemoryError:
            pipes.send({"t": "over", "limit": "memory"})
            os._exit(1)
        del head, body
