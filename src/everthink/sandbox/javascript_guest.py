"""What runs in the child: JavaScript and TypeScript, one job at a time, in a fresh QuickJS in WebAssembly.

    guest.py --a job--> Run: a tree, a context --javascript_guest.js--> the script --what it did--> guest.py

Started by child.py as a program of its own: the standard library, quickjs_rs with wasmtime, and the modules
beside this one that need nothing else. A context is closed after its job, whatever became of it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import itertools
import json
import os
import posixpath
import random
import re
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import guest
from .contexts import Contexts, Place
from .guest import Guest, Output, Refused, Running, Watch, Wire, collected, with_parents

_HERE = Path(__file__).parent
_OURS, _INNER = "javascript_guest.js", "<module>"
"""Our own JavaScript, and what the engine calls it."""
_NODE = {"fs": "fs", "fs/promises": "promises", "path": "path", "path/posix": "path"}
_ENDINGS = ("", ".ts", ".js", ".mjs", ".tsx", ".mts", ".json", "/index.ts", "/index.js")
_TYPED = (".ts", ".mts", ".cts", ".tsx")
_STACK = 1_536 * 1024
"""Bytes of stack: some 1,700 calls in each other. Beyond it the engine ends the job."""
_NEVER = 1e9
_LONGEST_WORDS = 4_000
_LONGEST_PATH, _LONGEST_NAME = 4_096, 255
_MOST_RANDOM = 65_536
_MODULE = re.compile(r"^\s*(?:import\b(?!\s*[.(])|export\b)", re.M)
_FUNCTION = re.compile(r"(?:\s|//[^\n]*\n|/\*.*?\*/)*(?:async\s+)?function\b", re.S)
_FRAME = re.compile(r"(?P<top><eval> \()?(?P<at>eval_script:(?P<line>\d{1,9}):(?P<column>\d{1,9}))(?(top)\))")
_TOO_DEEP = "RangeError: The code calls itself too deep, or what it reads is nested too deep."
_WAITS = (
    "It waits for something that never comes: no call of the host is open, and no timer runs."
    " Is there a promise that nobody resolves? Code that has no memory left can end like this, too."
)

_sources: dict[str, str] = {}
"""Our own modules, read while there are files."""


class Wrong(Exception):
    """What a script asks of us cannot be done. It is told the words."""


class Tree:
    """The files that a script sees."""

    def __init__(self, files: Mapping[str, bytes], job: dict[str, Any]) -> None:
        self._sent, self._job, self._limits = files, job, job["limits"]
        self._files: dict[str, bytes] = dict(files)
        self._known = with_parents(job["folders"], files)
        self._folders = set(self._known)
        self._bytes = sum(map(len, files.values()))
        self._new: set[str] = set()
        """Files that were written, and folders that were made."""

    @property
    def is_there(self) -> bool:
        """False when nothing was brought and nothing is brought back."""
        return bool(self._sent or self._job["collect"])

    def place(self, path: str) -> str:
        """The absolute path that a script means."""
        if not self.is_there:
            raise Wrong("There are no files here: nothing could be read, and nothing written would be kept.")
        found = "/" + posixpath.normpath(posixpath.join(self._job["cwd"], path)).lstrip("/")
        names = found.split("/")
        if (
            "\0" in path
            or len(found.encode("utf-8", "replace")) > _LONGEST_PATH
            or any(len(name.encode("utf-8", "replace")) > _LONGEST_NAME for name in names)
        ):
            raise Wrong(f"{path[:80]!r} cannot be the path of a file.")
        return found

    def kind(self, path: str) -> list[Any]:
        """What is there, and how large it is."""
        path = self.place(path)
        if path in self._files:
            return ["file", len(self._files[path])]
        return ["folder", 0] if self.is_folder(path) else [None, 0]

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there."""
        return path == "/" or path in self._folders

    def read(self, path: str) -> bytes:
        """What is in a file."""
        path = self.place(path)
        if path not in self._files:
            raise Wrong(f"{path} is a folder." if self.is_folder(path) else f"There is no file {path}.")
        return self._files[path]

    def write(self, path: str, data: bytes, is_more: bool) -> None:
        """Put a file there, and the folders above it."""
        path = self.place(path)
        if self.is_folder(path):
            raise Wrong(f"{path} is a folder.")
        old = self._files.get(path, b"")
        if is_more:
            data = old + data
        if len(data) > (most := self._limits["file_bytes"]):
            raise Wrong(f"{path} would have {len(data):,} bytes, and may have {most:,} (file_bytes).")
        if self._bytes + len(data) - len(old) > (most := self._limits["tree_bytes"]):
            raise Wrong(f"All files together would have more than {most:,} bytes (tree_bytes).")
        self._make(posixpath.dirname(path))
        self._count(path)
        self._bytes += len(data) - len(old)
        self._files[path] = data

    def folder(self, path: str) -> None:
        """Make a folder, and those above it."""
        self._make(self.place(path))

    def _make(self, path: str) -> None:
        for folder in sorted(with_parents([path.rstrip("/")], ()) - self._folders):
            if folder in self._files:
                raise Wrong(f"{folder} is a file.")
            if folder not in self._known:
                self._count(folder)
            self._folders.add(folder)

    def _count(self, path: str) -> None:
        self._new.add(path)
        if len(self._new) > (most := self._limits["files"]):
            self._new.discard(path)
            raise Wrong(f"{path} is one more than the {most:,} files and folders that may change (files).")

    def list(self, path: str) -> list[str]:
        """The names in a folder."""
        path = self.place(path)
        if not self.is_folder(path):
            raise Wrong(f"{path} is a file." if path in self._files else f"There is no folder {path}.")
        top = path.rstrip("/") + "/"
        every = (*self._files, *self._folders)
        return sorted({name[len(top) :].partition("/")[0] for name in every if name.startswith(top)})

    def remove(self, path: str) -> None:
        """Take away a file, or a folder with all that is in it."""
        path = self.place(path)
        if path != "/" and not self.is_folder(path) and path not in self._files:
            raise Wrong(f"There is no {path}.")
        inside = path.rstrip("/") + "/"
        for name in [name for name in self._files if name == path or name.startswith(inside)]:
            self._bytes -= len(self._files.pop(name))
            self._new.discard(name)
        gone = {name for name in self._folders if name == path or name.startswith(inside)}
        self._folders -= gone
        self._new -= gone

    def changes(self) -> tuple[dict[str, Any], list[bytes]]:
        """What differs from what was sent."""
        changed = {
            path: data
            for path, data in self._files.items()
            if collected(self._job, path) and self._sent.get(path) != data
        }
        gone = [path for path in self._sent if path not in self._files and collected(self._job, path)]
        head = {
            "changed": [(path, len(data)) for path, data in changed.items()],
            "deleted": gone,
            "folders": [path for path in self._folders if collected(self._job, path)],
        }
        return head, list(changed.values())


