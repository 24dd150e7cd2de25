"""Files on their way between this machine and a workspace: `everthink files put` and `get`.

    a file or folder here --put--> edits, some megabytes in one commit --> workspace
    workspace --get--> a temporary file beside its place --rename--> a file or folder here

Links are not followed, on neither side: they are told, and left out. What was interrupted can be run again:
`put` leaves alone what has the same bytes already, and a file that `get` has not finished is not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click

from ..errors import AgentError
from ..workspace import refusals
from ..workspace.paths import normal
from ..workspace.port import Edit, Entry, MakeFolder, Put
from ..workspace.workspace import Workspace

__all__ = ["Moved", "get", "put"]

_PIECE = 1 << 20
_BATCH_BYTES, _BATCH_FILES = 8 << 20, 200
_SHOWN_FROM = 4 << 20
"""Bytes from which on a terminal is shown how far it is."""

Told = Callable[[int], object]


@dataclass(slots=True)
class Moved:
    """What became of it."""

    written: list[str] = field(default_factory=list[str])
    """Paths, of the workspace for `put` and of this machine for `get`."""
    unchanged: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list[str])
    """Links, and what is neither file nor folder."""

    def as_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "written": self.written,
            "unchanged": self.unchanged,
            "bytes": self.bytes,
            "skipped": self.skipped,
        }


# --- from here to there


async def put(workspace: Workspace, source: str, path: str | None, *, recursive: bool) -> Moved:
    """Write a file, a folder or (`-`) standard input to a workspace."""
    if source == "-":
        assert path is not None
        data = sys.stdin.buffer.read()
        await workspace.write_file_bytes(path, data)
        return Moved([normal(path)], bytes=len(data))
    here = _source(source, recursive=recursive)
    is_in = path is not None and await _is_folder(workspace, path)
    there = normal(_place(path, here, is_in=is_in))
    moved = Moved()
    folders, files = _below(here, there, moved)
    for start in range(0, len(folders), _BATCH_FILES):
        await workspace.apply([MakeFolder(folder) for folder in folders[start : start + _BATCH_FILES]])
    wanted = [one for one in files if not _is(one, await workspace.stat(one.path))]
    moved.unchanged = len(files) - len(wanted)
    with _shown(sum(one.size for one in wanted), f"To {there}") as told:
        for batch in _batches(wanted):
            edits: list[Edit] = [Put(one.path, _pieces(one.file, told)) for one in batch]
            await workspace.apply(edits)
            moved.written += [one.path for one in batch]
            moved.bytes += sum(one.size for one in batch)
    return moved


def _source(source: str, *, recursive: bool) -> Path:
    here = Path(source)
    if not here.exists():
        raise AgentError(f"There is nothing at {source}.", kept="Nothing was changed.")
    if here.is_dir() and not recursive:
        raise AgentError(
            f"{source} is a folder.", kept="Nothing was changed.", next_step="Say -r to take all of it."
        )
    return here


async def _is_folder(workspace: Workspace, path: str) -> bool:
    entry = await workspace.stat(path)
    return entry is not None and entry.kind == "directory"


def _place(path: str | None, here: Path, *, is_in: bool) -> str:
    """Where it goes: to the path itself, or into what the path says is a folder; a file, into one that is."""
    if path is None:
        return f"/{here.absolute().name}"
    goes_in = path.endswith("/") or (is_in and here.is_file())
    return "/" + (f"{path.strip('/')}/{here.absolute().name}" if goes_in else path).lstrip("/")


class _File(NamedTuple):
    """A file of this machine, and the path that it goes to."""

    file: Path
    path: str
    size: int


def _below(here: Path, there: str, moved: Moved) -> tuple[list[str], list[_File]]:
    """What is to be made, in the order of paths."""
    if not here.is_dir():
        return [], [_File(here, there, here.stat().st_size)]
    folders, files = [there], list[_File]()
    for folder, inner, names in os.walk(here):
        place = there.rstrip("/") + "".join(f"/{part}" for part in Path(folder).relative_to(here).parts)
        for name in sorted([*inner, *names]):
            one = Path(folder, name)
            if one.is_symlink() or not (one.is_dir() or one.is_file()):
                moved.skipped.append(str(one))
            elif one.is_dir():
                folders.append(f"{place}/{name}")
            else:
                files.append(_File(one, f"{place}/{name}", one.stat().st_size))
    return sorted(folders), sorted(files, key=lambda one: one.path)


def _is(one: _File, entry: Entry | None) -> bool:
    """True when these are its bytes already."""
    if entry is None or entry.kind != "file" or entry.size != one.size:
        return False
    with one.file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == entry.hash


def _batches(files: Sequence[_File]) -> list[list[_File]]:
    batches, held = list[list[_File]](), 0
    for one in files:
        if not batches or len(batches[-1]) >= _BATCH_FILES or held + one.size > _BATCH_BYTES:
            batches.append([])
            held = 0
        batches[-1].append(one)
        held += one.size
    return batches


async def _pieces(file: Path, told: Told) -> AsyncIterator[bytes]:
    opened = open(file, "rb")  # noqa: SIM115, ASYNC230 - closed below; nobody else waits for this loop
    try:
        while piece := opened.read(_PIECE):
            told(len(piece))
            yield piece
    finally:
        opened.close()


# --- from there to here


async def get(workspace: Workspace, path: str, dest: str | None, *, recursive: bool, force: bool) -> Moved:
    """Write a file or a folder of a workspace to this machine."""
    entry = await workspace.stat(path)
    if entry is None:
        raise refusals.not_found(path)
    if entry.kind == "directory" and not recursive:
        raise refusals.is_folder(path, next_step="Say -r to take it with all that is in it.")
    here = _dest(dest, entry, force=force)
    if entry.kind == "file":
        with _shown(entry.size, f"To {here}") as told:
            await _written(workspace, entry, here, told)
        return Moved([str(here)], bytes=entry.size)
    return await _folder(workspace, entry, here)


def _dest(dest: str | None, entry: Entry, *, force: bool) -> Path:
    """Where it goes; what is there already is refused, unless forced."""
    here = Path(dest or entry.name or "files")
    if dest is not None and (dest.endswith("/") or (entry.kind == "file" and here.is_dir())):
        here = here / (entry.name or "files")
    is_taken = here.is_symlink() or here.exists()
    if entry.kind == "directory" and here.is_dir() and not any(here.iterdir()):
        is_taken = False
    if is_taken and not force:
        raise AgentError(
            f"{here} exists.", kept="It was not touched.", next_step="Name another place, or say --force."
        )
    (here if entry.kind == "directory" else here.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
    return here


async def _folder(workspace: Workspace, entry: Entry, here: Path) -> Moved:
    moved = Moved()
    inside = [one async for one, _ in workspace.files.scan(entry.path)]
    start = 1 if entry.path == "/" else len(entry.path) + 1
    with _shown(sum(one.size for one in inside), f"To {here}") as told:
        for one in inside:
            if one.kind == "symlink":
                moved.skipped.append(one.path)
                continue
            place = here / one.path[start:]
            _make_way(here, place if one.kind == "directory" else place.parent)
            if one.kind == "file":
                await _written(workspace, one, place, told)
                moved.written.append(str(place))
                moved.bytes += one.size
    return moved


def _make_way(here: Path, folder: Path) -> None:
    """Make a folder below `here`, never through a link: whoever chose the names has not chosen where they
    lead."""
    way = here
    for part in folder.relative_to(here).parts:
        way = way / part
        if way.is_symlink():
            raise AgentError(
                f"{way} is a link.", kept="What was written before stays.", next_step="Name another folder."
            )
        way.mkdir(mode=0o700, exist_ok=True)


async def _written(workspace: Workspace, entry: Entry, place: Path, told: Told) -> None:
    """A file of the workspace at its place here: whole, or as it was before."""
    descriptor, beside = tempfile.mkstemp(prefix=".everthink-", dir=place.parent)  # for its owner alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            async for piece in workspace.files.stream(entry.path):
                file.write(piece)
                told(len(piece))
        os.replace(beside, place)
    except BaseException:
        os.unlink(beside)
        raise


# --- how far it is


@contextlib.contextmanager
def _shown(size: int, label: str) -> Generator[Told]:
    """On a terminal, a bar for what takes a while."""
    if size < _SHOWN_FROM or not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=size, label=label, file=sys.stderr) as bar:  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        yield bar.update
