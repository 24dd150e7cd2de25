"""Several places as one tree: the agent's own files, and beside them what others gave it.

    MountedFiles({"/": MemoryFiles(), "/skills": ReadOnly(DiskFiles("skills"))})

The longest mount that a path is in has it. Edits that are made together stay within one mount, where they are
all or nothing; a copy may come from another. What a mount hides in the tree around it stays hidden.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

from ..clock import EPOCH
from ..errors import InvalidSettings, WorkspaceError
from ..settings import check_call
from . import refusals
from .contents import Content, Ready
from .paths import ancestors, is_below, normal, parent_of
from .plan import ROOT, Plan, followed
from .port import (
    UNLIMITED,
    Changes,
    CommitEdit,
    Copy,
    Edit,
    Entries,
    Entry,
    Files,
    Link,
    MakeFolder,
    Move,
    Put,
    Remove,
    WorkspaceLimits,
)

__all__ = ["MountedFiles", "ReadOnly"]


class ReadOnly:
    """Files that can be read and not written: everything that would change them is refused with `EROFS`."""

    def __init__(self, files: Files) -> None:
        check_call("ReadOnly", files=files)
        self.files = files

    async def stat(self, path: str, *, follow: bool = True) -> Entry | None:
        """What is at a path, or `None`."""
        return await self.files.stat(path, follow=follow)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes of a file, all or some."""
        return await self.files.read(path, start=start, length=length)

    def stream(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file, piece by piece."""
        return self.files.stream(path)

    async def list(self, folder: str, *, limit: int = 1000, after: str = "") -> Entries:
        """What is directly in a folder, by name."""
        return await self.files.list(folder, limit=limit, after=after)

    def scan(
        self, prefix: str = "/", *, contents: bool = False, most_bytes: int = 1 << 20
    ) -> AsyncIterator[tuple[Entry, bytes | None]]:
        """Everything below a folder in the order of paths."""
        return self.files.scan(prefix, contents=contents, most_bytes=most_bytes)

    async def apply(
        self,
        edits: Sequence[Edit],
        *,
        conclude: CommitEdit | None = None,
        limits: WorkspaceLimits = UNLIMITED,
    ) -> Changes:
        """Refuse."""
        if edits:
            raise refusals.read_only(edits[0].path)
        if conclude is not None:
            await conclude(())
        return []


class MountedFiles:
    """A tree put together from several. There is one at `/`; the others hide what it has at their paths."""

    def __init__(self, mounts: Mapping[str, Files]) -> None:
        check_call("MountedFiles", mounts=mounts)
        self._mounts = {normal(path): files for path, files in mounts.items()}
        if "/" not in self._mounts:
            raise InvalidSettings(
                "MountedFiles needs something at '/'.",
                next_step='Write MountedFiles({"/": MemoryFiles(), "/skills": ...}).',
            )
        self._deepest_first = sorted(self._mounts, key=len, reverse=True)
        above = {folder for mount in self._mounts for folder in (*ancestors(mount), mount)} - {"/"}
        self._folders = {path: replace(ROOT, path=path) for path in sorted(above)}
        self._seq = 0

    # --- reading

    async def stat(self, path: str, *, follow: bool = True) -> Entry | None:
        """What is at a path, or `None`."""
        return (await followed(path, self._one))[1] if follow else await self._one(path)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes of a file, all or some."""
        entry = await self.stat(path)
        if entry is None:
            return None
        if entry.kind == "directory":
            raise refusals.is_folder(entry.path)
        mount, inner = self._place(entry.path)
        return await self._mounts[mount].read(inner, start=start, length=length)

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file, piece by piece."""
        entry = await self.stat(path)
        if entry is None:
            raise refusals.not_found(path)
        mount, inner = self._place(entry.path)
        async for piece in self._mounts[mount].stream(inner):
            yield piece

    async def list(self, folder: str, *, limit: int = 1000, after: str = "") -> Entries:
        """What is directly in a folder, by name."""
        mount, inner = self._place(folder)
        ours = {path: entry for path, entry in self._folders.items() if parent_of(path) == folder}
        theirs = await self._mounts[mount].list(inner, limit=limit, after=after)
        found = {path: entry for path, entry in ours.items() if entry.name > after}
        for entry in (_outside(mount, one) for one in theirs):
            if entry.path not in self._mounts:
                found[entry.path] = entry
        return [found[path] for path in sorted(found)][:limit]

    async def scan(
        self, prefix: str = "/", *, contents: bool = False, most_bytes: int = 1 << 20
    ) -> AsyncIterator[tuple[Entry, bytes | None]]:
        """Everything below a folder in the order of paths, whichever mount it is from."""
        first, inner = self._place(prefix)
        parts = [self._part(first, inner, contents=contents, most_bytes=most_bytes)]
        parts += [
            self._part(mount, "/", contents=contents, most_bytes=most_bytes)
            for mount in self._mounts
            if is_below(mount, prefix)
        ]
        parts.append(_told([entry for path, entry in self._folders.items() if is_below(path, prefix)]))
        heads = [head for part in parts if (head := await _next(part)) is not None]
        last = ""
        while heads:
            place = min(range(len(heads)), key=lambda n: heads[n].entry.path)
            head = heads.pop(place)
            if head.entry.path != last:
                yield head.entry, head.data
            last = head.entry.path
            if (further := await _next(head.rest)) is not None:
                heads.insert(
                    place, further
                )  # of equals the first counts: what is there, before what is made up

    async def _part(
        self, mount: str, inner: str, *, contents: bool, most_bytes: int
    ) -> AsyncIterator[tuple[Entry, bytes | None]]:
        async for entry, data in self._mounts[mount].scan(inner, contents=contents, most_bytes=most_bytes):
            outside = _outside(mount, entry)
            if self._place(outside.path)[0] == mount:
                yield outside, data

    async def _one(self, path: str) -> Entry | None:
        if path == "/":
            return ROOT
        mount, inner = self._place(path)
        if inner == "/":
            return self._folders[path]
        entry = await self._mounts[mount].stat(inner, follow=False)
        return self._folders.get(path) if entry is None else _outside(mount, entry)

    def _place(self, path: str) -> tuple[str, str]:
        """The mount that a path is in, and its path there."""
        mount = next(one for one in self._deepest_first if path == one or is_below(path, one))
        return mount, path if mount == "/" else path[len(mount) :] or "/"

    # --- writing

    async def apply(
        self,
        edits: Sequence[Edit],
        *,
        conclude: CommitEdit | None = None,
        limits: WorkspaceLimits = UNLIMITED,
    ) -> Changes:
        """Do all of the edits, or none, in the one mount that they are in."""
        plan = Plan(self._look, self._below, now=EPOCH, limits=limits)
        nothing = Content("", b"", "")
        # Whether a file is what it was its mount says, which may know the hash; whether it is there, we know.
        named = [
            replace(edit, if_hash=None) if isinstance(edit, Put | Remove) and edit.if_hash else edit
            for edit in edits
        ]
        await plan.edit([Ready(edit, nothing) for edit in named])  # refuses, and names our paths
        inside: list[Edit] = []
        mounts: set[str] = set()
        for edit in edits:
            async for one in self._within(edit):
                mount, path = self._place(one.path)
                if isinstance(self._mounts[mount], ReadOnly):
                    raise refusals.read_only(one.path)
                mounts.add(mount)
                if isinstance(one, Move | Copy):
                    inside.append(replace(one, source=self._place(one.source)[1], path=path))
                else:
                    inside.append(replace(one, path=path))
        if len(mounts) > 1:
            raise _across(sorted(mounts))
        if not mounts:
            if conclude is not None:
                await conclude(())
            return []
        (mount,) = mounts
        changes = await self._mounts[mount].apply(inside, conclude=conclude, limits=limits)
        told = [
            replace(change, seq=self._seq + n, path=_joined(mount, change.path))
            for n, change in enumerate(changes, 1)
        ]
        self._seq += len(told)
        return told

    async def _within(self, edit: Edit) -> AsyncIterator[Edit]:
        """The edit as one of a single mount: what comes from elsewhere is read here."""
        match edit:
            case Put(path):
                yield replace(edit, path=(await followed(path, self._one))[0])
            case MakeFolder(path):
                if path not in self._folders:
                    yield edit
            case Remove(path):
                self._refuse_mounts(path)
                yield edit
            case Move(source, path):
                self._refuse_mounts(source)
                if self._place(source)[0] != self._place(path)[0]:
                    raise _across([source, path])
                yield edit
            case Copy(source, path):
                has_mounts = any(one == source or is_below(one, source) for one in self._mounts)
                if not has_mounts and self._place(source)[0] == self._place(path)[0]:
                    yield edit
                    return
                async for one in self._copied(source, path):
                    yield one
            case Link():
                yield edit
            case _:
                assert_never(edit)

    async def _copied(self, source: str, path: str) -> AsyncIterator[Edit]:
        entry = await self._one(source)
        if entry is None:
            raise refusals.not_found(source)
        inside = [one async for one, _ in self.scan(source)] if entry.kind == "directory" else []
        for one in (entry, *inside):
            place = path + one.path[len(source) :]
            if one.kind == "directory":
                yield MakeFolder(place)
            elif one.kind == "symlink":
                yield Link(place, one.target or "")
            else:
                yield Put(place, await self.read(one.path) or b"", one.media_type)

    def _refuse_mounts(self, path: str) -> None:
        if path in self._folders:
            raise WorkspaceError(
                f"{path!r} is there because something else is mounted in it.",
                code="EPERM",
                path=path,
                kept="Nothing was changed.",
            )

    async def _look(self, paths: Sequence[str]) -> Mapping[str, Entry]:
        found = {path: await self._one(path) for path in paths}
        return {path: entry for path, entry in found.items() if entry is not None}

    async def _below(self, folder: str) -> Sequence[Entry]:
        return [entry async for entry, _ in self.scan(folder)]


Part = AsyncIterator[tuple[Entry, bytes | None]]


class _Head(NamedTuple):
    """What comes next of one part of a tree."""

    entry: Entry
    data: bytes | None
    rest: Part


async def _next(part: Part) -> _Head | None:
    found = await anext(part, None)
    return None if found is None else _Head(*found, part)


async def _told(entries: Sequence[Entry]) -> Part:
    for entry in entries:
        yield entry, None


def _joined(mount: str, path: str) -> str:
    if mount == "/":
        return path
    return mount if path == "/" else mount + path


def _outside(mount: str, entry: Entry) -> Entry:
    return entry if mount == "/" else replace(entry, path=_joined(mount, entry.path))


def _across(paths: Sequence[str]) -> WorkspaceError:
    return WorkspaceError(
        f"{' and '.join(map(repr, paths))} are in different places, so this cannot be done at once.",
        code="EXDEV",
        path=paths[0],
        kept="Nothing was changed.",
        next_step="Copy first, then remove; edit one place at a time.",
    )
