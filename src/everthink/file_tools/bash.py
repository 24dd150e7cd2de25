"""`bash`: a script over a copy of the workspace; what it changed is written back, with the result, at once.

    workspace --Snapshot--> Sandbox (a locked child) --Outcome--> edits --one commit--> files, ledger, result

A script never overwrites or deletes what it was not given, nor what somebody else changed while it ran: both
are told in `errors`, and the rest is written. Scripts of one workspace run one after the other. Since nothing
else of the world is changed, one that a crash cut off is simply run again.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..calling import awaited
from ..errors import InvalidSettings, ToolError, WorkspaceError
from ..sandbox.port import HostRefused, Job, Limits, Outcome, Sandbox, Stream
from ..settings import as_settings, check_fields
from ..tools.context import ToolContext
from ..workspace.paths import normal
from ..workspace.port import Edit, MakeFolder, Put, Remove
from ..workspace.workspace import Workspace
from .place import Place, shown_error
from .sizes import in_words
from .snapshot import Snapshot, taken

__all__ = ["BashOptions", "bash_of", "run_bash"]

SHOWN_LIVE = 8_000
"""Characters of a script's output that are shown while it runs: the latest."""
SHOWN_EVERY = 0.2
"""Seconds between two looks at it."""


@dataclass(frozen=True, slots=True)
class BashOptions:
    """What the `bash` tool may use: `workspace_bash = BashOptions(timeout=60)`."""

    timeout: float = 30.0
    """Seconds that a script may run."""
    network: bool = False
    """There is none; only False is taken."""
    max_workspace_files: int = 1_000
    """Files that a script is given. Others are skipped, and protected from it."""
    max_workspace_file_bytes: int = 1_000_000
    """Bytes of each of them."""
    max_output_bytes: int = 64_000
    """Bytes that are kept of what it prints, of each stream."""

    def __post_init__(self) -> None:
        check_fields(self, "BashOptions")
        if self.network:
            raise InvalidSettings(
                "BashOptions(network=True): scripts have no network.",
                next_step="Give the model a tool that fetches what it may fetch.",
            )

    def limits(self) -> Limits:
        """The same for a sandbox."""
        return Limits(
            wall=self.timeout,
            cpu=self.timeout,
            output=self.max_output_bytes,
            files=max(self.max_workspace_files, 1_000),
            file_bytes=max(self.max_workspace_file_bytes, 1_000_000),
        )


def bash_of(setting: bool | BashOptions | Mapping[str, Any]) -> BashOptions | None:
    """What `workspace_bash` asks for: `None` when it is off; what is not said has its default."""
    if isinstance(setting, bool):
        return BashOptions() if setting else None
    return as_settings(BashOptions, setting, "workspace_bash")


# Scripts of one workspace wait for each other: the next one sees what the last one wrote.
_lines: weakref.WeakKeyDictionary[Any, asyncio.Lock] = weakref.WeakKeyDictionary()


async def run_bash(
    place: Place, ctx: ToolContext, sandbox: Sandbox, options: BashOptions, script: str, cwd: str
) -> dict[str, Any]:
    """Run a script and write back what it changed."""
    files = place.of(ctx)
    key = files.files if isinstance(files, Workspace) else files
    async with _lines.setdefault(key, asyncio.Lock()):
        try:
            return await _Script(place, ctx, sandbox, options).run(script, normal(cwd))
        except WorkspaceError as error:
            raise shown_error(error) from error


