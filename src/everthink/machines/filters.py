"""What the kernel refuses to the processes of a machine on this computer, beside what cannot be seen there.

    sandbox/syscalls.py --walled, bare--> programs for seccomp

Pure. Behind namespaces (`walled`) it is a second wall, around parts of the kernel that scripts do not need;
without them (`bare`) it is the wall: what Landlock does not cover.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable, Iterator

from ..sandbox.lock import Step, filter_of, only_if, unsupported
from ..sandbox.syscalls import CLONE, FILES, MACHINE, NETWORK, OLD, PROGRAMS, Numbers

__all__ = ["bare", "walled"]

_LOAD, _EQUAL, _HAS, _RETURN, _REFUSE = 0x20, 0x15, 0x45, 0x06, 0x0005_0000 | 1
_PRETEND = 0x0005_0000
"""Answered with success, and not done."""
_ARGUMENTS = (16, 24, 32, 40)
_NEW_NAMESPACES = 0x7E02_0080
_SHARED, _ANONYMOUS = 0x01, 0x20
_FAMILIES = (1, 2, 10)
"""Of sockets: local ones, and both Internets. There is no network behind them; a virtual machine's own (40)
is in no namespace, and most others are there for administrators."""

_SOCKET, _MMAP, _PRLIMIT = (41, 198), (9, 222), (302, 261)
_ALSO_ALLOWED = {"setrlimit", "prlimit64", "setpriority"}
_KERNEL: dict[str, Numbers] = {
    **{name: numbers for name, numbers in MACHINE.items() if name not in _ALSO_ALLOWED},
    **{name: PROGRAMS[name] for name in ("ptrace", "process_vm_readv", "process_vm_writev", "kcmp")},
    **{name: PROGRAMS[name] for name in ("process_madvise", "pidfd_getfd")},
    **{name: FILES[name] for name in ("open_by_handle_at", "name_to_handle_at", "fanotify_init")},
    **{name: FILES[name] for name in ("memfd_create", "memfd_secret")},
    "uselib": OLD["uselib"],
    "iopl": OLD["iopl"],
    "ioperm": OLD["ioperm"],
}
"""Refused everywhere: the kernel's less walked ways, memory that no limit counts, looks at other processes."""
_OTHERS: dict[str, Numbers] = {
    **{name: PROGRAMS[name] for name in ("setsid", "setpgid", "pidfd_open", "pidfd_send_signal")},
    **{name: PROGRAMS[name] for name in ("rt_sigqueueinfo", "rt_tgsigqueueinfo")},
    **NETWORK,
    **{name: FILES[name] for name in ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr")},
    "inotify_add_watch": FILES["inotify_add_watch"],
    "setpriority": MACHINE["setpriority"],
}
"""Refused without namespaces: a way out of the group that is killed, the network, marks on files."""
_METADATA: dict[str, Numbers] = {
    **{name: FILES[name] for name in ("fchmodat", "fchmodat2", "fchownat", "utimensat")},
    **{name: OLD[name] for name in ("chmod", "chown", "lchown", "utime", "utimes", "futimesat")},
}
_KILLING = ("kill", "tkill")


def walled() -> bytes | None:
    """For processes behind namespaces; `None` on a machine that the table does not know."""
    if unsupported() is not None:
        return None
    column = _column()
    rules = [*_always(column), *only_if(_SOCKET[column], [(_EQUAL, family) for family in _FAMILIES])]
    return _packed(filter_of(platform.machine(), _KERNEL, rules))


def bare(*, version: int, is_own_user: bool) -> bytes:
    """For processes without namespaces, behind a Landlock of that version. `is_own_user`: they run as the
    user of this server, whose files have modes and times that Landlock does not cover."""
    column = _column()
    denied = _KERNEL | _OTHERS
    rules = [*_always(column), *only_if(_PRLIMIT[column], [(_EQUAL, 0)])]
    if version < 3:
        denied["truncate"] = FILES["truncate"]
    if version < 6:  # a signal could reach others of the same user
        rules += only_if(number, [(_EQUAL, 0)]) if (number := PROGRAMS["kill"][column]) else ()
        denied["tkill"] = PROGRAMS["tkill"]
        denied["tgkill"] = (234, 131)
    if is_own_user:
        for numbers in _METADATA.values():
            if (number := numbers[column]) is not None:
                rules += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _PRETEND)]
    return _packed(filter_of(platform.machine(), denied, rules))


def _always(column: int) -> Iterator[Step]:
    """No namespaces of their own, and no shared memory that only its address space would count."""
    number = CLONE[column]
    yield _EQUAL, 0, 4, number or 0
    yield _LOAD, 0, 0, _ARGUMENTS[0]
    yield _HAS, 0, 1, _NEW_NAMESPACES
    yield _RETURN, 0, 0, _REFUSE
    yield _RETURN, 0, 0, 0x7FFF_0000
    yield _EQUAL, 0, 5, _MMAP[column]
    yield _LOAD, 0, 0, _ARGUMENTS[3]
    yield _HAS, 0, 2, _SHARED
    yield _HAS, 0, 1, _ANONYMOUS
    yield _RETURN, 0, 0, _REFUSE
    yield _RETURN, 0, 0, 0x7FFF_0000


def _column() -> int:
    return 0 if platform.machine() == "x86_64" else 1


def _packed(steps: Iterable[Step]) -> bytes:
    return b"".join(struct.pack("HBBI", *step) for step in steps)
