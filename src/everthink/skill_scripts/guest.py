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
    is_at_root = _are_ours(home)
    if not is_at_root:
        _move(home)
        _import_from(home)
    _speak_of(home)
    path = "/skill/" + job["path"]
    sys.argv = [path, *job["args"]]
    sys.path[0] = os.path.dirname(path)
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
        if not job["has_run"]:
            exec(compile(source, path, "exec"), scope)
            return {}
        with _Lost() as lost:
            exec(compile(source, path, "exec"), scope)
            value = _as_json(_called(scope["run"], job))
        lost.tell()
        return {"value": value}
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
        found = await value
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            raise RuntimeError(
                "run() returned while "
                + str(len(left))
                + " of its tasks were at work, which are stopped now: await them"
            )
        return found

    return asyncio.run(wait())


class _Lost:
    """What was called and never awaited: nothing of it was done, and Python only says so in passing."""

    def __enter__(self) -> _Lost:
        import warnings

        self._names: list[str] = []
        self._shown = warnings.showwarning
        warnings.showwarning = self._show
        return self

    def __exit__(self, *raised: object) -> None:
        import gc
        import warnings

        gc.collect()
        warnings.showwarning = self._shown

    def _show(self, message: Any, category: Any, *more: Any, **named: Any) -> None:
        words = str(message)
        if issubclass(category, RuntimeWarning) and words.endswith("was never awaited"):
            self._names.append(words.split("'")[1])
        self._shown(message, category, *more, **named)

    def tell(self) -> None:
        """Raise for the first of them."""
        for name in self._names:
            raise RuntimeError(
                name
                + "() was called and nobody has awaited it, so nothing of it was done: write await "
                + name
                + "(...)"
            )


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

        call.__qualname__ = "tools." + name
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


for _name, _function in [*vars(Tools).items(), *vars(Workspace).items()]:
    if not _name.startswith("_"):
        _function.__qualname__ = _function.__qualname__.replace("Tools.", "tools.").replace(
            "Workspace.", "workspace."
        )


async def _fetch(url: str, options: Any = None) -> Any:
    return await bridge.call("fetch", url, options)


_fetch.__qualname__ = "fetch"


# --- where its files are


def _are_ours(home: str) -> bool:
    """True where the machine shows the files at the root itself."""
    try:
        return os.path.samefile("/skill", home + "/skill")
    except OSError:
        return False


def _is_place(path: str) -> bool:
    return any(path == place or path.startswith(place + "/") for place in PLACES)


def _plain(home: str, path: Any) -> Any:
    """A path as a script writes it: where the home really is, is none of its business."""
    if isinstance(path, bytes):
        return os.fsencode(_plain(home, os.fsdecode(path)))
    if not isinstance(path, str) or not path.startswith(home + "/") or not _is_place(path[len(home) :]):
        return path
    return path[len(home) :]


def _speak_of(home: str) -> None:
    """Let what Python says of folders be what a script calls them."""
    for module, name in ((os, "getcwd"), (os, "getcwdb"), (os.path, "realpath")):
        setattr(module, name, _spoken(home, getattr(module, name)))


def _spoken(home: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _plain(home, function(*args, **kwargs))

    return call


def _import_from(home: str) -> None:
    """Let modules of the skill be found, and be called, by the paths that a script writes."""
    from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
    from importlib.util import spec_from_file_location

    class Loader(SourceFileLoader):
        def get_data(self, path: str) -> bytes:
            with open(path, "rb") as file:
                data = file.read()
            if path.endswith(".py"):
                _remember(path, data.decode("utf-8", "replace"))
            return data

        def path_stats(self, path: str) -> Any:
            seen = os.stat(path)
            return {"mtime": seen.st_mtime, "size": seen.st_size}

        def set_data(self, path: str, data: Any, **others: Any) -> None:
            """Nothing is kept of a run."""

    class Finder(FileFinder):
        def find_spec(self, fullname: str, target: Any = None) -> Any:
            found = super().find_spec(fullname, target)
            if found is None or found.origin is None or not isinstance(found.loader, SourceFileLoader):
                return found
            path = _plain(home, found.origin)
            inside = found.submodule_search_locations
            return spec_from_file_location(
                fullname,
                path,
                loader=Loader(fullname, path),
                submodule_search_locations=inside and [_plain(home, one) for one in inside],
            )

    def hook(folder: str) -> Any:
        if not _is_place(folder):
            raise ImportError("no folder of the skill")
        return Finder(home + folder, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, hook)


class _Entry:
    """What is in a folder, by the path that a script writes."""

    def __init__(self, home: str, entry: os.DirEntry[Any]) -> None:
        self._entry = entry
        self.name, self.path = entry.name, _plain(home, entry.path)

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return repr(self._entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)


class _Entries:
    """What `os.scandir` gives."""

    def __init__(self, home: str, entries: Any) -> None:
        self._home, self._entries = home, entries

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> _Entry:
        return _Entry(self._home, next(self._entries))

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Read no more."""
        self._entries.close()


def _move(home: str) -> None:
    """Let Python's own functions find them below the home. What is not Python has to look there itself."""

    def moved(path: Any) -> Any:
        if not hasattr(path, "__fspath__") and not isinstance(path, (str, bytes)):
            return path  # a descriptor
        text = str(os.fspath(path)) if not isinstance(path, bytes) else path
        if isinstance(text, bytes):
            return os.fsencode(moved(os.fsdecode(text)))
        plain = os.path.normpath(text)
        return home + plain if _is_place(plain) else path

    def said(value: Any) -> Any:
        """What a function gives, without a word of the home."""
        if isinstance(value, io.IOBase):
            raw: Any = getattr(value, "buffer", value)
            raw = getattr(raw, "raw", raw)
            if isinstance(getattr(raw, "name", None), (str, bytes)):
                raw.name = _plain(home, raw.name)
            return value
        return _plain(home, value)

    def wrapped(function: Callable[..., Any], count: int) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [moved(one) for one in args[:count]] + list(args[count:])
            for name in ("path", "src", "dst", "file"):
                if name in kwargs:
                    kwargs[name] = moved(kwargs[name])
            try:
                return said(function(*given, **kwargs))
            except OSError as error:
                for name in ("filename", "filename2"):
                    if getattr(error, name) is not None:
                        setattr(error, name, _plain(home, getattr(error, name)))
                raise

        return call

    builtins.open = io.open = wrapped(io.open, 1)
    for name, count in _FUNCTIONS.items():
        if hasattr(os, name):
            function = wrapped(getattr(os, name), count)
            if name == "scandir":
                function = _scanning(home, function)
            for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
                if getattr(os, name) in known:
                    known.add(function)
            setattr(os, name, function)


def _scanning(home: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def scandir(*args: Any, **kwargs: Any) -> _Entries:
        return _Entries(home, function(*args, **kwargs))

    return scandir


_FUNCTIONS = {
    **dict.fromkeys(("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rmdir", "remove", "unlink"), 1),
    **dict.fromkeys(("access", "chmod", "chdir", "readlink", "utime", "truncate", "statvfs"), 1),
    **dict.fromkeys(("listxattr", "getxattr", "setxattr", "removexattr", "chown", "lchown", "mkfifo"), 1),
    **dict.fromkeys(("rename", "replace", "link", "symlink"), 2),
}
