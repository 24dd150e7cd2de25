"""What edits come to, before anything is written: every check, every entry, every change.

    Files.apply --edits--> Plan --entries, contents, changes--> rows, a dict, system calls

Decides and touches nothing: a backend says how to look (`look`, `below`), and carries out what stands here at
the end. So all backends refuse the same edits, in the same words. Later edits of a plan see what earlier did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal, NamedTuple, TypeVar, assert_never

from ..clock import EPOCH
from ..errors import WorkspaceError
from . import refusals
from .contents import Content, Ready
from .paths import ancestors, is_below, parent_of, target_of
from .port import Change, Copy, Edit, Entry, Link, MakeFolder, Move, Put, Remove, WorkspaceLimits

__all__ = [
    "ROOT",
    "Kept",
    "Look",
    "Plan",
    "Step",
    "Usage",
    "before_all",
    "before_turn",
    "followed",
]

T = TypeVar("T")

_MOST_LINKS = 40
_AT_A_TIME = 500

ROOT = Entry("/", "directory", 0, "", EPOCH, EPOCH)
"""The root, which no backend has to keep."""

Look = Callable[[Sequence[str]], Awaitable[Mapping[str, Entry]]]
"""The entries at some paths; what is missing is not in it."""
Below = Callable[[str], Awaitable[Sequence[Entry]]]
"""Everything below a folder, in the order of paths."""


class Usage(NamedTuple):
    """How much there is: entries (without the root), and bytes of files."""

    entries: int = 0
    bytes: int = 0


class Step(NamedTuple):
    """One path that changes: what was there, and what is there now."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def change(self) -> Literal["create", "update", "delete"]:
        """What it is to whoever looks on."""
        if self.after is None:
            return "delete"
        return "create" if self.before is None else "update"

    def told(self, seq: int, *, at: datetime, call_id: str | None = None, turn: str | None = None) -> Change:
        """The step as a change."""
        entry = self.after or self.before
        assert entry is not None
        return Change(
            seq,
            self.path,
            self.change,
            entry.kind,
            self.after and self.after.hash,
            self.before and self.before.hash,
            at,
            call_id,
            turn,
        )


