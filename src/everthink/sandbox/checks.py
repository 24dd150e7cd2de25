"""What goes into a child is looked at before it goes, and what comes out before anybody believes it.

    Job --refusal--> a sentence, or None        Done + bytes --brought_back--> files, or Gone

Pure. A guest that has been broken can say anything: paths, sizes, counts and names are compared here with
what was asked for. What a script may really do never fails here; the guest has bounded it, and said so.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

from .child import Done, Gone
from .port import Job

__all__ = ["LONGEST_SOURCE", "BroughtBack", "brought_back", "parents_of", "refusal"]

LONGEST_PATH = 4_096
LONGEST_SOURCE = 1_000_000
LONGEST_NAME = 255
_COMMAND = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_FUNCTION = re.compile(r"(?!__)[A-Za-z_]\w{0,63}(?:\.(?!__)[A-Za-z_]\w{0,63}){0,3}", re.A)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
_KEPT = "Nothing was run."


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """The difference that a job has made."""

    changed: dict[str, bytes]
    deleted: tuple[str, ...]
    folders: frozenset[str]


def refusal(job: Job) -> str | None:
    """Why a job is not run: the limit that it breaks by itself, or what does not fit together."""
    limits = job.limits
    if len(job.files) > limits.files:
        return f"The job has {len(job.files):,} files, and {limits.files:,} may go in (files). {_KEPT}"
    total = 0
    for path, data in job.files.items():
        total += len(data)
        if len(data) > limits.file_bytes:
            return (
                f"{path} has {len(data):,} bytes, and {limits.file_bytes:,} may go in (file_bytes). {_KEPT}"
            )
    if total > limits.tree_bytes:
        return f"The files have {total:,} bytes, and {limits.tree_bytes:,} may go in (tree_bytes). {_KEPT}"
    if len(job.stdin) > limits.file_bytes:
        most = f"{limits.file_bytes:,} may go in (file_bytes)"
        return f"The input has {len(job.stdin):,} bytes, and {most}. {_KEPT}"
    if len(job.source) > LONGEST_SOURCE:
        return f"The script has {len(job.source):,} characters, and may have {LONGEST_SOURCE:,}. {_KEPT}"
    for path in (*job.files, *job.folders, job.cwd, *job.collect):
        if path != "/" and not _is_path(path):
            return f"{path!r} is no absolute path without detours. {_KEPT}"
    for folder in parents_of(job.files):
        if folder in job.files:
            return f"{folder} is both a file and a folder. {_KEPT}"
    return _misnamed(job)


def _misnamed(job: Job) -> str | None:
    for name in job.commands:
        if not _COMMAND.fullmatch(name):
            return f"{name!r} cannot be the name of a command. {_KEPT}"
    for name in job.names:
        if not _FUNCTION.fullmatch(name):
            return f"{name!r} cannot be the name of a function. {_KEPT}"
    for name, value in job.env.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            return f"{name!r} cannot be a variable of the environment. {_KEPT}"
    if "\0" in job.source or any("\0" in arg for arg in job.args):
        return f"A script and its arguments cannot hold the character U+0000. {_KEPT}"
    return None


def parents_of(paths: Iterable[str]) -> set[str]:
    """All folders above some paths, the root left out."""
    found: set[str] = set()
    for path in paths:
        folder = posixpath.dirname(path)
        while folder not in ("/", "") and folder not in found:
            found.add(folder)
            folder = posixpath.dirname(folder)
    return found


def brought_back(done: Done, body: bytes, job: Job) -> BroughtBack:
    """The difference, if it is one that this job can have made. Raises `Gone`."""
    limits = job.limits
    if len(done.changed) > limits.files or sum(size for _, size in done.changed) != len(body):
        raise Gone("files that do not fit their sizes")
    changed: dict[str, bytes] = {}
    place = 0
    for path, size in done.changed:
        if not 0 <= size <= limits.file_bytes or path in changed:
            raise Gone("a file that is too large, or twice there")
        _check_path(path, job)
        data = body[place : place + size]
        place += size
        if job.files.get(path) != data:
            changed[path] = data
    deleted = set(done.deleted)
    if not deleted <= job.files.keys() - changed.keys():
        raise Gone("files that are deleted and were never there")
    folders = frozenset(done.folders)
    known = job.folders | parents_of((*job.files, *job.folders))
    if len(folders - known) > limits.files:
        raise Gone("too many folders")
    for path in (*deleted, *folders):
        _check_path(path, job)
    if not folders.isdisjoint(changed):
        raise Gone("a path that is both a file and a folder")
    return BroughtBack(changed, tuple(sorted(deleted)), folders)


def _check_path(path: str, job: Job) -> None:
    tops = job.collect
    if not _is_path(path) or not any(top == "/" or path == top or path.startswith(f"{top}/") for top in tops):
        raise Gone("a path that was not asked for")


def _is_path(path: str) -> bool:
    return (
        len(path) > 1
        and path.startswith("/")
        and path == posixpath.normpath(path)
        and not path.startswith("//")
        and "\0" not in path
        and len(path.encode()) <= LONGEST_PATH
        and all(len(name.encode()) <= LONGEST_NAME for name in path.split("/"))
    )
