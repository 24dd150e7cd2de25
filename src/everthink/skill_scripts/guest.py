"""In a machine: stands before a script of a skill in Python, and makes for it what it finds there.

    bridge, and the files below the home --run--> the script --> what it returns, or how it failed

Sent as a text: Python 3.8 or newer, the standard library, nothing of ours. Nothing in here protects anything;
rights are asked for on the other side of `bridge.call`.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    class bridge:
        """A module that the machine makes."""

        @staticmethod
        async def call(what: str, *given: object) -> Any:
            """Ask the other side."""


PLACES = ("/input.json", "/context.json", "/skill", "/output")
"""Where a script finds its files. They are below the home, and where a machine can, at the root as well."""


def run(job: dict[str, Any]) -> Any:
    """Run the script: `{"value"}` of a function, `{}` of a program, `{"failed"}` for an exception."""
    home = os.path.dirname(os.getcwd())
    if not _are_ours(home):
        _move(home)
    path = "/skill/" + job["path"]
    sys.argv = [path, *job["args"]]
    sys.path[0] = os.path.dirname(home + path)
    name = "skill_script" if job["has_run"] else "__main__"
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    try:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        _remember(path, source)
        scope = module.__dict__
        if job["has_run"]:
            scope.update(tools=Tools(), workspace=Workspace(), fetch=_fetch)
            if not job["network"]:
                del scope["fetch"]
        exec(compile(source, path, "exec"), scope)
        return {"value": _as_json(_called(scope["run"], job))} if job["has_run"] else {}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is said
        return {"failed": _told(error, path)}


def _called(function: Callable[..., Any], job: dict[str, Any]) -> Any:
    import inspect

    value = function(*(job["input"], job["context"])[: job["takes"]])
    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def _as_json(value: Any) -> Any:
    import json

    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError("what run() returned is no JSON: " + str(error)) from None
    return value


def _told(error: BaseException, path: str) -> str:
    """Say on standard error how the script failed, in its own lines."""
    import traceback

    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != path:
        frames = frames.tb_next
    told = traceback.TracebackException(type(error), error, frames)
    ours = (__file__, "guest_python.py")
    told.stack[:] = [frame for frame in told.stack if frame.filename not in ours]
    sys.stderr.write("".join(told.format()))
    words = str(error)
    return type(error).__name__ + (": " + words if words else "")


def _remember(path: str, source: str) -> None:
    """So that tracebacks show lines."""
    import linecache

    linecache.cache[path] = (len(source), None, source.splitlines(True), path)


# --- whom it can ask


class Tools:
    """The tools of the runner: `await tools.call(name, input)`, `await tools.name(input)`."""

    async def call(self, name: str, input: Any = None) -> Any:
        """Call one by its name."""
        return await bridge.call("tool", name, input)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)

        async def call(input: Any = None, **named: Any) -> Any:
            return await bridge.call("tool", name, named if input is None and named else input)

        return call


class Workspace:
    """The workspace, as far as the runner was given it."""

    async def read_file(self, path: str) -> Any:
        """The text of a file, `None` when there is none."""
        return await bridge.call("read_file", path)

    async def list_files(self, path: str = ".") -> Any:
        """What is in a folder."""
        return await bridge.call("list_files", path)

    async def glob(self, pattern: str) -> Any:
        """What has a path like this."""
        return await bridge.call("glob", pattern)

    async def stat(self, path: str) -> Any:
        """What is at a path, or `None`."""
        return await bridge.call("stat", path)

    async def write_file(self, path: str, content: str) -> Any:
        """Write a text to a file."""
        return await bridge.call("write_file", path, content)


async def _fetch(url: str, options: Any = None) -> Any:
    return await bridge.call("fetch", url, options)


# --- where its files are


def _are_ours(home: str) -> bool:
    """True where the machine shows the files at the root itself."""
    try:
        return os.path.samefile("/skill", home + "/skill")
    except OSError:
        return False


def _move(home: str) -> None:
    """Let Python's own functions find them below the home. What is not Python has to look there itself."""

    def moved(path: Any) -> Any:
        if not hasattr(path, "__fspath__") and not isinstance(path, (str, bytes)):
            return path  # a descriptor
        text = str(os.fspath(path)) if not isinstance(path, bytes) else path
        if isinstance(text, bytes):
            return os.fsencode(moved(os.fsdecode(text)))
        plain = os.path.normpath(text)
        if any(plain == place or plain.startswith(place + "/") for place in PLACES):
            return home + plain
        return path

    def wrapped(function: Callable[..., Any], count: int) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [moved(one) for one in args[:count]] + list(args[count:])
            for name in ("path", "src", "dst", "file"):
                if name in kwargs:
                    kwargs[name] = moved(kwargs[name])
            return function(*given, **kwargs)

        return call

    builtins.open = io.open = wrapped(io.open, 1)
    for name, count in _FUNCTIONS.items():
        if hasattr(os, name):
            function = wrapped(getattr(os, name), count)
            for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
                if getattr(os, name) in known:
                    known.add(function)
            setattr(os, name, function)


_FUNCTIONS = {
    **dict.fromkeys(("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rmdir", "remove", "unlink"), 1),
    **dict.fromkeys(("access", "chmod", "chdir", "readlink", "utime", "truncate", "statvfs"), 1),
    **dict.fromkeys(("rename", "replace", "link", "symlink"), 2),
}