class Plan:
    """Some edits, thought through. What comes of them is in `steps`, `final` and `contents`."""

    def __init__(
        self,
        look: Look,
        below: Below,
        *,
        now: datetime,
        limits: WorkspaceLimits,
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._look, self._below, self._pause = look, below, pause
        self._now, self._limits = now, limits
        self._seen: dict[str, Entry | None] = {}  # as it was before, for every path that was looked at
        self._is: dict[str, Entry | None] = {}  # as it is now, for every path that changed
        self.steps: list[Step] = []
        """Every change, in order."""
        self.contents: dict[str, Content] = {}
        """What is written, by its hash."""

    async def edit(self, edits: Sequence[Ready]) -> None:
        """Think some edits through. Raises what the first of them that cannot be done is refused with."""
        named = {path for edit, _ in edits for path in _named(edit)}
        await self._look_at(sorted({one for path in named for one in (*ancestors(path), path)}))
        async for edit, content in self._unhurried(edits):
            match edit:
                case Put(path, _, _, if_hash):
                    assert content is not None
                    await self._put(path, content, if_hash)
                case MakeFolder(path, recursive):
                    await self._make_folder(path, recursive=recursive)
                case Remove(path, recursive, if_hash):
                    await self._remove(path, recursive=recursive, if_hash=if_hash)
                case Move(source, path):
                    await self._move(source, path)
                case Copy(source, path):
                    await self._copy(source, path)
                case Link(path, target):
                    await self._link(path, target)
                case _:
                    assert_never(edit)

    @property
    def final(self) -> list[Step]:
        """What is different at the end, each path once, in the order of paths."""
        steps = (Step(path, self._seen[path], entry) for path, entry in sorted(self._is.items()))
        return [step for step in steps if step.before != step.after]

    def usage(self, before: Usage) -> Usage:
        """How much there is afterwards. Raises `EDQUOT` when the plan makes it more than may be."""
        entries, size = before
        for path, entry in self._is.items():
            was = self._seen[path]
            entries += (entry is not None) - (was is not None)
            size += (entry.size if entry else 0) - (was.size if was else 0)
        limits = self._limits
        if entries > max(limits.entries, before.entries):
            raise refusals.over(f"The workspace would hold {entries:,} entries", "entries", limits.entries)
        if size > max(limits.files_bytes, before.bytes):
            raise refusals.over(f"The workspace would hold {size:,} bytes", "files_bytes", limits.files_bytes)
        return Usage(entries, size)

    async def bring_back(self, wanted: Mapping[str, Entry | None]) -> None:
        """Give these paths an earlier state again. The bytes of their files are kept still."""
        concerned: set[str] = set()
        async for path in self._unhurried(list(wanted)):
            concerned.update(ancestors(path), (path,))
        await self._look_at(sorted(concerned))
        # What is inside a folder before the folder.
        async for path, entry in self._unhurried(sorted(wanted.items(), reverse=True)):
            is_now = await self._at(path)
            if is_now is not None and (entry is None or entry.kind != is_now.kind):
                if is_now.kind == "directory" and await self._inside(path):
                    if entry is not None:
                        raise refusals.not_empty(path)
                    continue  # somebody else has put something into it since
                self._set(path, None)
        async for path, entry in self._unhurried(sorted(wanted.items())):
            if entry is None:
                continue
            is_now = await self._at(path)
            if is_now is not None and _is_same(is_now, entry):
                continue
            await self._make_parents(path)
            self._set(path, replace(entry, modified_at=self._now))

    # --- one edit at a time

    async def _put(self, path: str, content: Content, if_hash: str | None) -> None:
        path, was = await followed(path, self._at)
        if path == "/":
            raise refusals.is_folder(path)
        if was is not None and was.kind == "directory":
            raise refusals.is_folder(path, next_step="Name the file in it.")
        if if_hash is not None and if_hash != ("" if was is None else was.hash or was.kind):
            raise refusals.changed_meanwhile(path)
        await self._make_parents(path)
        self.contents[content.hash] = content
        created_at = was.created_at if was else self._now
        self._set(
            path,
            Entry(path, "file", len(content.data), content.media_type, created_at, self._now, content.hash),
        )

    async def _make_folder(self, path: str, *, recursive: bool) -> None:
        is_now = await self._at(path)
        if is_now is not None:
            if path == "/" or (recursive and is_now.kind == "directory"):
                return
            raise refusals.exists(path)
        if not recursive:
            parent = await self._at(parent_of(path))
            if parent is None:
                raise refusals.not_found(parent_of(path))
        await self._make_parents(path)
        self._set(path, self._folder(path))

    async def _remove(self, path: str, *, recursive: bool, if_hash: str | None) -> None:
        if path == "/":
            raise refusals.is_root()
        entry = await self._needed(path)
        if if_hash is not None and if_hash != (entry.hash or entry.kind):
            raise refusals.changed_meanwhile(path)
        inside = await self._inside(path) if entry.kind == "directory" else []
        if inside and not recursive:
            raise refusals.not_empty(path)
        async for one in self._unhurried((*reversed(inside), entry)):
            self._set(one.path, None)

    async def _move(self, source: str, path: str) -> None:
        if source == "/" or path == "/":
            raise refusals.is_root()
        entry = await self._needed(source)
        if source == path:
            return
        if is_below(path, source):
            raise refusals.into_itself(source, path)
        await self._make_way(entry, path)
        inside = await self._inside(source) if entry.kind == "directory" else []
        async for one in self._unhurried((*reversed(inside), entry)):
            self._set(one.path, None)
        await self._make_parents(path)
        async for one in self._unhurried((entry, *inside)):
            self._set(path + one.path[len(source) :], replace(one, path=path + one.path[len(source) :]))

    async def _copy(self, source: str, path: str) -> None:
        if path == "/":
            raise refusals.is_root()
        if source == "/":
            raise refusals.into_itself(source, path)
        entry = await self._needed(source)
        if entry.kind == "file":
            path, _ = await followed(path, self._at)
        if source == path:
            return
        if entry.kind != "directory":
            await self._make_way(entry, path)
            await self._make_parents(path)
            self._set(path, await self._copied(entry, path))
            return
        if is_below(path, source):
            raise refusals.into_itself(source, path)
        inside = await self._inside(source)
        await self._make_folder(path, recursive=True)
        await self._look_at([path + one.path[len(source) :] for one in inside])
        async for one in self._unhurried(inside):
            place = path + one.path[len(source) :]
            if one.kind == "directory":
                await self._make_folder(place, recursive=True)
            else:
                await self._make_way(one, place)
                self._set(place, await self._copied(one, place))

    async def _link(self, path: str, target: str) -> None:
        if path == "/":
            raise refusals.is_root()
        if not target.strip():
            raise refusals.unfit("A link needs a target.", path)
        if (size := len(target.encode("utf-8", "replace"))) > self._limits.path_bytes:
            raise refusals.over(
                f"The target of {path!r} has {size:,} bytes", "path_bytes", self._limits.path_bytes, path
            )
        target_of(path, target)  # refuses what no path can be
        if await self._at(path) is not None:
            raise refusals.exists(path)
        await self._make_parents(path)
        self._set(path, Entry(path, "symlink", 0, "", self._now, self._now, None, target))

    # --- what they have in common

    async def _make_parents(self, path: str) -> None:
        for folder in ancestors(path):
            entry = await self._at(folder)
            if entry is None:
                self._set(folder, self._folder(folder))
            elif entry.kind != "directory":
                raise refusals.not_folder(folder)

    async def _make_way(self, entry: Entry, path: str) -> None:
        """Refuse to put `entry` over something that it cannot replace."""
        there = await self._at(path)
        if there is None:
            return
        if there.kind == "directory":
            raise refusals.is_folder(path)
        if entry.kind == "directory":
            raise refusals.not_folder(path)

    async def _copied(self, entry: Entry, path: str) -> Entry:
        was = await self._at(path)
        return replace(
            entry, path=path, created_at=was.created_at if was else self._now, modified_at=self._now
        )

    async def _needed(self, path: str) -> Entry:
        entry = await self._at(path)
        if entry is None:
            raise refusals.not_found(path)
        return entry

    async def _inside(self, folder: str) -> list[Entry]:
        found = {entry.path: entry for entry in await self._below(folder)}
        self._seen |= {path: entry for path, entry in found.items() if path not in self._seen}
        for path, entry in self._is.items():
            if is_below(path, folder):
                found.pop(path, None)
                if entry is not None:
                    found[path] = entry
        return [found[path] for path in sorted(found)]

    async def _at(self, path: str) -> Entry | None:
        if path == "/":
            return ROOT
        if path in self._is:
            return self._is[path]
        if path not in self._seen:
            await self._look_at([path])
        return self._seen[path]

    async def _look_at(self, paths: Sequence[str]) -> None:
        if unseen := [path for path in paths if path != "/" and path not in self._seen]:
            found = await self._look(unseen)
            self._seen |= {path: found.get(path) for path in unseen}

    def _set(self, path: str, entry: Entry | None) -> None:
        before = self._is[path] if path in self._is else self._seen.setdefault(path, None)
        self._is[path] = entry
        self.steps.append(Step(path, before, entry))

    async def _unhurried(self, many: Sequence[T]) -> AsyncIterator[T]:
        """All of these, with a pause now and then: a folder may have fifty thousand files."""
        for number, one in enumerate(many, 1):
            if self._pause is not None and number % _AT_A_TIME == 0:
                await self._pause()
            yield one

    def _folder(self, path: str) -> Entry:
        return Entry(path, "directory", 0, "", self._now, self._now)


async def followed(path: str, at: Callable[[str], Awaitable[Entry | None]]) -> tuple[str, Entry | None]:
    """Where a path leads in the end, link by link, and what is there."""
    first = path
    for _ in range(_MOST_LINKS + 1):
        entry = await at(path)
        if entry is None or entry.kind != "symlink":
            return path, entry
        path = target_of(path, entry.target or "")
    raise refusals.looping(first)


def _named(edit: Edit) -> tuple[str, ...]:
    return (edit.source, edit.path) if isinstance(edit, Move | Copy) else (edit.path,)


def _is_same(one: Entry, other: Entry) -> bool:
    return (one.kind, one.hash, one.target, one.media_type) == (
        other.kind,
        other.hash,
        other.target,
        other.media_type,
    )


class Kept(NamedTuple):
    """A change as a log keeps it, with what was there before."""

    change: Change
    before: Entry | None


def before_all(kept: Sequence[Kept]) -> dict[str, Entry | None]:
    """What every path was before the first of these changes."""
    wanted: dict[str, Entry | None] = {}
    for change, before in kept:
        wanted.setdefault(change.path, before)
    return wanted


def before_turn(kept: Sequence[Kept], turn: str) -> dict[str, Entry | None]:
    """What the paths that a turn changed were before it. `kept` goes from its first change to the last.

    Raises `ESTALE` when somebody else has changed one of them since.
    """
    wanted = before_all([one for one in kept if one.change.turn == turn])
    for change, _ in kept:
        if change.turn != turn and change.path in wanted:
            raise WorkspaceError(
                f"{change.path!r} was changed again after that turn (change {change.seq}).",
                code="ESTALE",
                path=change.path,
                kept="Nothing was changed.",
                next_step="Going back to before that turn takes back everything since.",
            )
    return wanted
