"""Files in memory: for tests, and for what need not outlive the process.

    Plan --entries, contents--> two dictionaries

Nothing is awaited between the last look and the effect, so edits never overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from ..clock import Clock, SystemClock, moment_of
from ..settings import check_call
from . import refusals
from .contents import gathered
from .paths import normal, range_below
from .plan import ROOT, Kept, Plan, Usage, before_all, before_turn, followed
from .port import UNLIMITED, Changes, CommitEdit, Edit, Entries, Entry, Put, WorkspaceLimits

__all__ = ["MemoryFiles"]


class MemoryFiles:
    """A tree in memory, with the files it begins with: `MemoryFiles({"/notes.md": "# Notes"})`."""

    def __init__(self, files: Mapping[str, str | bytes] | None = None, *, clock: Clock | None = None) -> None:
        check_call("MemoryFiles", files=files)
        self._clock = clock or SystemClock()
        self._entries: dict[str, Entry] = {}
        self._contents: dict[str, bytes] = {}
        self._log: list[Kept] = []
        self._last = 0
        self._sorted: list[str] | None = []
        self._unread = [
            Put(normal(path), data.encode() if isinstance(data, str) else data)
            for path, data in (files or {}).items()
        ]

    async def stat(self, path: str, *, follow: bool = True) -> Entry | None:
        """What is at a path, or `None`."""
        await self._begin()
        return (await followed(path, self._one))[1] if follow else await self._one(path)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes of a file, all or some."""
        entry = await self.stat(path)
        if entry is None:
            return None
        if entry.kind == "directory":
            raise refusals.is_folder(entry.path)
        return self._contents[entry.hash or ""][start : None if length is None else start + length]

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file, in one piece."""
        data = await self.read(path)
        if data is None:
            raise refusals.not_found(path)
        yield data

    async def list(self, folder: str, *, limit: int = 1000, after: str = "") -> Entries:
        """What is directly in a folder, by name."""
        await self._begin()
        inside = (self._entries[path] for path in self._paths(folder))
        start = len(folder.rstrip("/")) + 1
        found = [one for one in inside if "/" not in one.path[start:] and one.path[start:] > after]
        return found[:limit]

    async def scan(
        self, prefix: str = "/", *, contents: bool = False, most_bytes: int = 1 << 20
    ) -> AsyncIterator[tuple[Entry, bytes | None]]:
        """Everything below a folder in the order of paths."""
        await self._begin()
        for path in self._paths(prefix):
            if (entry := self._entries.get(path)) is not None:
                is_wanted = contents and entry.kind == "file" and entry.size <= most_bytes
                yield entry, self._contents[entry.hash or ""] if is_wanted else None

    async def apply(
        self,
        edits: Sequence[Edit],
        *,
        conclude: CommitEdit | None = None,
        limits: WorkspaceLimits = UNLIMITED,
    ) -> Changes:
        """Do all of the edits, or none."""
        await self._begin()
        whole = await gathered(edits, most_bytes=limits.file_bytes)
        return await self._carry_out(lambda plan: plan.edit(whole), conclude, limits)

    async def changes(self, *, after: int = 0, limit: int = 1000) -> Changes:
        """The changes that are kept, in order."""
        await self._begin()
        return [one.change for one in self._log if one.change.seq > after][:limit]

    async def restore(
        self, seq: int, *, conclude: CommitEdit | None = None, limits: WorkspaceLimits = UNLIMITED
    ) -> Changes:
        """Bring everything to where it stood after the change `seq`."""
        await self._begin()
        first = self._log[0].change.seq if self._log else self._last + 1
        if not first - 1 <= seq <= self._last:
            raise refusals.not_kept(seq, first - 1, self._last)
        wanted = before_all([one for one in self._log if one.change.seq > seq])
        return await self._carry_out(lambda plan: plan.bring_back(wanted), conclude, limits)

    async def undo(
        self, turn: str, *, conclude: CommitEdit | None = None, limits: WorkspaceLimits = UNLIMITED
    ) -> Changes:
        """Take back what one turn changed: nothing here, since changes in memory belong to no turn."""
        wanted = before_turn(self._log, turn)
        return await self._carry_out(lambda plan: plan.bring_back(wanted), conclude, limits)

    async def _carry_out(
        self,
        think: Callable[[Plan], Awaitable[None]],
        conclude: CommitEdit | None,
        limits: WorkspaceLimits,
    ) -> Changes:
        now = moment_of(self._clock.now_ms())
        plan = Plan(self._look, self._below, now=now, limits=limits)
        await think(plan)
        plan.usage(Usage(len(self._entries), sum(entry.size for entry in self._entries.values())))
        for step in plan.final:
            if step.after is None:
                del self._entries[step.path]
            else:
                self._entries[step.path] = step.after
        self._sorted = None
        self._contents |= {hash: content.data for hash, content in plan.contents.items()}
        changes = [step.told(self._last + n, at=now) for n, step in enumerate(plan.steps, 1)]
        self._last += len(changes)
        self._log += [Kept(change, step.before) for change, step in zip(changes, plan.steps, strict=True)]
        self._forget(limits, len(changes))
        if conclude is not None:
            await conclude(())
        return changes

    def _forget(self, limits: WorkspaceLimits, newest: int) -> None:
        if len(self._log) <= max(2 * limits.history, newest):
            return
        del self._log[: -max(limits.history, newest)]
        needed = {entry.hash for entry in self._entries.values()}
        needed |= {hash for one in self._log for hash in (one.change.hash, one.change.was)}
        self._contents = {hash: data for hash, data in self._contents.items() if hash in needed}

    async def _begin(self) -> None:
        if self._unread:
            first, self._unread = self._unread, []
            await self.apply(first)

    async def _one(self, path: str) -> Entry | None:
        return ROOT if path == "/" else self._entries.get(path)

    async def _look(self, paths: Sequence[str]) -> Mapping[str, Entry]:
        return {path: self._entries[path] for path in paths if path in self._entries}

    async def _below(self, folder: str) -> Sequence[Entry]:
        return [self._entries[path] for path in self._paths(folder)]

    def _paths(self, folder: str) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        first, last = range_below(folder)
        return self._sorted[bisect_left(self._sorted, first) : bisect_left(self._sorted, last)]
