"""Where code runs that nobody has read: what is asked for, what comes back, who is asked meanwhile.

    a tool --Job--> Sandbox.run --Outcome--> the tool
                       |  ^
             Host.call v  | JSON

A guest sees the files of its job and nothing else of this machine. Whatever it does, `run` returns: an
outcome says how it ended and which limit stopped it. Every adapter passes the suite in
`everthink.testing.contracts.sandbox`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, Protocol, get_args

from ..errors import AgentError
from ..kinds import (
    ANYTHING,
    DICT_OF_TEXTS,
    SANDBOX_LIMITS,
    TEXT,
    TEXTS,
    WHOLE,
    YES_NO,
    Kind,
    above,
    check_options,
    is_dict_of,
    optional,
    words,
)

__all__ = [
    "Host",
    "HostRefused",
    "Isolation",
    "Job",
    "Language",
    "Limits",
    "NoHost",
    "Outcome",
    "Pause",
    "Sandbox",
    "Status",
    "Stream",
]

Language = Literal["python", "bash", "javascript", "typescript"]
Isolation = Literal["interpreter", "wasm", "landlock", "namespaces", "container", "vm"]
"""What stands between a guest and this machine, from the weakest to the strongest."""
Status = Literal["done", "failed", "timeout", "memory", "calls", "crashed", "paused"]
Stream = Literal["stdout", "stderr"]

_LARGEST = 1 << 62
"""Numbers below it fit what the kernel and the guests keep them in."""
_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one job may use. An outcome that a limit stopped says which."""

    wall: float = 30.0
    """Seconds from start to end, calls of the host included. A guest that does not stop by itself then is
    killed three seconds later."""
    cpu: float = 10.0
    """Seconds of work of the guest; waiting for the host does not count."""
    memory: int = 64 * 1024 * 1024
    """Bytes that the guest may use beside the files of the job."""
    output: int = 64_000
    """Bytes of each stream that are kept. The rest is read, counted and dropped."""
    calls: int = 1_000
    """Calls of the host."""
    files: int = 1_000
    """Files that go in, and files and new folders that come back."""
    file_bytes: int = 1_000_000
    """Bytes of each of them."""
    tree_bytes: int = 32 * 1024 * 1024
    """Bytes of all of them together."""
    processes: int = 32
    """Processes at once, where a guest has real ones."""

    def __post_init__(self) -> None:
        check_options("Limits", _LIMITS, **{limit.name: getattr(self, limit.name) for limit in fields(self)})


