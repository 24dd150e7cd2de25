"""Which Python a machine on this computer uses, and what of the disk it has to see for it.

    sys.executable --readable by whoever runs it?--> this one, else the system's

The packages of this server can be imported in there, as long as the user who runs it may read them.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from .port import CannotSpawn

__all__ = ["Python", "found_python"]

_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/ssl/certs",
)
"""What programs need of a system: nothing in there is secret, or of this server."""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, and the paths that it and the programs beside it are read from."""

    path: str
    read_only: tuple[str, ...]


def found_python(python: str | None, user: int | None, read_only: tuple[str, ...] = ()) -> Python:
    """The Python that was named, this one, or the system's: the first that `user` may read."""
    named = (
        (python,)
        if python is not None
        else (sys.executable, _base(), shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin"))
    )
    for candidate in named:
        if candidate and _may_read(os.path.realpath(candidate), user) and _may_read(candidate, user):
            own = () if candidate != sys.executable else (sys.prefix, sys.base_prefix)
            prefix = os.path.dirname(os.path.dirname(os.path.realpath(candidate)))
            paths = (*_SYSTEM, prefix, *own, *read_only)
            return Python(candidate, _outermost(path for path in paths if os.path.exists(path)))
    who = "this user" if user is None else f"user {user}"
    raise CannotSpawn(
        f"There is no Python that {who} may read.",
        next_step="Install one (apt install python3), or name one: python='/usr/bin/python3'.",
    )


def _base() -> str | None:
    return getattr(sys, "_base_executable", None)


def _may_read(path: str, user: int | None) -> bool:
    """Whether a user can get to a program, and run it."""
    if user is None or user == os.geteuid():
        return os.access(path, os.R_OK | os.X_OK)
    place = path
    try:
        while True:
            mode = os.stat(place).st_mode
            if not mode & (stat.S_IXOTH if place != path else stat.S_IXOTH | stat.S_IROTH):
                return False
            if place == "/":
                return True
            place = os.path.dirname(place)
    except OSError:
        return False


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Each once, and none that another one has in it."""
    found: list[str] = []
    for path in dict.fromkeys(paths):
        if not any(path == top or path.startswith(f"{top}/") for top in found):
            found.append(path)
    return tuple(found)
