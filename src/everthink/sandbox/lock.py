"""Take rights away from this very process, for good. Linux, without being root; the standard library only.

    a child: import what is needed --> lock_down --> code that nobody has read

Limits, no new privileges, death with the parent, another user when we are root, Landlock (no file, no TCP
port) and seccomp (no program, no process, no socket, no file, no look at others). It has to run before a
second thread does: Landlock binds the thread that asks and those that it starts. Every step says whether it
could be done.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from .syscalls import CLONE, CLONE3, DENIED, PRCTL, SECCOMP, TGKILL, TO_BEGIN, Numbers

__all__ = [
    "NEEDED",
    "NOBODY",
    "become",
    "die_with",
    "filter_of",
    "killed_first",
    "landlock",
    "landlock_version",
    "lock_down",
    "may_become_another",
    "no_new_privileges",
    "only_if",
    "seccomp",
    "unsupported",
]

NOBODY = 65_534
"""The user that a child of root becomes."""
NEEDED = ("one thread", "parent", "limits", "no new privileges", "seccomp")
"""Steps without which nothing may run. `user` and `landlock` are walls behind walls: what they would stop is
stopped by seccomp as well."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the table below, and the name that the kernel has for it."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # Landlock, the same on both

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_NAME, _GET_NAME, _SET_NO_NEW_PRIVS = 1, 4, 15, 16, 38
_CLONE_THREAD = 0x0001_0000
_CAPABILITIES = (5, 6, 7)
"""To kill others, to change group and user: what it takes to become nobody and still be ended by us."""

_OPEN_FILES = 256
_THREADS = 1_024
"""Of all children of root together: the kernel counts by user."""
_STACK_AND_ARENAS = 32 * 1024 * 1024


def unsupported() -> str | None:
    """Why no process can be locked on this machine; `None` when it is worth trying."""
    if sys.platform != "linux":
        return f"It needs Linux to lock a process in, and this is {platform.system()}."
    if platform.machine() not in _ARCHITECTURES:
        known = " and ".join(_ARCHITECTURES)
        return f"It needs a machine of {known} to lock a process in, and this is {platform.machine()}."
    return None


def lock_down(*, memory: int, parent: int, program: Sequence[str] = (), threads: int = 1) -> dict[str, str]:
    """Give up every right that can be given up. Each step with what went wrong; "" for those that hold.

    `memory` is in bytes, beyond what this process has by now; `parent` the process that it must not outlive.
    `program`: this process becomes another one next. These files, and what is in these folders, it may read
    and run; where the kernel has no Landlock, it may read what its user may. `threads` that run by now are
    bound by all but Landlock: for a process in which nothing runs that a guest has written.
    """
    if (problem := unsupported()) is not None:
        return dict.fromkeys(NEEDED, problem)
    steps: dict[str, Callable[[], str]] = {
        "one thread": lambda: _one_thread(threads),
        "memory first": killed_first,
        "limits": lambda: _limits(memory),
        "user": _become_nobody,
        "parent": lambda: die_with(parent),
        "no new privileges": no_new_privileges,
        "landlock": lambda: landlock(program),
        "seccomp": lambda: _seccomp(TO_BEGIN if program else frozenset()),
    }
    return {name: _tried(step) for name, step in steps.items()}


def _tried(step: Callable[[], str]) -> str:
    try:
        return step()
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__


def _one_thread(most: int) -> str:
    count = len(os.listdir("/proc/self/task"))
    return "" if count <= most else f"{count} threads run already"


def killed_first() -> str:
    """When the machine has no memory left, the kernel takes this process and not the server."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    return ""


# --- limits and user


def _limits(memory: int) -> str:
    import resource

    # Not RLIMIT_AS: engines reserve addresses that they never use.
    bounds = {
        resource.RLIMIT_DATA: _data() + memory + _STACK_AND_ARENAS,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
    }
    if may_become_another():
        bounds[resource.RLIMIT_NPROC] = _THREADS  # not of other users: their other processes count as well
    for what, most in bounds.items():
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    return ""


def _data() -> int:
    """Bytes of data that this process has."""
    return int(_status("VmData").split()[0]) * 1024


def _status(name: str) -> str:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return line.partition(":")[2].strip()
    raise ValueError(f"/proc/self/status has no {name}")


def may_become_another() -> bool:
    """Whether this is a root that can change its user, and end what runs as another."""
    held = int(_status("CapEff"), 16)
    return os.geteuid() == 0 and all(held >> bit & 1 for bit in _CAPABILITIES)


def _become_nobody() -> str:
    """Root is exempt from limits and may read every file: after this, whoever breaks out is nobody."""
    if os.geteuid() != 0:
        return ""
    if not may_become_another():
        return "root without the right to become somebody else"
    become(NOBODY)
    return ""


def become(user: int) -> None:
    """Be another user for good, in the group of the same number only."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def die_with(parent: int) -> str:
    """After the change of user, which makes the kernel forget it."""
    problem = _prctl(_SET_PDEATHSIG, signal.SIGKILL) or _prctl(_SET_DUMPABLE, 0)
    if os.getppid() != parent:
        os._exit(0)  # it has died meanwhile, and nobody would tell us
    return problem