class Run(Running):
    """One job."""

    def __init__(
        self, wire: Wire, watch: Watch, job: dict[str, Any], body: memoryview, contexts: Contexts
    ) -> None:
        self._wire, self._watch, self._job, self._limits = wire, watch, job, job["limits"]
        self._contexts = contexts
        self._stdin = bytes(body[: job["stdin"]])
        files: dict[str, bytes] = {}
        place = job["stdin"]
        for path, size in job["files"]:
            files[path] = bytes(body[place : place + size])
            place += size
        self._tree = Tree(files, job)
        self._streams = {
            stream: Output(wire.send, stream, self._limits["output"]) for stream in ("stdout", "stderr")
        }
        self._dice = random.Random(job["seed"]) if job["seed"] is not None else random.SystemRandom()
        self._path = posixpath.normpath(job["path"])
        self._names = frozenset(job["names"])
        self._calls = 0
        self._open = 0
        """Calls whose answer the script has not got."""
        self._answers: deque[list[Any]] = deque()
        self._timer: float | None = None
        self._is_left = True
        self._is_finishing = False
        self._is_stuck = False
        # The engine asks us every few thousand steps. It stops to run what is due after some 100,000 jobs, so
        # nothing is left to run only when it has not asked since.
        self._polls, self._seen = 0, 0
        self._news = asyncio.Event()
        self._has_begun = False
        self._is_module = False
        self._before = 0
        self._missing: str | None = None
        self._stopped: str | None = None
        self._exit: int | None = None
        """The code with which it wants to end at once."""
        self._exit_code = 0
        self._raised: str | None = None
        self._refused: str | None = None
        self._value: bytes | None = None
        self._deadline = time.monotonic() + self._limits["wall"]
        self._task: asyncio.Task[Any] | None = None

    # --- its end

    def stop(self, why: str) -> None:
        """End the script: while it waits for something, nothing of it runs any more."""
        self._stopped = self._stopped or why
        if self._task is not None:
            self._task.cancel()

    def must_stop(self) -> bool:
        """Asked by the engine over and over while a script runs; true ends it, whatever it catches."""
        self._polls += 1
        if self._stopped is None:
            if self._watch.is_over:
                self._stopped = "cpu"
            elif time.monotonic() > self._deadline:
                self._stopped = "wall"
        return self._is_ending

    @property
    def _is_ending(self) -> bool:
        return self._stopped is not None or self._exit is not None

    async def outcome(self) -> tuple[dict[str, Any], list[bytes]]:
        """Run the script, and return what the host is to be told of its end."""
        if not self._tree.is_folder(self._job["cwd"]):
            return {"refused": f"There is no folder {self._job['cwd']}"}, []
        self._watch.begin(self._limits["cpu"], self.stop)
        self._task = asyncio.current_task()
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._limits["wall"]):
                await self._evaluate()
        except TimeoutError:
            self._stopped = self._stopped or "wall"
        except asyncio.CancelledError:
            if not (self._is_ending or self._is_stuck):
                raise
        except Wrong as wrong:
            return {"refused": str(wrong)}, []
        except Exception:
            # The engine says all kinds of things when it is ended in the middle of something.
            if not self.must_stop():
                raise
        finally:
            self._task = None
            self._watch.end()
            self._wire.forget()
        self._raised = None if self._is_ending else _WAITS if self._is_stuck else self._raised
        if self._raised is not None and self._job["style"] == "command":
            self._streams["stderr"].write(f"{self._raised}\n".encode("utf-8", "replace"))
        head, parts = self._tree.changes()
        head |= {
            "exit": self._exit
            if self._exit is not None
            else int(self._raised is not None) or self._exit_code,
            "raised": self._raised,
            "stopped": self._stopped,
            "value": None,
            "dropped": sum(stream.dropped for stream in self._streams.values()),
        }
        if self._value is not None and self._raised is None:
            head["value"] = len(self._value)
            parts.append(self._value)
        return head, parts

    # --- its run

    async def _evaluate(self) -> None:
        from quickjs_rs import (
            DeadlockError,
            JSError,
            MemoryLimitError,
            QuickJSError,
            Runtime,
            SourceTransform,
        )
        from wasmtime import Trap, WasmtimeError

        keep: str | None = self._job["keep"]
        loaded, is_whole = self._loaded(), False
        place = None if keep is None else self._contexts.taken(keep, loaded)
        if is_new := place is None:
            place = Place(Runtime(memory_limit=self._limits["memory"], stack_limit=None), loaded)
        place.job = self
        try:
            if is_new:
                self._made(place, SourceTransform.NONE, self._limits["memory"])
                await self._script(place.context)
            else:
                await self._again(place.context)
            is_whole = self._is_left and not self._is_ending
        except MemoryLimitError:
            self._stopped = self._stopped or "memory"
        except DeadlockError:
            self._is_stuck = True
        except JSError as error:
            self._raised = self._in_words("\n".join(filter(None, (str(error), (error.stack or "").rstrip()))))
        except Trap as trap:
            self._raised = (
                _TOO_DEEP if "stack" in str(trap) else f"Error: The engine gave up ({_last(trap)})."
            )
        except (QuickJSError, WasmtimeError) as error:
            self._raised = f"Error: The engine gave up ({_last(error)})."
        finally:
            if keep is not None and is_whole:
                self._contexts.keep(keep, place)
            else:
                place.close()

    def _loaded(self) -> bytes:
        """What tells the modules of this job from others."""
        if self._job["keep"] is None:
            return b""
        parts = [self._job["source"], *itertools.chain(*sorted(self._job["modules"].items()))]
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    @staticmethod
    def _made(place: Place, no_transform: Any, memory: int) -> None:
        """Make a context that asks whichever job is in its place."""
        _ask_while_it_runs(place.runtime, place.must_stop)
        place.runtime.set_module_loader(
            normalize=place.resolved, load=place.module, transform_flags=no_transform
        )
        context = place.context = place.runtime.new_context(timeout=_NEVER)
        if place.loaded:
            _bound_memory(place.runtime, memory)
        context.register("__host", place.asked)
        context.register("__next", place.following, is_async=True)

    async def _again(self, context: Any) -> None:
        """Call a function once more that an earlier job has loaded."""
        given = json.dumps(json.dumps(self._job["input"]))
        await context.eval_async(f"__job.again({given}); await __job.module({json.dumps(self._path)})")

    async def _script(self, context: Any) -> None:
        context.globals["__settings"] = json.dumps(self._settings())
        context.eval(_sources[_OURS], module=True)
        if self._refused is not None:
            raise Wrong(self._refused)
        style, source = self._job["style"], self._job["source"]
        if style == "function":
            self._is_module = True
        else:
            source = self._plain(source)
        if source is not None and not self._is_module:
            source = await self._as_script(context, source)
        if source is not None and self._is_module:
            await context.eval_async(f"await __job.module({json.dumps(self._path)})")

    def _plain(self, source: str) -> str | None:
        """A snippet or a command without types. `None` when it cannot be read."""
        if not self._is_typed(self._path):
            return source
        if _MODULE.search(source):
            self._is_module = True
            return source
        try:
            return _without_types(self._path, source)
        except Wrong as wrong:
            if "'return'" not in str(wrong):
                self._raised = str(wrong)
                return None
        try:
            # Without the call, so that it is found to be no script and wrapped again.
            body = _without_types(self._path, f"async () => {{{source}\n}}").rstrip().rstrip(";")
            return f"return ({body})()"
        except Wrong as wrong:
            self._raised = str(wrong)
            return None

    async def _as_script(self, context: Any, source: str) -> str | None:
        """Run it as a script, whose value is that of its last expression. The source, when it is a module."""
        from quickjs_rs import JSError

        if self._job["style"] == "snippet" and _FUNCTION.match(source):
            with contextlib.suppress(JSError):  # then there is more than one function
                alone = await context.eval_handle_async(f"({source}\n)")
                self._before = 1
                with context.globals.get_handle("__job") as job, alone:
                    job.call_method("take", alone).dispose()
                await context.eval_async("await __job.snippet()")
                return None
        before = "try{__job.begun();"
        self._before = len(before)
        try:
            last = await context.eval_handle_async(
                f"{before}{source}\n}}catch(__e){{__job.threw(__e)}}finally{{__job.left()}}"
            )
        except JSError as error:
            if error.name != "SyntaxError" or self._has_begun:
                raise
            if "return not in a function" in error.message:
                before = "await __job.body(async()=>{"
                self._before = len(before)
                await context.eval_async(f"{before}{source}\n}})")
                return None
            if not _MODULE.search(source):
                raise
            self._is_module = True
            return source
        with context.globals.get_handle("__job") as job, last:
            job.call_method("take", last).dispose()
        await context.eval_async("await __job.snippet()")
        return None

    def _settings(self) -> dict[str, Any]:
        job = self._job
        seed = None if job["seed"] is None else hashlib.sha256(job["seed"].encode()).digest()
        return {
            **{
                name: job[name]
                for name in ("style", "path", "input", "args", "env", "cwd", "names", "now", "keep")
            },
            "stdin": self._stdin.decode("utf-8", "replace"),
            "seed": seed and [int.from_bytes(seed[at : at + 4], "big") for at in (0, 4, 8, 12)],
        }

    def _in_words(self, words: str) -> str:
        """An exception in the names of the job."""
        if (
            words.startswith(("InternalError: out of memory", "InternalError: \n"))
            or words == "InternalError: "
        ):
            self._stopped = self._stopped or "memory"
        if self._missing is not None and "module" in words:
            words += (
                f"\n{self._missing!r} is not here: a script has the modules of its job, the files that it"
                " sees, node:fs and node:path. No package is installed."
            )
        words = _FRAME.sub(self._where, words).replace(" from 'eval_script'", "")
        return words if len(words) <= _LONGEST_WORDS else f"{words[: _LONGEST_WORDS - 1]}…"

    def _where(self, found: re.Match[str]) -> str:
        """A place in the source, without what we have put before its first line."""
        row, column = int(found["line"]), int(found["column"])
        place = f"{self._path}:{row}:{max(1, column - self._before) if row == 1 else column}"
        return place if found["top"] else found[0].replace(found["at"], place)

    # --- modules

    def _is_typed(self, name: str) -> bool:
        return name.endswith(_TYPED) or (name == self._path and self._job["language"] == "typescript")

    def resolved(self, base: str, name: str) -> str | None:
        """Which module is meant."""
        if name == self._path:
            return name
        bare = name.removeprefix("node:")
        if bare in _NODE:
            return f"node:{_NODE[bare]}"
        if name.startswith("."):
            base = self._path if base in ("eval_script", _INNER) else base
            name = posixpath.normpath(posixpath.join(posixpath.dirname(base), name))
        for ending in _ENDINGS:
            if self._text(name + ending) is not None:
                return name + ending
        if name.endswith(".js") and self._text(f"{name[:-3]}.ts") is not None:
            return f"{name[:-3]}.ts"  # as TypeScript writes it
        self._missing = name
        return None

    def _text(self, name: str) -> str | None:
        if name == self._path:
            return self._job["source"]
        if (found := self._job["modules"].get(name)) is not None:
            return found
        if name.startswith("/") and self._tree.is_there and self._tree.kind(name)[0] == "file":
            return self._tree.read(name).decode("utf-8", "replace")
        return None

    def module(self, name: str) -> str | None:
        """The source of a module. What is wrong with it is thrown where it is imported."""
        if (ours := _sources.get(name)) is not None:
            return ours
        text = self._text(name)
        if text is None:
            return None
        try:
            if name.endswith(".json"):
                json.loads(text)
                return f"export default {text}"
            return _without_types(name, text) if self._is_typed(name) else text
        except (Wrong, ValueError, RecursionError) as error:
            return f"throw new SyntaxError({json.dumps(str(error).removeprefix('SyntaxError: '))})"

    # --- what a script asks of us

    def asked(self, what: str, *args: Any) -> Any:
        """Called from JavaScript. An exception would have no words there."""
        try:
            return self._ask(what, *args)
        except Wrong as wrong:
            return {"e": str(wrong)}

    def _ask(self, what: str, *args: Any) -> Any:
        tree = self._tree
        match what, *args:
            case "print", str(stream), str(text):
                self._streams[stream].write(text.encode("utf-8", "replace"))
            case "call", str(name), str(given):
                return self._call(name, given)
            case "refuse", str(words):
                self._refused = words
            case "places", str(words):
                return _FRAME.sub(self._where, words)
            case ("begun",):
                self._has_begun, self._is_left = True, False
            case ("ending",):
                self._is_left = False
            case ("left", *_):
                self._leave()
            case ("finishing",):
                self._is_finishing = True
                self._news.set()
            case "timer", int(wait) | float(wait):
                self._timer = None if wait < 0 else asyncio.get_running_loop().time() + wait / 1_000
                self._news.set()
            case "value", str(text):
                self._returned(text.encode("utf-8", "replace"))
                self._leave()
            case "threw", str(words):
                self._raised = self._in_words(words)
                self._leave()
            case "ended", int(code):
                self._exit_code = code & 255
                self._leave()
            case "exit", int(code):
                self._exit = code & 255
            case "read", str(path), bool(is_text):
                data = tree.read(path)
                return data.decode("utf-8", "replace") if is_text else data
            case "write", str(path), bytes(data), bool(is_more):
                tree.write(path, data, is_more)
            case "list", str(path):
                return tree.list(path)
            case "kind", str(path):
                return tree.kind(path)
            case "folder", str(path):
                tree.folder(path)
            case "remove", str(path):
                tree.remove(path)
            case "encode", str(text):
                return text.encode("utf-8", "replace")
            case "decode", bytes(data):
                return data.decode("utf-8", "replace")
            case "base64", bytes(data):
                return base64.b64encode(data).decode()
            case "bytes", str(text):
                return _decoded(text)
            case "random", int(count):
                return self._dice.randbytes(max(0, min(count, _MOST_RANDOM)))
            case _:
                raise Wrong(f"{what!r} is not known here.")
        return None

    def _leave(self) -> None:
        """The script has come to its end: nothing is to happen any more."""
        self._is_left = True
        self._news.set()

    def _returned(self, value: bytes) -> None:
        if len(value) > (most := self._limits["file_bytes"]):
            self._raised = (
                f"RangeError: What it returns has {len(value):,} bytes, and may have {most:,} (file_bytes)."
            )
        self._value = value

    def _call(self, name: str, given: str) -> int:
        data = given.encode("utf-8", "replace")
        if name not in self._names:
            raise Wrong(f"There is no {name} here.")
        if len(data) > (most := self._limits["file_bytes"]):
            raise Wrong(f"{name} is given {len(data):,} bytes, and may be given {most:,} (file_bytes).")
        self._calls += 1
        if self._calls > self._limits["calls"] + 1:
            raise Wrong("No more calls.")
        answer = self._wire.ask({"name": name}, data)
        if self._calls > self._limits["calls"]:
            self._stopped = self._stopped or "host"  # which counts them, too
        self._open += 1
        number = self._calls
        answer.add_done_callback(lambda answered: self._take(number, answered))
        return number

    def _take(self, number: int, answered: asyncio.Future[tuple[dict[str, Any], memoryview]]) -> None:
        if answered.cancelled():
            return
        try:
            _, body = answered.result()
            self._answers.append([number, None, bytes(body).decode("utf-8", "replace")])
        except Refused as refused:
            words = str(refused).encode("utf-8", "replace").decode()
            self._answers.append([number, words, "null"])
        self._news.set()

    async def following(self) -> list[Any] | bool | None:
        """What happens next. This begins when all that was due has run, or 100,000 jobs of it.

        True: nothing more, for a script that has come to its end. A function does not wait for its timers.
        """
        while True:
            if self._is_ending:
                break
            if self._is_left:
                return []
            if self._polls != self._seen:
                self._seen = self._polls
                return []
            if self._answers:
                self._open -= 1
                return self._answers.popleft()
            has_timer = self._timer is not None and self._job["style"] == "command"
            if self._is_finishing and not self._open and not has_timer:
                self._is_finishing = False
                return True
            wait: float | None = None
            if self._timer is None:
                if not self._open:
                    self._is_stuck = True
                    break
            elif self._job["now"] is None:
                wait = self._timer - asyncio.get_running_loop().time()
            elif not self._open:  # a clock that stands still has no time to wait
                wait = 0
            if wait is not None and wait <= 0:
                return None
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news.wait()
        assert self._task is not None
        self._task.cancel()
        return await asyncio.Event().wait() and None


