"""What stands before an extension in Python: its source follows, then a call of `run_extension`.

    sandboxed.py --this, the source, one call--> Monty

Not imported by us: it is read as a text, part by part, since every call reads anew what stands before it.
Nothing in here protects the host, which checks every call.
"""

import json as _json
from typing import Any

import bridge as _sandbox  # pyright: ignore[reportMissingImports] - it is there in the sandbox

_bridge: Any = _sandbox


# Calls of the host begin at once, as in JavaScript. Those whose answer nobody has waited for, by number;
# and functions of the extension that were called and have not begun, by their names.
_unheard: Any = {}
_unbegun: Any = []


def _watched(name: str, function: Any) -> Any:  # pyright: ignore[reportUnusedFunction] - called from behind
    """A function of the extension of which is known whether anybody awaits it."""

    def call(*given: Any, **named: Any) -> Any:
        place = len(_unbegun)
        _unbegun.append(name)

        async def begun() -> Any:
            _unbegun[place] = None
            return await function(*given, **named)

        return begun()

    return call


async def _lost() -> str | None:
    """What was called, and is lost since nobody awaited it. What was asked of the host is done by then."""
    words = None
    for answer in list(_unheard.values()):
        if answer is not None:
            try:
                await answer
            except Exception as error:  # noqa: BLE001 - told to the host
                words = words or f"{error} Nobody has awaited this: write `await` before the call."
    for name in _unbegun:
        if name is not None:
            what = f"{name}() was called and nobody has awaited it, so nothing of it was done."
            return f"{what} Write `await {name}(…)`."
    return words


# --- the host


def _ask(verb: str, *given: Any) -> Any:
    answer: Any = _bridge.call(verb, *given)
    number = len(_unheard)
    _unheard[number] = answer

    async def heard() -> Any:
        _unheard[number] = None
        return await answer

    return heard()


class _Storage:
    def get(self, key: str) -> Any:
        return _ask("get_value", key)

    def set(self, key: str, value: Any) -> Any:
        return _ask("set_value", key, value)

    def delete(self, key: str) -> Any:
        return _ask("delete_value", key)

    def list(self) -> Any:
        return _ask("list_values")


class _Host:
    def __init__(self) -> None:
        self.storage = _Storage()

    def read_file(self, path: str) -> Any:
        return _ask("read_file", path)

    def list_files(self, folder: str = "/") -> Any:
        return _ask("list_files", folder)

    def write_file(self, path: str, content: str) -> Any:
        return _ask("write_file", path, content)

    def delete_file(self, path: str) -> Any:
        return _ask("delete_file", path)

    def get_context(self, label: str) -> Any:
        return _ask("get_context", label)

    def set_context(self, label: str, content: str) -> Any:
        return _ask("set_context", label, content)

    def get_messages(self, limit: Any = None) -> Any:
        return _ask("get_messages", limit)

    def send_message(self, content: str) -> Any:
        return _ask("send_message", content)

    def get_session_info(self) -> Any:
        return _ask("get_session_info")

    def fetch(self, url: str, options: Any = None) -> Any:
        return _ask("fetch", url, options)


# --- what it has


def _runs(handler: Any) -> bool:
    """Whether it can be called, as far as that can be said here."""
    return type(handler).__name__ not in _IDLE


_IDLE = ("NoneType", "bool", "int", "float", "str", "list", "tuple", "dict", "coroutine")


def _described() -> Any:
    """What the source has."""
    if type(tools).__name__ != "dict" or type(hooks).__name__ != "dict":
        return {"isNone": True}
    return {
        "tools": [
            {
                "name": one,
                "description": tool.get("description"),
                "parameters": tool.get("parameters"),
                "required": tool.get("required"),
                "runs": _runs(tool.get("execute")),
                "fields": list(tool),
            }
            for one, tool in tools.items()
        ],
        "hooks": [one for one, handler in hooks.items() if _runs(handler)],
        "idle": [one for one, handler in hooks.items() if not _runs(handler)],
    }


# --- a call


async def _called(handler: Any, given: Any, host: Any) -> Any:
    value: Any = handler(given, host)
    while type(value).__name__ == "coroutine":
        value = await value
    return value


async def run_extension(written: str) -> Any:
    """Do what the host asks for."""
    job: Any = _json.loads(written)
    what, name, given = job["what"], job["name"], job["given"]
    if what == "describe":
        return _described()
    host: Any = _Host() if job["hasHost"] else None
    value: Any = None
    failed: Any = None
    try:
        if what == "tool":
            value = await _called(tools[name]["execute"], given, host)
        elif what == "hook":
            value = await _called(_handler(name), given, host)
        else:
            for one in given:
                try:
                    await _called(_handler(name), one, host)
                except Exception as error:  # noqa: BLE001 - told to the host
                    failed = failed or error
    except Exception as error:  # noqa: BLE001 - told to the host
        failed = error
    lost = await _lost()
    if failed is not None:
        return {"failed": {"name": type(failed).__name__, "message": str(failed)}}
    if lost is not None:
        return {"failed": {"name": "RuntimeError", "message": lost}}
    return {"value": value}


def _handler(name: str) -> Any:
    """The handler of a hook, which may be written as in JavaScript."""
    if name in hooks:
        return hooks[name]
    first, *more = name.split("_")
    return hooks[first + "".join([word.capitalize() for word in more])]


tools: Any = {}
hooks: Any = {}
