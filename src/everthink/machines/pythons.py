"""Which Python a machine on this computer uses, and what of the disk it has to see for it.

    sys.executable --readable by whoever runs it?--> this one, else the system's

The packages of this server can be imported in there, as long as the user who runs it may read them.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, cast

from ..errors import InvalidSettings
from ..kinds import SOME_TEXT, Kind, at_least, nearest, optional
from .port import CannotSpawn

__all__ = ["OPTIONS", "SYSTEM", "Python", "found_python", "named_paths"]

SYSTEM = (
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


def _are_paths(value: Any) -> bool:
    is_many = isinstance(value, Collection) and not isinstance(value, str | bytes)
    return is_many and all(isinstance(one, str | PathLike) for one in cast("Collection[Any]", value))


def _rather_paths(value: Any) -> str | None:
    if isinstance(value, str | PathLike):
        return f"One path is no list: write [{os.fspath(cast('PathLike[str]', value))!r}]."
    return None


OPTIONS = {
    "python": optional(SOME_TEXT),
    "read_only": Kind('a list of paths: ["/opt/data"]', _are_paths, advice=_rather_paths),
    "user": optional(Kind("the number of a user", at_least(0).fits)),
    "command": SOME_TEXT,
    "folder": optional(Kind("the path of a directory", lambda v: isinstance(v, str | PathLike) and v != "")),
}
"""What machines of this computer may be told."""


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter, and the paths that it and the programs beside it are read from."""

    path: str
    read_only: tuple[str, ...]


def named_paths(
    of: str, paths: Sequence[str | PathLike[str]], own: Sequence[str] = (), scratch: str = ""
) -> tuple[str, ...]:
    """The paths that jobs see as well. `own` are places that `of` has itself, with all that is below them;
    in `scratch` something may be shown."""
    return tuple(dict.fromkeys(_named(of, os.fspath(path), own, scratch) for path in paths))


def _named(of: str, named: str, own: Sequence[str], scratch: str) -> str:
    path = os.path.normpath(named).replace("//", "/")
    if not named.startswith("/"):
        raise _no_path(of, named, "does not begin at the root", f"Write {os.path.abspath(named)!r}.")
    if os.path.realpath(path) == "/":
        raise _no_path(of, named, "is the whole disk of this server", "Name the folders that jobs may read.")
    for place in (*own, scratch):
        if path == place or (place != scratch and path.startswith(f"{place}/")):
            next_step = f"Name another place: {of} has a {place} of its own for jobs."
            raise _no_path(of, named, "would not be seen", next_step)
    if not os.path.exists(path):
        folder = os.path.dirname(path)
        beside = os.listdir(folder) if os.path.isdir(folder) and os.access(folder, os.R_OK) else []
        near = nearest(os.path.basename(path), beside)
        rather = f"Did you mean {os.path.join(folder, near)!r}?" if near else "Look at its spelling."
        raise _no_path(of, named, "is not there", rather)
    return path


def _no_path(of: str, named: str, why: str, next_step: str) -> InvalidSettings:
    return InvalidSettings(f"{of}: read_only names {named!r}, which {why}.", next_step=next_step)


def found_python(python: str | None, user: int | None, read_only: tuple[str, ...] = ()) -> Python:
    """The Python that was named, this one, or the system's: the first that `user` may read."""
    named = (
        (python,)
        if python is not None
        else (sys.executable, _base(), shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin"))
    )
    if gone := next((path for path in read_only if not os.path.exists(path)), None):
        raise CannotSpawn(
            f"read_only names {gone!r}, which is not there any more.",
            next_step="Put it back, or leave it out.",
        )
    for candidate in named:
        if candidate and _may_read(os.path.realpath(candidate), user) and _may_read(candidate, user):
            own = () if candidate != sys.executable else (sys.prefix, sys.base_prefix)
            prefix = os.path.dirname(os.path.dirname(os.path.realpath(candidate)))
            there = (path for path in (*SYSTEM, prefix, *own) if os.path.exists(path))
            return Python(candidate, _outermost((*there, *read_only)))
    who = "this user" if user is None else f"user {user}"
    if python is not None:
        raise CannotSpawn(
            f"python={python!r} is no program that {who} may read.",
            next_step="Name another by its whole path, or leave it out.",
        )
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
