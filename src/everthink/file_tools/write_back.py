"""What a script changed, as edits of the workspace, and why some of it is not written.

    Snapshot, Outcome --> WriteBack.edits --drop(refusal)--> fewer edits, more errors

Pure. A script never overwrites or deletes what it was not given, nor what somebody else changed while it ran.
What is refused is told, and the rest is written, with one exception: a file whose bytes could not be written
to where the script moved them is not deleted either.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import WorkspaceError
from ..sandbox.port import Outcome
from ..workspace.paths import ancestors
from ..workspace.port import MakeFolder, Put, Remove
from .snapshot import Snapshot

__all__ = ["BackEdit", "WriteBack"]

BackEdit = Put | MakeFolder | Remove

_NOT_DONE = {Put: "written", MakeFolder: "made", Remove: "deleted"}


class WriteBack:
    """The changes of one script on their way back."""

    def __init__(self, before: Snapshot, outcome: Outcome) -> None:
        self._before = before
        self.errors: list[str] = []
        """What was not written, and why."""
        self.edits: list[BackEdit] = []
        """What is still to be written, in order."""
        if outcome.error is not None and outcome.status != "done":
            self.errors.append(outcome.error)
        if outcome.status == "done" or outcome.folders or outcome.changed or outcome.deleted:
            self._plan(outcome)

    def _plan(self, outcome: Outcome) -> None:
        """Folders, then files, then what is gone, the deepest first. What is in the way goes before all."""
        before = self._before
        made: list[BackEdit] = [MakeFolder(path) for path in sorted(outcome.folders - before.folders)]
        made += [
            Put(path, outcome.changed[path], if_hash=before.hash_of(path)) for path in sorted(outcome.changed)
        ]
        gone: list[BackEdit] = [
            Remove(path, if_hash=before.hash_of(path)) for path in sorted(outcome.deleted)
        ]
        folders = before.folders - outcome.folders - {"/"}
        gone += [Remove(path) for path in sorted(folders, key=lambda path: (-path.count("/"), path))]
        new = {edit.path for edit in made}
        in_the_way = [edit for edit in gone if not new.isdisjoint((edit.path, *ancestors(edit.path)))]
        self.edits = [*in_the_way, *made, *(edit for edit in gone if edit not in in_the_way)]
        for edit in tuple(self.edits):
            if isinstance(edit, Remove):
                if edit.path in folders and (kept := before.protects_below(edit.path)) is not None:
                    self.refuse(edit, f"{kept} is in it, which the script was not given.")
            elif (kept := before.protects(edit.path)) is not None:
                self.refuse(edit, f"{kept} is there, which the script was not given.")

    def given(self, path: str) -> bytes | None:
        """The bytes that the script was given of a file; `None` when there was no file."""
        return self._before.files.get(path)

    # --- what is refused

    def refuse(self, edit: BackEdit, why: str) -> None:
        """Leave out one edit, and what would lose something without it."""
        if edit not in self.edits:
            return
        self.edits.remove(edit)
        self.errors.append(f"{edit.path} was not {_NOT_DONE[type(edit)]}: {why}")
        if isinstance(edit, Put):
            for other in tuple(self.edits):
                if isinstance(other, Remove) and self._before.files.get(other.path) == edit.data:
                    self.refuse(other, f"what it holds could not be written to {edit.path}.")

    def drop(self, error: WorkspaceError) -> bool:
        """Leave out what a workspace refuses with this error. False when that is none of the edits."""
        if not error.path or error.code == "EDQUOT":
            return False
        meant = [edit for edit in self.edits if edit.path == error.path]
        if not meant or error.code == "ENOTDIR":
            meant = [edit for edit in self.edits if error.path in (edit.path, *ancestors(edit.path))]
        for edit in meant:
            if error.code == "ENOENT" and isinstance(edit, Remove):
                self.edits.remove(edit)  # somebody else has deleted it
            else:
                self.refuse(edit, error.what)
        return bool(meant)

    def drop_all(self, error: WorkspaceError) -> None:
        """Nothing can be written."""
        self.edits.clear()
        self.errors.append(f"{error.what} Nothing was written.")

    # --- what is said of it

    def changed_files(self, done: Iterable[BackEdit]) -> dict[str, Any]:
        """What was created, updated and deleted by these edits, each sorted."""
        files, edits = self._before.files, list(done)
        put = [edit.path for edit in edits if isinstance(edit, Put)]
        removed = [edit.path for edit in edits if isinstance(edit, Remove)]
        return {
            "created": sorted(path for path in put if path not in files),
            "updated": sorted(path for path in put if path in files),
            "deleted": sorted(path for path in removed if path in files),
            "directoriesCreated": sorted(edit.path for edit in edits if isinstance(edit, MakeFolder)),
            "directoriesDeleted": sorted(path for path in removed if path not in files),
        }
