"""What a model is told of code that does not run: which line, why, and the way round.

    diagnostics of the type checker --blocking--> those that are certain
    an error --advised--> the same with a way round

Pure. The interpreter has less of Python than models expect. A sentence on what to write in its place saves
the next attempt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..kinds import nearest

__all__ = ["BUILTINS", "LACKS", "advised", "blocking"]

LACKS = (
    "It is a subset of Python. There are no classes with bases (so no exceptions of your own, Enum or"
    " TypedDict), no generators and `yield`, no `del`, no properties, no `async with`, no asyncio.create_task"
    " and no unbound methods as keys (write `key=lambda s: s.lower()`). Of the standard library there are"
    " only asyncio, base64, binascii, bisect, collections, copy, csv, dataclasses, datetime, decimal,"
    " functools, hashlib, itertools, json, math, os, pathlib, random, re, sys, time, tomllib, typing and"
    " unicodedata."
)

_ERRORS = {
    "OSError": (
        "FileExistsError",
        "FileNotFoundError",
        "IsADirectoryError",
        "NotADirectoryError",
        "PermissionError",
    ),
    "Exception": ("ImportError",),
    "ImportError": ("ModuleNotFoundError",),
    "NameError": ("UnboundLocalError",),
    "ValueError": ("UnicodeDecodeError", "UnicodeEncodeError"),
}
_FUNCTIONS = ("filter", "format", "getattr", "hasattr", "map", "open", "setattr")
BUILTINS = "from typing import Any\n" + "\n".join(
    [f"class {name}({base}): ..." for base, names in _ERRORS.items() for name in names]
    + [f"def {name}(*args: Any, **kwargs: Any) -> Any: ..." for name in _FUNCTIONS]
    + [""]
)
"""What the checker of types does not know, and the interpreter does."""

_CERTAIN = {
    "invalid-syntax",
    "unresolved-reference",
    "unresolved-import",
    "unused-awaitable",
    "missing-argument",
    "unknown-argument",
    "too-many-positional-arguments",
    "parameter-already-assigned",
}
_NO_ATTRIBUTE = re.compile(r"module '\w+' has no attribute")
_PARAMETER = re.compile(r"does not match any known parameter of function `(\w+)`")
_MEMBER = re.compile(r"Module `(\w+)` has no member `(\w+)`")
_LINE = re.compile(r"^[^:\n]+:(\d+):\d+: (?:error|warning)\[([a-z-]+)\] (.*)$", re.MULTILINE)
_WAYS: tuple[tuple[str, str], ...] = (
    ("class inheritance", "Use plain classes or dicts, and raise ValueError or RuntimeError."),
    ("yield", "Build a list and return it."),
    ("generator", "Build a list and return it."),
    ("'del' statement", "Take it out: d.pop(key), items.pop(index). A variable needs no `del`."),
    (
        "`return` statement outside",
        "The last expression is the result: write it as the last line, without `return`.",
    ),
    (
        "gather() does not yet support",
        "Catch in a function of your own: `async def safe(call)` that awaits it in try.",
    ),
    ("type object 'str' has no attribute", "Write a function in its place: key=lambda s: s.lower()."),
    ("Name `const` used", "This runs Python, not JavaScript."),
    ("Name `let` used", "This runs Python, not JavaScript."),
    ("Name `await` used", "This runs Python, not JavaScript."),
    ("Module `os` has no member", "There are no processes here: call a tool. Files: open(), pathlib."),
    ("'exit' is not defined", "Code ends with its last line: use if, or a function that returns."),
    ("'quit' is not defined", "Code ends with its last line: use if, or a function that returns."),
    ("`sys` has no member", "Code ends with its last line: use if, or a function that returns."),
    ("Name `input` used", "Nobody can type while code runs: ask the person in your answer."),
    ("async with", "Call the functions one by one, with try and finally where something must be ended."),
    ("create_task", "Use asyncio.gather(...) to run several calls at once."),
    ("CoroutineType", "Every call of a tool needs `await`: (await tools.name(...))['field']."),
    ("property", "Write a method and call it."),
    ("match statement", "Use if and elif."),
    ("`io`", "Use open() for files, and plain strings."),
    ("`string`", "Write the letters out: 'abcdefghijklmnopqrstuvwxyz'."),
    ("`statistics`", "Compute it: sum(values) / len(values), sorted(values)[len(values) // 2]."),
    ("`uuid`", "Use random: f'{random.getrandbits(128):032x}'."),
    ("`requests`", "There is no network here: call a tool."),
    ("`urllib", "There is no network here: call a tool."),
    ("`httpx`", "There is no network here: call a tool."),
    ("`subprocess`", "There are no processes here: call a tool."),
    ("`heapq`", "Use sorted()."),
    ("`operator`", "Use a lambda."),
    ("`contextlib`", "Use try and finally."),
    ("`textwrap`", "Split and join the lines."),
)


def blocking(diagnostics: str, names: Mapping[str, str]) -> str | None:
    """What is certainly wrong, by line; `None` when the checker only has doubts."""
    functions = {name.rpartition(".")[2] for name in names}
    found: list[str] = []
    for line, rule, words in _LINE.findall(diagnostics):
        of_host = any(f"function `{name}`" in words for name in functions)
        certain = rule in _CERTAIN or "CoroutineType" in words or "Module `" in words
        if certain or (rule == "invalid-argument-type" and of_host and "| None" not in words):
            note = " (unused-awaitable)" if rule == "unused-awaitable" else ""
            found.append(f"line {line}: {words}{note}")
    if not found and diagnostics and not _LINE.search(diagnostics):
        found.append(diagnostics.strip())
    return None if not found else "Nothing was run. " + "\n".join(found)


def advised(error: str, names: Mapping[str, str]) -> str:
    """An error with the way round it, and with what is there when a name is not."""
    told = [error.strip()]
    told += dict.fromkeys(way for sign, way in _WAYS if sign in error)
    told += dict.fromkeys(_declared(error, names))
    if near := _nearest(error, names):
        told.append(f"Did you mean {near}?")
    if _is_undefined(error):
        told.append(f"There are: {', '.join(_there(names))}.")
    if "not yet support" in error or "unresolved-import" in error or "Cannot resolve imported" in error:
        told.append(LACKS)
    return "\n".join(told)


def _declared(error: str, names: Mapping[str, str]) -> Iterator[str]:
    """How functions are declared that were called with a parameter that they do not have."""
    for wanted in _PARAMETER.findall(error):
        shown = [name for name in names if not name.startswith("files.")]
        same = [name for name in shown if name.rpartition(".")[2] == wanted]
        for line in names[same[0]].splitlines() if len(same) == 1 else ():
            if f"def {wanted}(" in line:
                yield f"It is declared so: {line.strip().removesuffix('...').strip().rstrip(':')}"


def _is_undefined(error: str) -> bool:
    signs = ("used when not defined", "is not defined", "has no member")
    return any(sign in error for sign in signs) or _NO_ATTRIBUTE.search(error) is not None


def _nearest(error: str, names: Mapping[str, str]) -> str | None:
    found = _MEMBER.search(error)
    return None if found is None else nearest(f"{found[1]}.{found[2]}", _there(names), like=0.75)


def _there(names: Mapping[str, str]) -> list[str]:
    shown = sorted(name for name in names if not name.startswith("files."))
    return [*shown[:200], *(["…"] if len(shown) > 200 else []), "open"]