class _Script:
    """One script on its way."""

    def __init__(self, place: Place, ctx: ToolContext, sandbox: Sandbox, options: BashOptions) -> None:
        self._place, self._ctx, self._sandbox, self._options = place, ctx, sandbox, options
        self.errors: list[str] = []

    async def run(self, script: str, cwd: str) -> dict[str, Any]:
        options, limits = self._options, self._options.limits()
        before = await taken(
            self._place.of(self._ctx),
            most=options.max_workspace_files,
            largest=options.max_workspace_file_bytes,
            in_all=limits.tree_bytes,
        )
        job = Job(
            language="bash",
            source=script,
            cwd=cwd,
            files=before.files,
            folders=frozenset(before.folders),
            limits=limits,
        )
        screen = _Screen(self._ctx)
        try:
            outcome = await self._sandbox.run(job, screen)
        finally:
            await screen.close()
        if outcome.status == "failed" and outcome.exit_code is None:
            raise ToolError(outcome.error or "The script could not be run.")
        return await self._kept(before, outcome)

    # --- what it changed

    async def _kept(self, before: Snapshot, outcome: Outcome) -> dict[str, Any]:
        """Write back what may be written, together with the result."""
        edits = self._edits(before, outcome)
        while True:
            told = self._told(before, outcome, edits)
            if not edits:
                return told
            try:
                await self._write(edits, told)
                return told
            except WorkspaceError as error:
                refused = [edit for edit in edits if edit.path == error.path] if error.path else []
                words = error.what if refused else f"{error} Nothing was written."
                self.errors.append(words)
                edits = [edit for edit in edits if edit not in refused] if refused else []

    async def _write(self, edits: Sequence[Edit], told: Mapping[str, Any]) -> None:
        files = self._place.concluding(self._ctx, lambda: told)
        if isinstance(files, Workspace):
            await files.apply(edits)
            return
        for edit in edits:
            match edit:
                case MakeFolder(path):
                    await awaited(files.mkdir(path, recursive=True))
                case Put(path, data):
                    await awaited(files.write_file_bytes(path, data))
                case Remove(path, recursive):
                    await awaited(files.rm(path, recursive=recursive, force=True))
                case _:
                    raise AssertionError(edit)

    def _edits(self, before: Snapshot, outcome: Outcome) -> list[Edit]:
        """New folders, then files, then what is gone, the deepest first."""
        if outcome.status in ("crashed", "paused"):
            return []
        made = sorted(outcome.folders - before.folders)
        edits: list[Edit] = [MakeFolder(path) for path in made if self._may_make(before, path)]
        for path in sorted(outcome.changed):
            if before.is_protected(path):
                self.errors.append(f"{path} was not written: the script was not given what is there.")
            else:
                edits.append(Put(path, outcome.changed[path], if_hash=before.hash_of(path)))
        gone = {path for path in before.folders - outcome.folders if path != "/"}
        if outcome.status != "done" and not outcome.folders:
            gone.clear()  # killed: nothing of it came back
        edits += [Remove(path) for path in sorted(outcome.deleted)]
        for path in sorted(gone, key=lambda path: (-path.count("/"), path)):
            if (kept := before.protects_below(path)) is not None:
                self.errors.append(
                    f"{path} was not deleted: {kept} is in it, which the script was not given."
                )
            else:
                edits.append(Remove(path, recursive=True))
        return edits

    def _may_make(self, before: Snapshot, path: str) -> bool:
        if before.is_protected(path):
            self.errors.append(f"{path} was not made: something is there that the script was not given.")
            return False
        return True

    # --- what is said of it

    def _told(self, before: Snapshot, outcome: Outcome, edits: Sequence[Edit]) -> dict[str, Any]:
        put = [edit.path for edit in edits if isinstance(edit, Put)]
        removed = [edit.path for edit in edits if isinstance(edit, Remove)]
        errors = [*([outcome.error] if outcome.status == "crashed" and outcome.error else []), *self.errors]
        told: dict[str, Any] = {
            "stdout": outcome.stdout,
            "stderr": outcome.stderr,
            "exitCode": 1 if outcome.exit_code is None else outcome.exit_code,
            "changedFiles": {
                "created": sorted(path for path in put if path not in before.files),
                "updated": sorted(path for path in put if path in before.files),
                "deleted": sorted(path for path in removed if path in before.files),
                "directoriesCreated": sorted(edit.path for edit in edits if isinstance(edit, MakeFolder)),
                "directoriesDeleted": sorted(path for path in removed if path not in before.files),
            },
        }
        if outcome.dropped_bytes:
            told["note"] = f"{in_words(outcome.dropped_bytes)} of its output are left out."
        if before.skipped:
            told["skippedFiles"] = before.skipped
        if errors:
            told["errors"] = errors
        return told


class _Screen:
    """Shows what a script prints while it runs, now and then, the latest of it."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._texts: dict[Stream, str] = {"stdout": "", "stderr": ""}
        self._is_new = asyncio.Event()
        self._showing = asyncio.ensure_future(self._show()) if ctx.show is not None else None

    async def call(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Refuse: scripts of a model have no commands of the host."""
        raise HostRefused(f"There is no {name} here.")

    def output(self, stream: Stream, text: str) -> None:
        """Take what is printed."""
        self._texts[stream] = (self._texts[stream] + text)[-SHOWN_LIVE:]
        self._is_new.set()

    async def close(self) -> None:
        """The result takes its place."""
        if self._showing is not None:
            self._showing.cancel()
            await asyncio.wait([self._showing])

    async def _show(self) -> None:
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            await self._ctx.progress(dict(self._texts))
            await asyncio.sleep(SHOWN_EVERY)