# --- system calls


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _refusal(what: str) -> str:
    return f"{what}: {os.strerror(ctypes.get_errno())}"


def _prctl(option: int, value: int) -> str:
    done = _libc().prctl(
        option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)
    )
    return "" if done == 0 else _refusal(f"prctl({option})")


def _call(number: int, *args: object) -> int:
    libc = _libc()
    libc.syscall.restype = ctypes.c_long
    return int(libc.syscall(ctypes.c_long(number), *args))


# --- Landlock


_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_OF_A_FILE = _EXECUTE | 1 << 1 | _READ_FILE | 1 << 14  # write, truncate


def landlock_version() -> int:
    """What this kernel knows of Landlock; 0 when it has none."""
    return max(0, _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1)))


def landlock(read: Sequence[str] = (), write: Sequence[str] = ()) -> str:
    """No file but those below, no TCP port, no abstract socket and no signal to others, as far as this kernel
    knows them."""
    version = landlock_version()
    if version <= 0:
        return "this kernel has no Landlock (Linux 5.13, switched on)"
    files = (1 << 13) - 1
    for since, bit in ((2, 13), (3, 14), (5, 15)):
        if version >= since:
            files |= 1 << bit
    ruleset = _ruleset(files, ports=0b11 if version >= 4 else 0, others=0b11 if version >= 6 else 0)
    if ruleset < 0:
        return _refusal("landlock_create_ruleset")
    try:
        for paths, rights in ((read, _EXECUTE | _READ_FILE | _READ_FOLDER), (write, files)):
            for path in paths:
                if problem := _allowed(ruleset, path, rights & files):
                    return problem
        done = _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
        return "" if done == 0 else _refusal("landlock_restrict_self")
    finally:
        os.close(ruleset)


def _ruleset(files: int, *, ports: int, others: int) -> int:
    rules = struct.pack("QQQ", files, ports, others)
    rules = rules[: 24 if others else 16 if ports else 8]
    return _call(_CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint(0))


def _allowed(ruleset: int, path: str, rights: int) -> str:
    """Allow what is below a path."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _OF_A_FILE
        rule = struct.pack("=Qi", rights, place)
        done = _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_uint(1), rule, ctypes.c_uint(0))
        return "" if done == 0 else _refusal(f"landlock_add_rule({path})")
    finally:
        os.close(place)


# --- seccomp


_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _REFUSE, _UNKNOWN = 0x7FFF_0000, 0x8000_0000, 0x0005_0000 | 1, 0x0005_0000 | 38
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
Step = tuple[int, int, int, int]


def no_new_privileges() -> str:
    """No program gives more rights than there are."""
    return _prctl(_SET_NO_NEW_PRIVS, 1)


def _seccomp(kept: Collection[str]) -> str:
    steps = _filter(platform.machine(), os.getpid(), kept)
    return seccomp(b"".join(struct.pack("HBBI", *step) for step in steps))


def seccomp(program: bytes) -> str:
    """Have the kernel ask a program at every system call, of all threads."""
    kept = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
    number = SECCOMP[_ARCHITECTURES[platform.machine()][0]]
    # A filter, for all threads.
    done = _call(number, ctypes.c_uint(1), ctypes.c_uint(1), ctypes.create_string_buffer(described))
    return "" if done == 0 else _refusal("seccomp")


def _filter(machine: str, pid: int, kept: Collection[str] = ()) -> Iterator[Step]:
    """What a child of ours may do: what is not refused is allowed."""
    column, _ = _ARCHITECTURES[machine]
    rules = [
        *only_if(CLONE[column], [(_HAS, _CLONE_THREAD)]),
        *only_if(PRCTL[column], [(_EQUAL, _SET_NAME), (_EQUAL, _GET_NAME)]),
        *only_if(TGKILL[column], [(_EQUAL, pid)]),
    ]
    denied = {name: numbers for name, numbers in DENIED.items() if name not in kept}
    yield from filter_of(machine, denied, rules)


def filter_of(machine: str, denied: Mapping[str, Numbers], rules: Sequence[Step]) -> Iterator[Step]:
    """The program that the kernel asks at every system call: rules first, then what is refused whole."""
    column, architecture = _ARCHITECTURES[machine]
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, architecture
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    if machine == "x86_64":  # the same calls once more, under other numbers
        yield _AT_LEAST, 0, 1, 0x4000_0000
        yield _RETURN, 0, 0, _KILL
    yield _EQUAL, 0, 1, CLONE3[column]  # its flags are out of sight; libc falls back to clone
    yield _RETURN, 0, 0, _UNKNOWN
    yield from rules
    for numbers in denied.values():
        if (number := numbers[column]) is not None:
            yield _EQUAL, 0, 1, number
            yield _RETURN, 0, 0, _REFUSE
    yield _RETURN, 0, 0, _ALLOW


def only_if(number: int, tests: list[tuple[int, int]]) -> Iterator[Step]:
    """Allow a call only when its first argument passes one of the tests."""
    yield _EQUAL, 0, len(tests) + 3, number
    yield _LOAD, 0, 0, _FIRST_ARGUMENT
    for place, (test, value) in enumerate(tests):
        yield test, len(tests) - place, 0, value
    yield _RETURN, 0, 0, _REFUSE
    yield _RETURN, 0, 0, _ALLOW