def _ask_while_it_runs(runtime: Any, is_stopped: Any) -> None:
    """Let the engine ask us whether to go on. It has no public name; without it the watch has us killed."""
    inner = getattr(runtime, "_engine_rt", None)
    if (set_handler := getattr(inner, "set_interrupt_handler", None)) is not None:
        set_handler(is_stopped)


def _bound_memory(runtime: Any, memory: int) -> None:
    """Let a context that is kept have so much memory and no more: the engine does not count all that it
    hands out, and what one context takes the others in this child have not. It has no public name; without
    it the child's own bound holds, for all of them together."""
    for instance in getattr(getattr(runtime, "_engine_rt", None), "_instances", ()):
        store, held = getattr(instance, "store", None), getattr(instance, "mem", None)
        if store is not None and held is not None:
            store.set_limits(memory_size=held.data_len(store) + memory)


def _without_types(name: str, source: str) -> str:
    """TypeScript as JavaScript."""
    from quickjs_rs import SourceTransform, transform_source
    from wasmtime import Trap, WasmtimeError

    kind = SourceTransform.SOURCE_TSX if name.endswith(".tsx") else SourceTransform.SOURCE_TS
    try:
        plain = transform_source(name, source, flags=kind | SourceTransform.STRIP_TYPESCRIPT)
    except (Trap, WasmtimeError):
        raise Wrong(_TOO_DEEP) from None
    except RuntimeError as error:
        words = str(error).removeprefix(f"source parse error in {name}: ")
        raise Wrong(f"SyntaxError: {words} ({name})") from None
    # What is left of a module of which only types were imported.
    return plain.removesuffix("export {};\n") if not _MODULE.search(source) else plain


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Wrong("What is said to be bytes is none.") from None


