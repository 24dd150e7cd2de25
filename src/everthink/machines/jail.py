"""Becomes a locked program: gives up its rights one by one, and then is our runner.

    locked.py --a line of JSON as argument--> jail.main --exec--> python3, the runner

Started as a program of its own, like the guests in sandbox/: the standard library, `lock.py`, `syscalls.py`.
It leaves no step out: where one cannot be made, it says why and ends.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from ..sandbox.lock import become, die_with, killed_first, landlock, no_new_privileges, seccomp

__all__ = ["main"]

BESIDE = 8
"""Processes and threads that are not the job's."""


def main() -> None:
    """Run as the program that a locked machine begins as."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    user: int | None = asked["user"]
    limit = _used(os.geteuid() if user is None else user) + int(asked["processes"]) + BESIDE
    os.chdir(asked["home"])
    steps: list[tuple[str, Callable[[], str]]] = [
        ("memory first", killed_first),
        ("user", lambda: _became(user)),
        ("parent", lambda: die_with(int(asked["parent"]))),
        ("no new privileges", no_new_privileges),
        ("landlock", lambda: landlock(asked["read"], asked["write"])),
        ("seccomp", lambda: seccomp(base64.b64decode(asked["filter"]))),
    ]
    for name, step in steps:
        if problem := step():
            sys.exit(f"cannot be locked in ({name}: {problem})")
    setup = {**asked["setup"], "processes": limit}
    os.execve(asked["argv"][0], asked["argv"], {**asked["env"], "EVERTHINK_MACHINE": json.dumps(setup)})


def _became(user: int | None) -> str:
    if user is not None:
        become(user)
    return ""


def _used(user: int) -> int:
    """Processes and threads that a user has: the kernel counts them together."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.stat(f"/proc/{name}").st_uid == user:
                    count += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # it has just ended
    return count