_SECONDS = Kind("a number of seconds above 0", lambda value: above(0).fits(value) and value < _LARGEST)
_BOUND = Kind(
    "a whole number of at least 1",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST,
)
_LIMITS = {limit.name: _SECONDS if limit.name in ("wall", "cpu") else _BOUND for limit in fields(Limits)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A piece of code with everything that it sees."""

    language: Language
    source: str
    path: str = "main"
    """What its messages call it."""
    style: Literal["snippet", "function", "command"] = "snippet"
    modules: Mapping[str, str] = field(default_factory=_nothing)
    """JavaScript and TypeScript: modules beside it, by relative path."""
    input: Any = None
    args: tuple[str, ...] = ()
    stdin: bytes = b""
    env: Mapping[str, str] = field(default_factory=_nothing)
    cwd: str = "/"
    files: Mapping[str, bytes] = field(default_factory=_nothing)
    """The tree that it sees, by absolute path."""
    folders: frozenset[str] = frozenset()
    """Folders of that tree. Those of `files` need not be named."""
    collect: tuple[str, ...] = ("/",)
    """Below which paths changes are brought back."""
    names: Mapping[str, str] = field(default_factory=_nothing)
    """Functions of the host by full name, with their stubs. Nothing else can be called."""
    commands: tuple[str, ...] = ()
    """bash: functions of the host as commands."""
    keep: str | None = None
    """JavaScript functions: a name under which what was loaded is kept, for the next job of this name with
    the same source. It may be gone by then; so nothing may depend on it."""
    check_types: bool = True
    """Python: whether code whose types cannot fit is refused before it runs."""
    now: int | None = None
    """A clock that stands still, in milliseconds. With `seed`: run again is the same run."""
    seed: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check_options("Job", _JOB, **{option.name: getattr(self, option.name) for option in fields(self)})


def _as_bytes(value: Any) -> str | None:
    return f"Write {value[:60].encode()!r}." if isinstance(value, str) else None


_JOB = {
    "language": words(*get_args(Language)),
    "source": TEXT,
    "path": TEXT,
    "style": words("snippet", "function", "command"),
    "modules": DICT_OF_TEXTS,
    "input": ANYTHING,
    "args": TEXTS,
    "stdin": Kind('bytes: b"…"', lambda value: isinstance(value, bytes), advice=_as_bytes),
    "env": DICT_OF_TEXTS,
    "cwd": TEXT,
    "files": Kind(
        'a dict of absolute paths and bytes: {"/notes.txt": b"…"}',
        is_dict_of(lambda value: isinstance(value, bytes)),
    ),
    "folders": Kind(
        'a set of texts: frozenset({"/notes"})',
        lambda value: isinstance(value, Set) and TEXTS.fits(value),
    ),
    "collect": TEXTS,
    "names": Kind(
        'a dict of names and their stubs: {"tools.refund": "def refund(order): ..."}', DICT_OF_TEXTS.fits
    ),
    "commands": TEXTS,
    "keep": optional(TEXT),
    "check_types": YES_NO,
    "now": optional(WHOLE),
    "seed": optional(TEXT),
    "limits": SANDBOX_LIMITS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a job ended. `error` is a sentence when it did not come to its own end."""

    status: Status
    """`done` whatever the exit code is; `failed` when it was refused or could not be carried out; else the
    limit that stopped it (`timeout`, `memory`, `calls`), `crashed`, or `paused` by the host."""
    value: Any = None
    error: str | None = None
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    dropped_bytes: int = 0
    """Bytes of both streams beyond `Limits.output`."""
    changed: Mapping[str, bytes] = field(default_factory=_nothing)
    """Files that are new or differ from what was sent."""
    deleted: tuple[str, ...] = ()
    """Files of the job that are gone."""
    folders: frozenset[str] = frozenset()
    """Folders that are there at the end, below what was to be collected."""
    calls: int = 0
    seconds: float = 0.0
    place: str = ""
    """The folder of this computer that held its files, where a machine has no other place for them."""


class HostRefused(AgentError):
    """The host does not do what a guest asks. The guest is told the words, and may go on."""


class Pause(Exception):
    """Raised by `Host.call`: the guest ends at once, whatever it catches, and nothing of it is kept. The
    outcome is `paused`."""


class Host(Protocol):
    """Whom a guest can ask, and who sees its output while it runs."""

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Answer the guest: JSON in, JSON out. What else than `HostRefused` and `Pause` is raised ends the
        guest, and is raised by `run`."""
        ...

    def output(self, stream: Stream, text: str) -> None:
        """See what the guest has written, as it comes."""
        ...


class NoHost:
    """A host that does nothing for anybody."""

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Refuse."""
        raise HostRefused(f"There is no {name} here.")

    def output(self, stream: Stream, text: str) -> None:
        """Look away."""


class Sandbox(Protocol):
    """An engine that runs jobs of some languages. Every engine passes the same contract."""

    languages: frozenset[Language]
    isolation: Isolation

    async def check(self) -> str | None:
        """Why it cannot run here, as a sentence; `None` when it can."""
        ...

    async def run(self, job: Job, host: Host) -> Outcome:
        """Run a job to its end. Nothing that a guest does raises; cancelled, it kills the guest first."""
        ...

    async def aclose(self) -> None:
        """End everything that was started."""
        ...