def _last(error: BaseException) -> str:
    """The last line of an exception, which is the one that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]


# --- loading


def _kept(folder: str) -> Any:
    """`wasmtime.Module`, but compiled once for this machine: into a file that only we may write."""
    import wasmtime

    real, own_engine = wasmtime.Module, wasmtime.Engine

    def module(engine: Any, wasm: bytes) -> Any:
        # Another version in the same place is found out when it is loaded.
        parts = (wasm, str(wasmtime.__file__).encode(), os.uname().machine.encode())
        name = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]
        place = os.path.join(folder, f"{name}.wasm-compiled") if folder else ""
        if (data := _compiled(place)) is not None:
            with contextlib.suppress(wasmtime.WasmtimeError):  # of another processor: compiled again
                return real.deserialize(engine, data)
        config = wasmtime.Config()
        config.parallel_compilation = False  # its threads would stay
        data = bytes(real(own_engine(config), wasm).serialize())
        if place:
            with contextlib.suppress(OSError):  # a folder that cannot be written: the next child compiles
                _keep(place, data)
        return real.deserialize(engine, data)

    return module


def _compiled(place: str) -> bytes | None:
    """What was compiled before, if nobody else can have written it, and it is whole."""
    with contextlib.suppress(OSError), open(place, "rb") as file:
        for what in (os.fstat(file.fileno()), os.stat(os.path.dirname(place))):
            if what.st_uid != os.geteuid() or what.st_mode & 0o022:
                return None
        digest, data = file.read(32), file.read()
        if hashlib.sha256(data).digest() == digest:
            return data
    return None


def _keep(place: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=os.path.dirname(place), delete=False) as file:
        file.write(hashlib.sha256(data).digest() + data)
    os.replace(file.name, place)


class _JavaScript(Guest):
    """quickjs_rs."""

    def load(self) -> None:
        import wasmtime

        module, engine = wasmtime.Module, wasmtime.Engine
        config = wasmtime.Config()
        config.max_wasm_stack = _STACK
        shared = engine(config)
        wasmtime.Module, wasmtime.Engine = _kept(sys.argv[3]), lambda *_: shared  # pyright: ignore
        try:
            from quickjs_rs import Runtime

            with Runtime() as runtime, runtime.new_context() as context:
                context.eval("1")
            _without_types("a.ts", "let a: number = 1")
        finally:
            wasmtime.Module, wasmtime.Engine = module, engine
        _sources[_OURS] = (_HERE / "javascript_guest.js").read_text()
        for name in set(_NODE.values()):
            _sources[f"node:{name}"] = (_HERE / "node" / f"{name}.js").read_text()

    def __init__(self) -> None:
        self._contexts = Contexts()

    def job(self, wire: Wire, watch: Watch, job: dict[str, Any], body: memoryview) -> Run:
        return Run(wire, watch, job, body, self._contexts)


def main() -> None:
    """Run as the program that a child is."""
    guest.main(_JavaScript())
