"""In a machine: a job in Python, in the process that the runner has forked for it.

    a script --as snippet, function or program--> an exit code; its value and what it asks: to the runner

One of the texts that are sent into a machine: Python 3.8 or newer, the standard library, nothing of ours.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import types

from .guest_tree import Tree
from .guest_wire import started, write_all

TYPE_CHECKING = False  # importing typing takes longer than most jobs begin
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Answer = Callable[[dict[str, Any]], object]

__all__ = ["Python"]

LONGEST_SAID = 8 * 1024 * 1024
"""Bytes of what a script asks the host, or returns."""


VALUE = "value of the last line"
"""A name that no script can write."""


class Refused(RuntimeError):
    """The host does not do what was asked."""


class Python:
    """One job."""

    def __init__(self, said: dict[str, Any], tree: Tree, asks: int, told: int) -> None:
        """`asks` and `told` are pipes to the runner."""
        self._said, self._tree = said, tree
        self._asks, self._told = asks, told
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._numbers = 0
        self._waiting: dict[int, Answer] = {}
        self._is_listening = False

    def run(self) -> int:
        """Its exit code. What else there is to say goes to the runner."""
        said, style, name = self._said, self._said["style"], ""
        try:
            scope, name = self._prepared()
            if style == "snippet":
                if said["input"] is not None:
                    scope["input"] = said["input"]
                self._tell({"value": _evaluated(said["source"], name, scope)})
            else:
                exec(compile(said["source"], name, "exec"), scope)
                if style == "function":
                    self._tell({"value": _called(scope, said["input"])})
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                return error.code or 0
            sys.stderr.write(str(error.code) + "\n")
            return 1
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is said
            self._failed(error, name)
            return 1
        return 0

    def _prepared(self) -> tuple[dict[str, Any], str]:
        """A module for the script, as Python would begin it, and the name of its file."""
        import linecache

        said, path = self._said, self._said["path"]
        # Anew: those that there are remember what was at their descriptors when Python began.
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (
            open(place, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
            for place in (1, 2)
        )
        sys.dont_write_bytecode = True
        name = self._tree.place(path) if path.startswith("/") else path
        sys.argv = [name, *said["args"]]
        sys.path.insert(0, os.path.dirname(name) if path.startswith("/") else os.getcwd())
        module = types.ModuleType("script" if said["style"] == "function" else "__main__")
        module.__file__ = name
        sys.modules[module.__name__] = module
        spaces = self._spaces()
        if said["style"] != "command":
            module.__dict__.update(spaces)
        if said["seed"] is not None:
            import random

            random.seed(said["seed"])
        source = said["source"]
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        return module.__dict__, name

    def _failed(self, error: BaseException, name: str) -> None:
        import traceback

        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != name:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        sys.stderr.flush()
        if isinstance(error, MemoryError):
            self._tell({"memory": True})
        elif self._said["style"] != "command":
            words = str(error)
            self._tell({"error": type(error).__name__ + (": " + words if words else "")})

    def _tell(self, end: dict[str, Any]) -> None:
        """How it ended. The value of a snippet is left out when it is no JSON, as that of a print is."""
        try:
            self._send({"end": end})
        except (TypeError, ValueError, RecursionError):
            if self._said["style"] == "function":
                kind = type(end["value"]).__name__
                self._send({"end": {"error": f"TypeError: run() returned {kind}, which is no JSON"}})

    def _send(self, said: dict[str, Any]) -> None:
        data = json.dumps(said, allow_nan=False).encode() + b"\n"
        if len(data) > LONGEST_SAID:
            raise ValueError(f"more than {LONGEST_SAID} bytes")
        with self._lock:
            write_all(self._asks, data)

    # --- functions of the host

    def _spaces(self) -> dict[str, Any]:
        """Modules with the functions that may be called, importable by name."""
        tops: dict[str, Any] = {}
        modules: dict[str, types.ModuleType] = {}
        for full, stub in self._said["names"].items():
            folders = full.split(".")[:-1]
            for depth, folder in enumerate(folders):
                place = ".".join(folders[: depth + 1])
                if place in modules:
                    continue
                module = modules[place] = sys.modules[place] = types.ModuleType(place)
                module.__path__ = []
                if depth:
                    setattr(modules[".".join(folders[:depth])], folder, module)
                else:
                    tops[folder] = module
            function = self._function(full, stub)
            if folders:
                setattr(modules[".".join(folders)], function.__name__, function)
            else:
                tops[full] = function
        return tops

    def _function(self, full: str, stub: str) -> Any:
        """A function of the host; one to await, when its stub says so."""

        async def awaits(*args: Any, **kwargs: Any) -> Any:
            import asyncio

            loop = asyncio.get_running_loop()
            future: asyncio.Future[dict[str, Any]] = loop.create_future()

            def settle(said: dict[str, Any]) -> None:
                if not future.done():
                    future.set_result(said)

            self._ask(full, args, kwargs, lambda said: loop.call_soon_threadsafe(settle, said))
            return _value_of(await future)

        def waits(*args: Any, **kwargs: Any) -> Any:
            import queue

            answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
            self._ask(full, args, kwargs, answers.put)
            return _value_of(answers.get())

        function: Any = awaits if "async def " in stub else waits
        function.__name__ = function.__qualname__ = full.rpartition(".")[2]
        function.__doc__ = stub or None
        return function

    def _ask(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], answered: Answer) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(name + " can only be called in the process of the script itself")
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._waiting[number] = answered
            is_first, self._is_listening = not self._is_listening, True
        if is_first:
            started(self._listen)
        self._send({"id": number, "name": name, "args": args, "kwargs": kwargs})

    def _listen(self) -> None:
        with os.fdopen(self._told, "rb") as file:
            for line in file:
                said = json.loads(line)
                with self._lock:
                    answered = self._waiting.pop(said["id"], None)
                if answered is not None:
                    answered(said)


def _value_of(said: dict[str, Any]) -> Any:
    if "refused" in said:
        raise Refused(said["refused"])
    return said.get("value")


def _evaluated(source: str, name: str, scope: dict[str, Any]) -> Any:
    """Run a snippet, which may await; the value of its last line, when that is an expression."""
    import ast

    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        target = ast.Name(VALUE, ast.Store())
        tree.body[-1] = ast.fix_missing_locations(
            ast.copy_location(ast.Assign([target], last.value), last.value)
        )
    code = compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(code, scope)
    if running is None:  # nothing is awaited in it
        return _awaited(scope.pop(VALUE, None))

    async def value() -> Any:
        import inspect

        await running
        value = scope.pop(VALUE, None)
        return await value if inspect.isawaitable(value) else value

    return _awaited(value())


def _called(scope: dict[str, Any], given: Any) -> Any:
    """Call `run` with what was given to the job, and a context when it takes one."""
    import inspect

    run = scope.get("run")
    if not callable(run):
        raise NameError("the script defines no function `run`")
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(one.kind in kinds for one in inspect.signature(run).parameters.values())
    return _awaited(run(*(given, {})[: min(count, 2)]))


def _awaited(value: Any) -> Any:
    import inspect

    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())
