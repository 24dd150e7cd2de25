"""What left its message, as files of the agent's workspace: where the model and people can read it.

    session/eviction --blobs, conclude--> Preserved --> one commit: the files and the lighter message
    a cleared conversation --paths--> Preserved.drop --> gone, from the log and from the bytes as well

In an agent's own rows a file and the message that names it are one commit. Elsewhere the file comes first: a
crash leaves it in both places, never in none. These files are not in the log: no `restore` takes them away
from the messages that name them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..calling import awaited
from ..errors import WorkspaceError
from ..store.port import AgentStore, Statement
from ..workspace.port import Conclude, Edit, Put
from ..workspace.refusals import changed_meanwhile
from ..workspace.stored import StoredFiles
from ..workspace.workspace import Workspace

__all__ = ["Preserved"]

_log = logging.getLogger("everthink.workspace")


class _Blob(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def data(self) -> bytes: ...

    @property
    def media_type(self) -> str: ...


class Preserved:
    """The files of one agent that messages name."""

    def __init__(self, workspace: Callable[[], Any], store: AgentStore) -> None:
        self._workspace, self._store = workspace, store

    @property
    def folder(self) -> str:
        """What keeps its files apart from those of others with the same workspace, if there may be any."""
        workspace = self._workspace()
        if isinstance(workspace, Workspace) and workspace.is_own:
            return ""
        return hashlib.sha256(self._store.agent.encode()).hexdigest()[:16]

    async def keep(self, blobs: Sequence[_Blob], conclude: Conclude) -> None:
        """Write files, and have `conclude` commit what names them. Raises `ESTALE` when something else is at
        one of the paths; then, as with every `WorkspaceError`, nothing is committed."""
        workspace = self._workspace()
        edits: list[Edit] = []
        for blob in blobs:
            is_there = await self._has(workspace, blob)
            if_hash = hashlib.sha256(blob.data).hexdigest() if is_there else ""
            edits.append(Put(blob.path, blob.data, blob.media_type, if_hash))
        if isinstance(workspace, Workspace):
            if isinstance(workspace.files, StoredFiles):
                await workspace.unlogged().concluding(conclude).apply(edits)
                return
            await workspace.apply(edits)
        else:
            for blob in blobs:
                await awaited(workspace.write_file_bytes(blob.path, blob.data))
        await conclude(())

    async def _has(self, workspace: Any, blob: _Blob) -> bool:
        found = await awaited(workspace.read_file_bytes(blob.path))
        if found is not None and found != blob.data:
            raise changed_meanwhile(blob.path)
        return found is not None

    async def drop(self, paths: Sequence[str], forget: Callable[[Sequence[str]], Statement]) -> bool:
        """Remove files for good, and `forget` them. False when some could not be removed: try again later."""
        workspace = self._workspace()
        if isinstance(workspace, Workspace) and isinstance(workspace.files, StoredFiles):
            await workspace.files.drop(paths, forget(paths))
            return True
        gone: list[str] = []
        for path in paths:
            try:
                await awaited(workspace.rm(path, force=True))
                gone.append(path)
            except WorkspaceError as error:
                _log.warning("%s stays where it is for now: %s", path, error)
        if gone:
            await self._store.apply([forget(gone)])
        return len(gone) == len(paths)

    async def read(self, path: str) -> bytes | None:
        """The bytes of a file, or `None` when there is none any more."""
        try:
            return await awaited(self._workspace().read_file_bytes(path))
        except WorkspaceError:
            return None  # a folder now, or a link that leads nowhere
