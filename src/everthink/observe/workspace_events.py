"""What an agent reports of its files, on `agents:workspace`. Paths are told, contents never."""

from __future__ import annotations

from .events import EventBody, event

__all__ = [
    "WorkspaceCp",
    "WorkspaceDelete",
    "WorkspaceMkdir",
    "WorkspaceMv",
    "WorkspaceRead",
    "WorkspaceRestore",
    "WorkspaceRm",
    "WorkspaceWrite",
]


@event("workspace:read")
class WorkspaceRead(EventBody, frozen=True, kw_only=True):
    """A file was read. `storage` is where its bytes are: `row`, `object`, or `files` for another backend."""

    path: str
    storage: str


@event("workspace:write")
class WorkspaceWrite(EventBody, frozen=True, kw_only=True):
    """A file was written; `update` when there was one before."""

    path: str
    size: int
    storage: str
    update: bool


@event("workspace:delete")
class WorkspaceDelete(EventBody, frozen=True, kw_only=True):
    """A file or a link was deleted."""

    path: str


@event("workspace:mkdir")
class WorkspaceMkdir(EventBody, frozen=True, kw_only=True):
    """A folder was made."""

    path: str
    recursive: bool


@event("workspace:rm")
class WorkspaceRm(EventBody, frozen=True, kw_only=True):
    """Something was removed, with all that was in it when `recursive`."""

    path: str
    recursive: bool


@event("workspace:cp")
class WorkspaceCp(EventBody, frozen=True, kw_only=True):
    """Something was copied."""

    src: str
    dest: str
    recursive: bool


@event("workspace:mv")
class WorkspaceMv(EventBody, frozen=True, kw_only=True):
    """Something was moved."""

    src: str
    dest: str


@event("workspace:restore")
class WorkspaceRestore(EventBody, frozen=True, kw_only=True):
    """Earlier versions came back: those after a change, or those before a turn."""

    changes: int
    seq: int | None = None
    turn_id: str | None = None
