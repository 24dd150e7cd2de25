"""JavaScript and TypeScript for models: QuickJS in WebAssembly, in a locked child.

    Job --checks--> a child of the pool --frames--> checks --> Outcome

Two walls: what breaks out of QuickJS is in WebAssembly, and what breaks out of that is in a process that may
compute and nothing else. Each job has a context of its own, which is gone after it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..kinds import TEXT, check_options, optional
from ..messages import encode_json
from ..words import said as on_one_line
from .checks import LONGEST_SOURCE, refusal
from .child import Call, Child, Done, Gone
from .contexts import MOST_KEPT
from .engine import ChildSandbox
from .port import Host, HostRefused, Isolation, Job, Language
from .running import NO_MEMORY, OVER_LIMIT, TIMED_OUT, Ended, Run

__all__ = ["JavaScriptRun", "JavaScriptSandbox"]

_LANGUAGES: frozenset[Language] = frozenset({"javascript", "typescript"})
_MODULE = re.compile(r"(?!/)(?!.*(?:^|/)\.\.?(?:/|$))[^\0\\]{1,1000}")
_KEPT = "Nothing was run."
_OPTIONS = {"cache": optional(TEXT)}
_LONGEST_WORDS = 5_000
_BYTES, _WHOLE = "__bytes__", "__int__"
_MARKS = (b'"__bytes__"', b'"__int__"')
MOST_VALUES = 200_000
"""Values that a script may give at once: as objects they take many times the room of their text."""
_FAR = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}")
"""May be a number that is infinite when it is read: `JSON.rawJSON` writes any."""
_SIGNS, _EMPTY = (b",", b"[", b"{"), (b"[]", b"{}")
"""Before each value there is one of these, a key aside, but for the first; before none, in what is empty."""
_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SAFE = 2**53 - 1
"""Beyond it a number of JavaScript is rounded: such ones are BigInt there."""
_DIGITS = re.compile(r"-?[0-9]{1,4000}")


class JavaScriptSandbox(ChildSandbox):
    """Runs JavaScript and TypeScript in locked child processes, which are kept warm."""

    languages: frozenset[Language] = _LANGUAGES
    isolation: Isolation = "wasm"
    name = "JavaScript"

    def __init__(
        self, *, most: int = 2, jobs_each: int = 200, idle_after: float = 60.0, cache: str | None = None
    ) -> None:
        """At most so many scripts run at once, in children that each run so many and end when they idle.

        The engine is compiled once for a machine, into the folder `cache`: without it that of the user. ""
        is none: every child then takes seconds to start.
        """
        check_options("JavaScriptSandbox", _OPTIONS, cache=cache)
        super().__init__(most=most, jobs_each=jobs_each, idle_after=idle_after)
        self._cache = _cache_of_the_user() if cache is None else cache

    async def _start(self, memory: int) -> Child:
        libraries = ("quickjs_rs", "wasmtime")
        return await Child.start("javascript_guest", libraries, self._cache, memory=memory)

    def _memory(self, job: Job) -> int:
        """The engine keeps to its limit; texts are there once more on their way."""
        kept = 0 if job.keep is None else MOST_KEPT * job.limits.memory
        return kept + 2 * job.limits.memory + 3 * job.limits.tree_bytes

    def _run(self, child: Child, job: Job, host: Host) -> Run:
        return JavaScriptRun(child, job, host)

    def _refusal(self, job: Job) -> str | None:
        if job.language not in _LANGUAGES:
            return f"{job.language} is not run here, only javascript and typescript. {_KEPT}"
        return refusal(job) or _refusal(job)

    def _probe(self) -> Job:
        return Job(language="typescript", source="const n: number = 42; console.log(n)")


class JavaScriptRun(Run):
    """One script in a child."""

    def asked(self) -> dict[str, Any]:
        """All that only this engine knows."""
        job = self._job
        return {
            "language": job.language,
            "path": job.path,
            "style": job.style,
            "modules": dict(job.modules),
            "input": job.input,
            "names": list(job.names),
            "keep": job.keep,
            "now": job.now,
            "seed": job.seed,
        }

    def names(self) -> Mapping[str, Any]:
        """The functions of the job."""
        return self._job.names

    def arguments(self, call: Call, body: bytes) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """What the function was given, in its order."""
        args = _decoded(body)
        if not isinstance(args, list):
            raise HostRefused("What a function is given is a list.")
        return cast("list[Any]", args), {}

    def answer(self, value: Any) -> tuple[dict[str, Any], bytes]:
        """JSON, in which bytes and large whole numbers have an envelope."""
        return {}, encode_json(_packed(value))

    def ending(self, done: Done) -> Ended:
        """How it ended. A command that throws has come to its own end, with 1."""
        exit_code = (done.exit or 0) & 255
        if self._calls_beyond:
            return "calls", self.too_many_calls(), OVER_LIMIT
        if done.stopped in ("cpu", "wall"):
            return "timeout", self.too_long(done.stopped), TIMED_OUT
        if done.stopped == "memory":
            return "memory", self.too_much_memory(), NO_MEMORY
        if done.stopped is not None:
            raise Gone("an end for which there is no reason")
        if done.raised is None or self._job.style == "command":
            return "done", None, exit_code
        return "failed", done.raised[:_LONGEST_WORDS], exit_code or 1

    def value(self, body: bytes) -> Any:
        """What it returned."""
        return _decoded(body)


def _decoded(body: bytes) -> Any:
    """JSON of a guest. Half of a character that is written as two becomes a question mark."""
    if _values_in(body) > MOST_VALUES:
        raise HostRefused(
            f"What goes to the host holds more than {MOST_VALUES:,} values."
            " Give it less, or make it a text, or write it to a file and pass the path."
        )
    try:
        if b"\\ud" in body.lower():
            whole = json.loads(body, parse_constant=_refused_constant, parse_float=_finite)
            body = json.dumps(whole, ensure_ascii=False).encode("utf-8", "replace")
            return json.loads(body, parse_constant=_refused_constant, object_pairs_hook=_distinct)
        # To look at each object or number takes longer than to read it.
        opened = _opened if any(mark in body for mark in _MARKS) else None
        number = _finite if _FAR.search(body) else None
        return json.loads(body, parse_constant=_refused_constant, object_hook=opened, parse_float=number)
    except (ValueError, RecursionError):
        raise HostRefused("What goes to the host is nested too deep, or is no JSON.") from None


def _values_in(body: bytes) -> int:
    """How many values are in JSON. Exact where there may be too many."""
    if len(body) // 2 <= MOST_VALUES or sum(map(body.count, _SIGNS)) < MOST_VALUES:
        return 0
    plain = _TEXTS.sub(b"", body)
    return 1 + sum(map(plain.count, _SIGNS)) - sum(map(plain.count, _EMPTY))


def _packed(value: Any) -> Any:
    """A value for a guest."""
    match value:
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case int() if abs(value) > _SAFE:
            return {_WHOLE: str(value)}
        case dict():
            return {key: _packed(one) for key, one in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_packed(one) for one in cast("list[Any]", value)]
        case _:
            return value


def _opened(found: dict[str, Any]) -> Any:
    """What is in an envelope."""
    if set(found) == {_WHOLE} and isinstance(found[_WHOLE], str) and _DIGITS.fullmatch(found[_WHOLE]):
        return int(found[_WHOLE])
    if set(found) != {_BYTES} or not isinstance(found[_BYTES], str):
        return found
    try:
        return base64.b64decode(found[_BYTES], validate=True)
    except binascii.Error:
        return found


def _distinct(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise HostRefused(
            "Two keys of an object that goes to the host differ by half of a character alone, and would"
            " become one key. Give them names of whole characters."
        )
    return _opened(found)


def _refused_constant(name: str) -> None:
    raise ValueError(name)  # NaN and its like are no JSON


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise HostRefused(
            f"{text[:40]} is larger than any number of JSON that goes to the host. Use a string."
        )
    return number


def _refusal(job: Job) -> str | None:
    limits = job.limits
    if job.keep is not None and (job.style != "function" or job.now is not None or job.seed is not None):
        return f"Only what was loaded of a function is kept, and with a clock that goes. {_KEPT}"
    for name in (job.path, *job.modules):
        if not _MODULE.fullmatch(name):
            return f"{on_one_line(name, 80)!r} cannot be the name of a module: it is a relative path. {_KEPT}"
    if len(job.modules) > limits.files:
        return f"The job has {len(job.modules):,} modules, and may have {limits.files:,} (files). {_KEPT}"
    for name, source in job.modules.items():
        if len(source) > LONGEST_SOURCE:
            return f"{name} has {len(source):,} characters, and may have {LONGEST_SOURCE:,}. {_KEPT}"
    if sum(map(len, job.modules.values())) > limits.tree_bytes:
        return f"The modules have more than {limits.tree_bytes:,} characters (tree_bytes). {_KEPT}"
    size = len(encode_json(job.input))
    if size > limits.file_bytes:
        return f"The input has {size:,} bytes, and {limits.file_bytes:,} may go in (file_bytes). {_KEPT}"
    return None


def _cache_of_the_user() -> str:
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(folder, "everthink") if os.path.isabs(folder) else ""
