"""`Workspace`: the files of one agent, as code and tools use them.

    tools, hooks --read_file, write_file, …--> Workspace --edits--> Files (rows, memory, a directory)
                                                  |--> on_change, workspace:* events

Written once over the six verbs of `Files`: paths, limits, patterns, differences and events are here, so every
backend behaves alike. On a class it is a definition; `bind` makes the one of an agent. An edit is durable
before its method returns.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..calling import awaited
from ..clock import Clock
from ..errors import InvalidSettings, WorkspaceError
from ..object_contents import ObjectContents
from ..observe.events import EventBody
from ..observe.workspace_events import (
    WorkspaceCp,
    WorkspaceDelete,
    WorkspaceMkdir,
    WorkspaceMv,
    WorkspaceRead,
    WorkspaceRestore,
    WorkspaceRm,
    WorkspaceWrite,
)
from ..settings import check_call
from ..store.port import AgentStore
from ..text_diff import unified
from . import refusals
from .contents import LONG
from .glob import Glob
from .grep import Hits, Search
from .memory import MemoryFiles
from .paths import normal
from .port import (
    Change,
    CommitEdit,
    Copy,
    Edit,
    Entry,
    Files,
    History,
    Link,
    MakeFolder,
    Move,
    Put,
    Remove,
    WorkspaceLimits,
)
from .stored import NamedElsewhere, Origin, StoredFiles

__all__ = ["ParentWorkspace", "Workspace", "WorkspaceInfo"]

_log = logging.getLogger("everthink.workspace")

SPILL_FROM = 1_500_000
_TRIES = 100
_PAGE, _PAGE_BYTES = 500, 8 << 20

T = TypeVar("T")
OnChange = Callable[[Change], object]


@dataclass(frozen=True, slots=True)
class WorkspaceInfo:
    """How much a workspace holds."""

    file_count: int
    directory_count: int
    """Folders, the root included."""
    total_bytes: int
    object_file_count: int
    """Files whose bytes are in an object store."""


class Workspace:
    """The files of an agent.

        class Assistant(Think):
            workspace = Workspace()                          # rows of its own, which is the default
            workspace = Workspace(DiskFiles("/srv/shared"))  # or a real directory, for all of them

        await agent.workspace.write_file("/notes/plan.md", "# Plan")

    `objects` is a store of `obstore`: contents of `spill_from` bytes and more go there, below `prefix`.
    `on_change` is told of every change once it is durable; what it raises is logged and undoes nothing.
    """

    def __init__(
        self,
        files: Files | None = None,
        *,
        limits: WorkspaceLimits | None = None,
        objects: Any = None,
        prefix: str | None = None,
        spill_from: int = SPILL_FROM,
        on_change: OnChange | None = None,
    ) -> None:
        check_call(
            "Workspace",
            files=files,
            limits=limits,
            objects=objects,
            prefix=prefix,
            spill_from=spill_from,
            on_change=on_change,
        )
        if files is not None and (objects is not None or prefix is not None):
            raise InvalidSettings(
                "Workspace(files, objects=…): only an agent's own files go to an object store.",
                next_step="Leave files out, or objects and prefix.",
            )
        self.limits = limits or WorkspaceLimits()
        self._own_files, self._on_change = files, on_change
        self._objects, self._prefix, self._spill_from = objects, prefix, spill_from
        self._files = files
        self._emit: Callable[[EventBody], None] | None = None
        self._conclude: CommitEdit | None = None
        self._lock = asyncio.Lock()  # held while a file is read to be written again
        self._turns = asyncio.Lock()  # held while a thread looks: one for each agent, since threads are few

    def bind(
        self,
        store: AgentStore,
        *,
        clock: Clock,
        emit: Callable[[EventBody], None] | None = None,
        origin: Origin | None = None,
        named: NamedElsewhere | None = None,
    ) -> Workspace:
        """The workspace of the agent whose `store` this is. `origin` says which call of which turn asks,
        `named` which contents are to be kept though no file has them any more."""
        bound = copy.copy(self)
        bound._emit, bound._lock, bound._turns = emit, asyncio.Lock(), asyncio.Lock()
        if self._own_files is None:
            bound._files = StoredFiles(
                store,
                clock=clock,
                origin=origin,
                objects=self.objects_of(store.agent),
                spill_from=self._spill_from,
                named=named,
            )
        return bound

    def objects_of(self, agent: str) -> ObjectContents | None:
        """What the object store has of an agent; `None`: there is none."""
        if self._objects is None:
            return None
        return ObjectContents(self._objects, prefix=self._prefix, agent=agent)

    @property
    def is_own(self) -> bool:
        """True when its files are rows of the agent: a tool's write is one commit with its result."""
        return self._own_files is None

    def __get__(self, instance: Any, owner: type | None = None) -> Workspace:
        """On a class it is the definition; on an agent, the agent's own."""
        home = None if instance is None else getattr(instance, "_home", None)
        return self if home is None else home.workspace

    def concluding(self, conclude: CommitEdit) -> Workspace:
        """The same workspace for one tool call: `conclude` takes the rows of what it writes into the commit
        that settles the call, so that both are there after a crash, or neither.

        It is called once by every edit that is carried out, and not at all by one that is refused or that
        has nothing to do (`delete_file` of what is not there, `rm` with `force`).
        """
        bound = copy.copy(self)
        bound._conclude = conclude
        return bound

    @property
    def files(self) -> Files:
        """What is behind it."""
        if self._files is None:
            raise WorkspaceError(
                "This Workspace is a definition: it belongs to no agent yet.",
                code="EINVAL",
                next_step="Use agent.workspace, or give it files of its own: Workspace(MemoryFiles()).",
            )
        return self._files

    # --- reading

    async def read_file(self, path: str) -> str | None:
        """The text of a file, or `None` when there is none. What is not UTF-8 is replaced by `�`."""
        data = await self.read_file_bytes(path)
        return None if data is None else data.decode("utf-8", "replace")

    async def read_file_bytes(self, path: str, *, start: int = 0, length: int | None = None) -> bytes | None:
        """The bytes of a file, all or some, or `None` when there is none."""
        check_call("read_file_bytes", start=start, length=length)
        where = self._normal(path)
        data = await self.files.read(where, start=start, length=length)
        if data is not None:
            self._tell(WorkspaceRead(path=where, storage=self._storage(len(data))))
        return data

    async def read_content(self, hash: str) -> bytes | None:
        """The bytes that have this SHA-256 while they are kept, also when the file has changed since."""
        return await self.files.content(hash) if isinstance(self.files, StoredFiles) else None

    async def read_content_stream(self, hash: str) -> AsyncIterator[bytes] | None:
        """The same piece by piece. `None` when they are not kept."""
        return await self.files.content_stream(hash) if isinstance(self.files, StoredFiles) else None

    async def read_file_stream(self, path: str) -> AsyncIterator[bytes] | None:
        """The bytes of a file, piece by piece, or `None` when there is none."""
        entry = await self.stat(path)
        if entry is None:
            return None
        if entry.kind == "directory":
            raise refusals.is_folder(entry.path)
        self._tell(WorkspaceRead(path=entry.path, storage=self._storage(entry.size)))
        return self.files.stream(entry.path)

    async def stat(self, path: str) -> Entry | None:
        """What is at a path; of a link, what it leads to. `None` when there is nothing."""
        return await self.files.stat(self._normal(path))

    async def lstat(self, path: str) -> Entry | None:
        """What is at a path, a link itself included. `None` when there is nothing."""
        return await self.files.stat(self._normal(path), follow=False)

    async def exists(self, path: str) -> bool:
        """True when there is something: a file, a folder, or a link, wherever it leads."""
        return await self.lstat(path) is not None

    async def file_exists(self, path: str) -> bool:
        """True when there is a file, or a link to one."""
        entry = await self.stat(path)
        return entry is not None and entry.kind == "file"

    async def readlink(self, path: str) -> str:
        """Where a link leads, as it was written."""
        entry = await self.lstat(path)
        if entry is None:
            raise refusals.not_found(self._normal(path))
        if entry.target is None:
            raise refusals.not_link(entry.path)
        return entry.target

    async def read_dir(self, path: str = "/", *, limit: int = 1000, offset: int = 0) -> list[Entry]:
        """What is in a folder: folders, then files, then links, each by name. `[]` when it is no folder."""
        folder, found, after = self._normal(path), list[Entry](), ""
        while page := await self.files.list(folder, limit=1000, after=after):
            found += page
            after = page[-1].name
        found.sort(key=lambda entry: (entry.kind, entry.name))
        return found[offset : offset + limit]

    async def get_workspace_info(self) -> WorkspaceInfo:
        """How much there is."""
        if isinstance(self.files, StoredFiles):
            counts, size, spilled = await self.files.counts()
            return WorkspaceInfo(counts.get("file", 0), counts.get("directory", 0) + 1, size, spilled)
        files, folders, size = 0, 1, 0
        async for entry, _ in self.files.scan():
            files, folders = files + (entry.kind == "file"), folders + (entry.kind == "directory")
            size += entry.size
        return WorkspaceInfo(files, folders, size, 0)

    # --- looking for something

    async def glob(self, pattern: str) -> list[Entry]:
        """What has a path like this, in the order of paths: `**/*.md`. Links are not followed."""
        glob = Glob(pattern)
        if glob.path is not None:
            entry = await self.lstat(glob.path)
            return [] if entry is None or glob.path == "/" else [entry]
        entries = [entry async for entry, _ in self.files.scan(glob.folder)]
        meant = await self._beside(glob.matching, [entry.path for entry in entries])
        return [entry for entry in entries if entry.path in meant]

    async def grep(
        self,
        pattern: str,
        path: str = "/",
        *,
        include: str | None = None,
        fixed: bool = False,
        ignore_case: bool = False,
        context: int = 0,
        limit: int = 200,
        most_bytes: int = 1 << 20,
    ) -> Hits:
        """Lines that a regular expression is found in, in a file or in all below a folder, by path.

        `include` is a pattern of paths; without a slash, of names (`*.py`). `fixed` looks for the text
        itself. Files of more than `most_bytes`, and files that are no text, are counted and left out.
        """
        search = Search(pattern, fixed=fixed, ignore_case=ignore_case, context=context, limit=limit)
        glob = None if include is None else Glob(include if "/" in include else f"**/{include}")
        where = await self.stat(path)
        if where is None:
            raise refusals.not_found(self._normal(path))
        async for page in self._texts(where, most_bytes):
            await self._beside(_look, search, glob, page)
            if search.is_over:
                break
        return search.hits()

    async def _texts(self, where: Entry, most_bytes: int) -> AsyncIterator[list[tuple[str, bytes | None]]]:
        """The files to look through, so many at a time as are good to hold."""
        if where.kind != "directory":
            is_small = where.size <= most_bytes
            yield [(where.path, await self.files.read(where.path) if is_small else None)]
            return
        page, held = list[tuple[str, bytes | None]](), 0
        async for entry, data in self.files.scan(where.path, contents=True, most_bytes=most_bytes):
            if entry.kind == "file":
                page.append((entry.path, data))
                held += len(data or b"")
            if len(page) >= _PAGE or held >= _PAGE_BYTES:
                yield page
                page, held = [], 0
        if page:
            yield page

    async def diff(self, a: str, b: str) -> str:
        """A unified diff from one file to another; empty when they are equal."""
        return await self._diff(
            self._normal(a), await self._needed(a), self._normal(b), await self._needed(b)
        )

    async def diff_content(self, path: str, text: str) -> str:
        """A unified diff from a file to a text; empty when they are equal."""
        return await self._diff(self._normal(path), await self._needed(path), self._normal(path), text)

    async def _diff(self, old: str, before: str, new: str, after: str) -> str:
        return await self._beside(lambda: unified(before, after, old=old, new=new))

    async def _beside(self, work: Callable[..., T], *args: Any) -> T:
        """What `work` comes to, in a thread. Others of this agent wait for it, and nobody else does."""
        async with self._turns:
            return await asyncio.to_thread(work, *args)

    async def _needed(self, path: str) -> str:
        data = await self.files.read(self._normal(path))
        if data is None:
            raise refusals.not_found(self._normal(path))
        return data.decode("utf-8", "replace")

    # --- what was

    async def changes(self, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """What was changed, in order, from behind the change `after` on."""
        return await self._history.changes(after=after, limit=limit)

    async def restore(self, seq: int) -> list[Change]:
        """Bring all files to where they stood after the change `seq`. That can be taken back the same way."""
        check_call("restore", seq=seq)
        changes = await self._history.restore(seq, conclude=self._conclude, limits=self.limits)
        await self._show(changes)
        self._tell(WorkspaceRestore(changes=len(changes), seq=seq))
        return changes

    async def undo(self, *, turn: str) -> list[Change]:
        """Take back what one turn changed. Raises `ESTALE` when one of its files was changed again since."""
        changes = await self._history.undo(turn, conclude=self._conclude, limits=self.limits)
        await self._show(changes)
        self._tell(WorkspaceRestore(changes=len(changes), turn_id=turn))
        return changes

    @property
    def _history(self) -> History:
        if isinstance(self.files, StoredFiles | MemoryFiles):
            return self.files
        raise refusals.no_history()

    async def sweep(self, *, keep: Sequence[str] = ()) -> int:
        """Forget old changes and the bytes that nothing names any more, except those of the hashes in `keep`.

        Returns how many contents are gone. Asked for by the runtime now and then; nobody else has to.
        """
        return await self.files.sweep(self.limits, keep=keep) if isinstance(self.files, StoredFiles) else 0

    # --- writing

    async def write_file(self, path: str, text: str, media_type: str | None = None) -> Change:
        """Write a text as a file, with the folders above it. A link at the path is followed."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - models call it
            raise TypeError(f"write_file() takes a str, not {type(text).__name__}: see write_file_bytes().")
        return await self._put(path, text.encode("utf-8", "replace"), media_type)

    async def write_file_bytes(
        self, path: str, data: bytes, media_type: str | None = None, *, if_hash: str | None = None
    ) -> Change:
        """Write bytes as a file. With `if_hash` only when it has the bytes with that SHA-256 still, and with
        `if_hash=""` only when there is no file; otherwise this raises `ESTALE`.
        """
        if not isinstance(data, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"write_file_bytes() takes bytes, not {type(data).__name__}.")
        return await self._put(path, bytes(data), media_type, if_hash)

    async def write_file_stream(
        self, path: str, stream: AsyncIterable[bytes], media_type: str | None = None
    ) -> Change:
        """Write what a stream gives as a file, once it has ended."""
        return await self._put(path, stream, media_type)

    async def append_file(self, path: str, text: str, media_type: str | None = None) -> Change:
        """Add a text to the end of a file. Without the file this writes one."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - models call it
            raise TypeError(f"append_file() takes a str, not {type(text).__name__}.")
        added = text.encode("utf-8", "replace")
        return await self._rewritten(path, lambda data: (data or b"") + added, media_type)

    async def rewrite_file(self, path: str, change: Callable[[str], str]) -> Change:
        """Replace the text of a file by what `change` makes of it; nobody else writes in between.

        What `change` raises leaves the file as it is. Raises `ENOENT` when there is no file.
        """

        def changed(data: bytes | None) -> bytes:
            if data is None:
                raise refusals.not_found(self._normal(path))
            return change(data.decode("utf-8", "replace")).encode("utf-8", "replace")

        return await self._rewritten(path, changed, None)

    async def delete_file(self, path: str) -> bool:
        """Delete a file or a link: true when there was one."""
        where = self._normal(path)
        entry = await self.files.stat(where, follow=False)
        if entry is None:
            return False
        if entry.kind == "directory":
            raise refusals.is_folder(where, next_step="Folders are removed with rm().")
        try:
            await self._apply([Remove(where)])
        except WorkspaceError as error:
            if error.code == "ENOENT":
                return False
            raise
        self._tell(WorkspaceDelete(path=where))
        return True

    async def mkdir(self, path: str, *, recursive: bool = False) -> None:
        """Make a folder; with `recursive` those above it, too, and one that is there is fine."""
        where = self._normal(path)
        await self._apply([MakeFolder(where, recursive)])
        self._tell(WorkspaceMkdir(path=where, recursive=recursive))

    async def rm(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Remove a file, a link or a folder. `force` is content when there is nothing."""
        where = self._normal(path)
        try:
            await self._apply([Remove(where, recursive)], tell=lambda change: change.path == where)
        except WorkspaceError as error:
            if force and error.code == "ENOENT":
                return
            raise
        self._tell(WorkspaceRm(path=where, recursive=recursive))

    async def cp(self, src: str, dest: str, *, recursive: bool = False) -> None:
        """Copy a file, a link as a link, or with `recursive` a folder."""
        source, path = self._normal(src), self._normal(dest)
        entry = await self.files.stat(source, follow=False)
        if entry is not None and entry.kind == "directory" and not recursive:
            raise refusals.is_folder(
                source, next_step="With `recursive` it is copied with all that is in it."
            )
        await self._apply([Copy(source, path)])
        self._tell(WorkspaceCp(src=source, dest=path, recursive=recursive))

    async def mv(self, src: str, dest: str, *, recursive: bool = True) -> None:
        """Give a file, a link or a folder another path. A file that is there is replaced."""
        source, path = self._normal(src), self._normal(dest)
        entry = await self.files.stat(source, follow=False)
        if entry is not None and entry.kind == "directory" and not recursive:
            raise refusals.is_folder(source, next_step="With `recursive` it is moved with all that is in it.")
        await self._apply([Move(source, path)], tell=lambda change: change.path in (source, path))
        self._tell(WorkspaceMv(src=source, dest=path))

    async def symlink(self, target: str, path: str) -> None:
        """Make a link at `path` that leads to `target`."""
        await self._apply([Link(self._normal(path), target)])

    async def apply(self, edits: Sequence[Edit]) -> list[Change]:
        """Do several edits at once: all of them, or none."""
        given = [self._normalised(edit) for edit in ([edits] if isinstance(edits, Edit) else edits)]
        changes = await self._apply(given)
        sizes = {
            one.path: len(one.data) for one in given if isinstance(one, Put) and isinstance(one.data, bytes)
        }
        for change in changes:
            if change.kind == "file" and change.path in sizes:
                self._tell_written(change, sizes[change.path])
        return changes

    # --- how

    async def _put(
        self,
        path: str,
        data: bytes | AsyncIterable[bytes],
        media_type: str | None,
        if_hash: str | None = None,
    ) -> Change:
        size = len(data) if isinstance(data, bytes) else 0

        async def counted(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
            nonlocal size
            async for piece in stream:
                size += len(piece)
                yield piece

        given = counted(data) if isinstance(data, AsyncIterable) else data
        changes = await self._apply([Put(self._normal(path), given, media_type, if_hash)])
        written = changes[-1]
        self._tell_written(written, size)
        return written

    async def _rewritten(
        self, path: str, make: Callable[[bytes | None], bytes], media_type: str | None
    ) -> Change:
        where = self._normal(path)
        async with self._lock:
            for _ in range(_TRIES):
                entry = await self.files.stat(where)
                data = None if entry is None else await self.files.read(where)
                kept = media_type or (entry.media_type if entry is not None else None)
                made = make(data) if len(data or b"") <= LONG else await asyncio.to_thread(make, data)
                try:
                    return await self._put(where, made, kept, _hash(data))
                except WorkspaceError as error:  # another workspace on the same files was faster
                    if error.code != "ESTALE":
                        raise
        raise refusals.changed_meanwhile(where)

    async def _apply(
        self, edits: Sequence[Edit], *, tell: Callable[[Change], bool] = lambda change: True
    ) -> list[Change]:
        changes = await self.files.apply(edits, conclude=self._conclude, limits=self.limits)
        await self._show([change for change in changes if tell(change)])
        return changes

    async def _show(self, changes: Sequence[Change]) -> None:
        if self._on_change is None:
            return
        for change in changes:
            try:
                await awaited(self._on_change(change))
            except Exception:  # noqa: BLE001 - it looks on; the change is made
                _log.exception("on_change of a workspace failed for %r", change.path)

    def _tell(self, body: EventBody) -> None:
        if self._emit is not None:
            self._emit(body)

    def _tell_written(self, change: Change, size: int) -> None:
        is_update, storage = change.change == "update", self._storage(size)
        self._tell(WorkspaceWrite(path=change.path, size=size, storage=storage, update=is_update))

    def _storage(self, size: int) -> str:
        return self.files.place_of(size) if isinstance(self.files, StoredFiles) else "files"

    def _normal(self, path: str) -> str:
        return normal(path, self.limits)

    def _normalised(self, edit: Edit) -> Edit:
        match edit:
            case Put(path, data, media_type, if_hash):
                return Put(self._normal(path), data, media_type, if_hash)
            case MakeFolder(path, recursive):
                return MakeFolder(self._normal(path), recursive)
            case Remove(path, recursive, if_hash):
                return Remove(self._normal(path), recursive, if_hash)
            case Move(source, path):
                return Move(self._normal(source), self._normal(path))
            case Copy(source, path):
                return Copy(self._normal(source), self._normal(path))
            case Link(path, target):
                return Link(self._normal(path), target)
            case _:  # pyright: ignore[reportUnnecessaryComparison] - users call it
                raise refusals.unfit(f"apply() takes edits, such as Put(…), not a {type(edit).__name__}.")


class ParentWorkspace(Workspace):
    """The files of the agent above: a child works in those of its parent, whatever they are.

        class Researcher(Think):
            workspace = ParentWorkspace()

    Both write to the same files, one after the other, and to the same log, where a change names the turn of
    whoever made it. The files are the parent's: they stay when the child is deleted. An agent that is
    nobody's child has files of its own.
    """

    def __init__(self) -> None:
        super().__init__()


def _look(search: Search, glob: Glob | None, page: list[tuple[str, bytes | None]]) -> None:
    if glob is not None:
        meant = glob.matching([path for path, _ in page])
        page = [one for one in page if one[0] in meant]
    search.look(page)


def _hash(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()
