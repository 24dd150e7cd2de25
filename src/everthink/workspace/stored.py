"""The files of an agent in its own rows: the backend that every agent has.

    Workspace --edits--> StoredFiles --Plan--> statements --> one commit: ours, or a tool call's (`conclude`)

From the look at what an edit depends on until its commit is durable, one lock is held for an agent's files:
of two tools that write at once, the second sees what the first wrote. Files, contents and log are one commit.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar
from weakref import WeakValueDictionary

from ..clock import Clock, moment_of, ms_of
from ..collecting import Uncollected
from ..current import current_call
from ..errors import AgentError, WorkspaceError
from ..object_contents import ObjectContents
from ..store.borrowed import lent
from ..store.port import AgentStore, Row, Statement
from . import queries, refusals
from .contents import PART_BYTES, Content, decoded, gathered
from .paths import range_below
from .plan import ROOT, Kept, Plan, Usage, before_all, before_turn, followed
from .port import UNLIMITED, Changes, CommitEdit, Edit, Entries, Entry, WorkspaceLimits

__all__ = ["NamedElsewhere", "Origin", "StoredFiles"]

_log = logging.getLogger("everthink.workspace")

T = TypeVar("T")

Origin = Callable[[], tuple[str | None, str | None]]
"""Which tool call, of which turn, the code that asks is part of."""

NamedElsewhere = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Which of some contents something else names by their hash, such as the result of a tool in a message."""

_PAGE = 500
_MANY = 2000
"""More rows or changes than these are turned into others beside the event loop."""
_BATCH_BYTES = 8 << 20
"""Bytes of contents that are in memory at a time while files are looked through."""
_AT_ONCE = 5000
"""Changes that one commit forgets."""
_ENTIRE = 1 << 62
_SWEEP_AFTER = 500
"""Changes between two looks at what the log need not keep."""
_SWEEP_BYTES = 64 << 20


class _Shared:
    """What all that have the files of one agent share."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.scripts = asyncio.Lock()
        self.seq = -1
        self.usage = Usage()
        """As it was after the change `seq`: every change is numbered, so an older one is not believed."""
        self.is_moved = False
        """True when files were removed that no change tells of: what is left is counted again."""
        self.unswept_changes = 0
        self.unswept_bytes = 0


_shared: WeakValueDictionary[tuple[int, str], _Shared] = WeakValueDictionary()


def _shared_by(store: AgentStore) -> _Shared:
    key = (id(store.database), store.agent)
    return _shared.setdefault(key, _Shared())


class StoredFiles:
    """Files, contents and changes in the tables of one agent."""

    def __init__(
        self,
        store: AgentStore,
        *,
        clock: Clock,
        origin: Origin | None = None,
        objects: ObjectContents | None = None,
        spill_from: int = 1_500_000,
        named: NamedElsewhere | None = None,
    ) -> None:
        self._store, self._clock = store, clock
        self._origin = origin or (lambda: current_call(store.agent))
        self._objects, self._spill_from, self._named = objects, spill_from, named
        self._shared = _shared_by(store)

    @property
    def agent(self) -> str:
        """Whose files they are."""
        return self._store.agent

    @property
    def scripts(self) -> asyncio.Lock:
        """Held by a script that works in them: one waits for the other, whoever of the family runs them."""
        return self._shared.scripts

    def place_of(self, size: int) -> str:
        """Where the bytes of a file of this size are put."""
        return "object" if self._objects is not None and size >= self._spill_from else "row"

    # --- reading

    async def stat(self, path: str, *, follow: bool = True) -> Entry | None:
        """What is at a path, or `None`."""
        return (await followed(path, self._one))[1] if follow else await self._one(path)

    async def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """Bytes of a file, all or some."""
        end = _ENTIRE if length is None else start + length
        rows = await self._store.fetch(queries.READ, end, start, path)
        if path != "/" and rows and rows[0][1] == "file":
            _, _, hash, place, _, begins, _ = rows[0]
            if place == "object":
                return await self._object(hash).get(hash, start=start, length=length)
            if begins is None:
                return b""  # behind its end
            data = b"".join(decoded(row[4], row[6]) for row in rows)
            return data[max(start - begins, 0) : end - begins]
        entry = await self.stat(path)
        if entry is None:
            return None
        if entry.kind == "directory":
            raise refusals.is_folder(entry.path)
        return await self.read(entry.path, start=start, length=length)

    async def content(self, hash: str) -> bytes | None:
        """The bytes that have this hash, while they are kept."""
        stream = await self.content_stream(hash)
        return None if stream is None else b"".join([piece async for piece in stream])

    async def content_stream(self, hash: str) -> AsyncIterator[bytes] | None:
        """The same, part by part. Raises `ESTALE` at its end when they were forgotten meanwhile."""
        rows = await self._store.fetch(queries.PART, hash, 0)
        return self._pieces(hash, rows[0]) if rows else None

    async def _pieces(self, hash: str, row: Row | None) -> AsyncIterator[bytes]:
        number, seen = 0, hashlib.sha256()
        while row is not None:
            place, encoding, content = row
            if place == "object":
                async for piece in self._object(hash).stream(hash):
                    yield piece
                return
            piece = decoded(encoding, content)
            seen.update(piece)
            yield piece
            number += 1
            row = next(iter(await self._store.fetch(queries.PART, hash, number)), None)
        if seen.hexdigest() != hash:
            raise refusals.forgotten(hash)

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file, part by part: those that it has now, also when it is written meanwhile."""
        entry = await self.stat(path)
        if entry is None:
            raise refusals.not_found(path)
        if entry.kind == "directory":
            raise refusals.is_folder(entry.path)
        number = told = 0
        while told < entry.size:
            rows = await self._store.fetch(queries.PART, entry.hash, number)
            if not rows:  # written anew, and then so much else that these bytes are not kept any more
                raise refusals.changed_meanwhile(entry.path)
            place, encoding, content = rows[0]
            if place == "object":
                async for piece in self._object(entry.hash or "").stream(entry.hash or ""):
                    yield piece
                return
            piece = decoded(encoding, content)
            yield piece
            number, told = number + 1, told + len(piece)

    async def list(self, folder: str, *, limit: int = 1000, after: str = "") -> Entries:
        """What is directly in a folder, by name."""
        begin = folder.rstrip("/") + "/" + after
        return [
            queries.entry_of(row) for row in await self._store.fetch(queries.LISTED, folder, begin, limit)
        ]

    async def scan(
        self, prefix: str = "/", *, contents: bool = False, most_bytes: int = 1 << 20
    ) -> AsyncIterator[tuple[Entry, bytes | None]]:
        """Everything below a folder in the order of paths, in pages of 500."""
        last, end = range_below(prefix)
        while rows := await self._store.fetch(queries.SCANNED, last, end, _PAGE):
            page = [queries.entry_of(row) for row in rows]
            last = page[-1].path
            if not contents:
                for entry in page:
                    yield entry, None
                continue
            for batch in _batches(page, most_bytes):
                found = await self._contents_of(batch, most_bytes)
                for entry in batch:
                    yield entry, found.get(entry.path)

    async def _contents_of(self, batch: Sequence[Entry], most_bytes: int) -> dict[str, bytes]:
        in_rows = min(most_bytes, PART_BYTES)
        rows = await self._store.fetch(queries.KNOWN, batch[0].path, batch[-1].path, in_rows)
        found = {path: decoded(encoding, text) for path, place, encoding, text in rows if place == "row"}
        for entry in batch:
            if entry.kind == "file" and entry.size <= most_bytes and entry.path not in found:
                data = await self.read(entry.path)
                if data is not None:
                    found[entry.path] = data
        return found

    async def counts(self) -> tuple[dict[str, int], int, int]:
        """How many there are of each kind, how many bytes, and how many files are in the object store."""
        rows = await self._store.fetch(queries.COUNTS)
        spilled = await self._store.fetch(queries.SPILLED)
        return {row[0]: row[1] for row in rows}, sum(row[2] for row in rows), spilled[0][0]

    # --- writing

    async def apply(
        self,
        edits: Sequence[Edit],
        *,
        conclude: CommitEdit | None = None,
        limits: WorkspaceLimits = UNLIMITED,
        is_logged: bool = True,
    ) -> Changes:
        """Do all of the edits, or none, in one commit. What is not logged is taken back by nobody."""
        ready = await gathered(edits, most_bytes=limits.file_bytes)
        async with self._shared.lock:
            with Uncollected() as large:
                return await self._carry_out(
                    lambda plan: plan.edit(ready), conclude, limits, large, is_logged=is_logged
                )

    def count_again(self) -> None:
        """Files were removed by a commit that is none of ours (`queries.let_go`)."""
        self._shared.is_moved = True

    async def _carry_out(
        self,
        think: Callable[[Plan], Awaitable[None]],
        conclude: CommitEdit | None,
        limits: WorkspaceLimits,
        large: Uncollected,
        *,
        is_logged: bool = True,
    ) -> Changes:
        async def below(folder: str) -> Sequence[Entry]:
            return await self._below(folder, large)

        now = moment_of(self._clock.now_ms())
        plan = Plan(self._look_and_count, below, now=now, limits=limits, pause=_others_turn)
        self._last = -1
        await think(plan)
        if len(plan.steps) > _MANY:
            large.begin()
        if self._last < 0:
            await self._look_and_count([])
        last, usage = self._last, await self._usage()
        after = plan.usage(usage)
        call_id, turn = self._origin()
        contents = await self._kept(plan)
        steps = plan.steps if is_logged else []

        def written() -> tuple[Changes, list[Statement]]:
            changes = [
                step.told(last + n, at=now, call_id=call_id, turn=turn) for n, step in enumerate(steps, 1)
            ]
            kept = [Kept(change, step.before) for change, step in zip(changes, steps, strict=True)]
            return changes, [*contents, *queries.changed(plan.final), *queries.logged(kept)]

        # A folder may have fifty thousand files: others are served meanwhile.
        changes, statements = await asyncio.to_thread(written) if len(plan.steps) > _MANY else written()
        if conclude is not None:
            await _seen_through(conclude(lent(self._store, statements)))
        elif statements:
            await _seen_through(self._store.apply(statements))
        shared = self._shared
        shared.seq, shared.usage = last + len(changes), after
        shared.unswept_changes += len(changes)
        shared.unswept_bytes += sum(step.before.size for step in steps if step.before)
        if shared.unswept_changes >= _SWEEP_AFTER or shared.unswept_bytes >= _SWEEP_BYTES:
            await self._sweep_or_log(limits)
        return changes

    async def _kept(self, plan: Plan) -> Sequence[Statement]:
        """What keeps the bytes that a plan writes. Those of the object store are there when this returns."""
        contents = plan.contents.values()
        large = [content.hash for content in contents if len(content.data) >= PART_BYTES]
        known = await self._store.fetch(queries.places(len(large)), *large) if large else []
        there = {row[0] for row in known}
        statements: list[Statement] = []
        for content in contents:
            size = len(content.data)
            if content.hash in there:
                continue
            if self._objects is not None and size >= self._spill_from:
                await self._objects.put(content.hash, content.data, content.media_type)
                statements.append(queries.content_spilled(content.hash, size))
            elif size > PART_BYTES:
                statements += await asyncio.to_thread(_rows_of, content)
            else:
                statements += _rows_of(content)
        return statements

    async def _usage(self) -> Usage:
        shared = self._shared
        if shared.is_moved or shared.seq != self._last:
            shared.is_moved = False
            rows = await self._store.fetch(queries.USAGE)
            return Usage(rows[0][0], rows[0][1])
        return shared.usage

    async def _look_and_count(self, paths: Sequence[str]) -> Mapping[str, Entry]:
        found: dict[str, Entry] = {}
        for start in range(0, max(len(paths), 1), _PAGE):
            some = paths[start : start + _PAGE] or [""]
            for row in await self._store.fetch(queries.looked(len(some)), *some):
                if row[0] == "":
                    self._last = row[2]
                else:
                    found[row[0]] = queries.entry_of(row)
        return found

    async def _one(self, path: str) -> Entry | None:
        if path == "/":
            return ROOT
        rows = await self._store.fetch(queries.ONE, path)
        return queries.entry_of(rows[0]) if rows else None

    async def _below(self, folder: str, large: Uncollected) -> Sequence[Entry]:
        rows = await self._store.fetch(queries.BELOW, *range_below(folder))
        if len(rows) <= _MANY:
            return [queries.entry_of(row) for row in rows]
        large.begin()
        return await asyncio.to_thread(lambda: [queries.entry_of(row) for row in rows])

    def _object(self, hash: str) -> ObjectContents:
        if self._objects is None:
            raise WorkspaceError(
                "The bytes of this file are in an object store, and this workspace has none.",
                code="EIO",
                kept="The file is still listed.",
                next_step="Give it the store again: Workspace(objects=..., prefix=...).",
            )
        return self._objects

    # --- what was

    async def changes(self, *, after: int = 0, limit: int = 1000) -> Changes:
        """The changes that are kept, in order."""
        return [queries.kept_of(row).change for row in await self._store.fetch(queries.LOG, after, limit)]

    async def restore(
        self, seq: int, *, conclude: CommitEdit | None = None, limits: WorkspaceLimits = UNLIMITED
    ) -> Changes:
        """Bring everything to where it stood after the change `seq`."""
        async with self._shared.lock:
            first, last = (await self._store.fetch(queries.LOG_BOUNDS))[0]
            if not first - 1 <= seq <= last:
                raise refusals.not_kept(seq, first - 1, last)
            with Uncollected() as large:
                wanted = before_all(await self._kept_after(seq, large))
                return await self._carry_out(lambda plan: plan.bring_back(wanted), conclude, limits, large)

    async def undo(
        self, turn: str, *, conclude: CommitEdit | None = None, limits: WorkspaceLimits = UNLIMITED
    ) -> Changes:
        """Take back what one turn changed."""
        async with self._shared.lock:
            first = (await self._store.fetch(queries.FIRST_OF_TURN, turn))[0][0]
            with Uncollected() as large:
                kept = () if first is None else await self._kept_after(first - 1, large)
                wanted = before_turn(kept, turn)
                return await self._carry_out(lambda plan: plan.bring_back(wanted), conclude, limits, large)

    async def _kept_after(self, seq: int, large: Uncollected) -> Sequence[Kept]:
        found: list[Kept] = []
        while rows := await self._store.fetch(queries.LOG, found[-1].change.seq if found else seq, _PAGE):
            found += [queries.kept_of(row) for row in rows]
            if len(found) > _MANY:
                large.begin()
        return found

    async def sweep(self, limits: WorkspaceLimits, *, keep: Collection[str] = ()) -> int:
        """Forget changes that need not be kept, and the bytes that nothing names any more: how many.

        `keep` are hashes that are named all the same. Objects that a crash left behind go, too. Others write
        in between: the lock is held for a page of it at a time.
        """
        async with self._shared.lock:
            await self._forget(limits)
        swept, after = 0, ""
        while True:
            async with self._shared.lock:
                after, gone = await self._sweep_page(after, keep)
            swept += gone
            if not after:
                return swept + await self._sweep_objects()

    async def _forget(self, limits: WorkspaceLimits) -> None:
        before = moment_of(self._clock.now_ms()) - timedelta(days=limits.history_days)
        enough = limits.history, limits.history_bytes, ms_of(before)
        last = (await self._store.fetch(queries.FORGETTABLE, *enough))[0][0]
        if last is not None:
            first = (await self._store.fetch(queries.LOG_BOUNDS))[0][0]
            # In pieces: others have something to commit, too.
            for seq in range(first + _AT_ONCE - 1, last + _AT_ONCE, _AT_ONCE):
                await _seen_through(self._store.apply([queries.forgotten(min(seq, last))]))
        self._shared.unswept_changes = self._shared.unswept_bytes = 0

    async def _sweep_page(self, after: str, keep: Collection[str]) -> tuple[str, int]:
        """Delete some of the bytes that nothing names: behind which hash the next are, and how many went.

        The rows go first. A crash then leaves objects that no row names, which the next sweep deletes.
        """
        sql, params, *_ = queries.unnamed(after, _PAGE)
        found = [row[0] for row in await self._store.fetch(sql, *params)]
        wanted = set(found) - set(keep)
        if wanted and self._named is not None:
            wanted -= set(await self._named(wanted))
        gone: set[str] = set()
        if wanted:
            (rows,) = await _seen_through(self._store.apply([queries.swept(sorted(wanted))]))
            gone = {row[0] for row in rows}
            objects = {row[0] for row in rows if row[1] == "object"}
            if objects and self._objects is not None:
                await self._objects.delete(objects)
        return found[-1] if len(found) == _PAGE else "", len(gone)

    async def _sweep_objects(self) -> int:
        """Delete the objects that no row names. One that is being written has no row yet: hence the lock."""
        if self._objects is None:
            return 0
        swept, there = 0, sorted(await self._objects.listed())
        for start in range(0, len(there), _PAGE):
            async with self._shared.lock:
                named = {row[0] for row in await self._store.fetch(queries.OBJECTS)}
                unnamed = [hash for hash in there[start : start + _PAGE] if hash not in named]
                await self._objects.delete(unnamed)
            swept += len(unnamed)
        return swept

    async def _sweep_or_log(self, limits: WorkspaceLimits) -> None:
        try:
            await self._forget(limits)
            await self._sweep_page("", ())
        except AgentError:
            _log.exception("Old versions of the files of %s could not be forgotten.", self._store.agent)


async def _others_turn() -> None:
    await asyncio.sleep(0)


def _rows_of(content: Content) -> list[Statement]:
    return [queries.content_kept(content.hash, part) for part in content.parts()]


def _batches(page: Sequence[Entry], most_bytes: int) -> list[list[Entry]]:
    """A page in pieces whose contents fit into memory, one entry at least in each."""
    batches: list[list[Entry]] = [[]]
    held = 0
    for entry in page:
        size = entry.size if entry.size <= most_bytes else 0
        if batches[-1] and held + size > _BATCH_BYTES:
            batches.append([])
            held = 0
        batches[-1].append(entry)
        held += size
    return batches


async def _seen_through(work: Awaitable[T]) -> T:
    """What `work` comes to. Whoever is cancelled meanwhile waits for its end: only then may others write."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        raise
