"""`bash`: a script over a copy of the workspace; what it changed is written back, with the result, at once.

    workspace --Snapshot--> Sandbox (a child) --Outcome--> WriteBack --one commit--> files, ledger, result

Scripts of one workspace run one after the other. Since nothing else of the world is changed, one that a crash
cut off is simply run again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never
from weakref import WeakValueDictionary

from ..calling import awaited
from ..errors import InvalidSettings, ToolError, WorkspaceError
from ..sandbox.port import Job, Limits, NoHost, Outcome, Sandbox, Stream
from ..settings import as_settings, check_fields
from ..tools.context import ToolContext
from ..workspace.paths import normal
from ..workspace.port import MakeFolder, Put, Remove
from ..workspace.stored import StoredFiles
from ..workspace.workspace import Workspace
from .place import Place, shown_error
from .sizes import in_words
from .snapshot import Snapshot, taken
from .write_back import BackEdit, WriteBack

__all__ = ["BashOptions", "bash_of", "run_bash"]

_log = logging.getLogger("everthink.tools")

SHOWN_LIVE = 4_000
"""Characters of each stream that are shown while a script runs: the latest."""
SHOWN_EVERY = 0.5
"""Seconds between two looks at it."""
MOST_NAMED = 200
"""So many skipped files, and so many errors, are named in a result."""


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


# Scripts of one workspace wait for each other: the next one sees what the last one wrote. By identity, since
# storage of somebody's own may be neither hashable nor weakly referenced; whoever runs holds its lock.
_lines: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()


async def run_bash(
    place: Place, ctx: ToolContext, sandbox: Sandbox, options: BashOptions, script: str, cwd: str
) -> dict[str, Any]:
    """Run a script and write back what it changed."""
    files = place.of(ctx)
    behind = files.files if isinstance(files, Workspace) else files
    if isinstance(behind, StoredFiles):
        line = behind.scripts
    else:
        line = _lines.setdefault(id(behind), asyncio.Lock())
    async with line:
        try:
            return await _Script(place, ctx, sandbox, options).run(script, normal(cwd))
        except WorkspaceError as error:
            raise shown_error(error) from error


class _Script:
    """One script on its way."""

    def __init__(self, place: Place, ctx: ToolContext, sandbox: Sandbox, options: BashOptions) -> None:
        self._place, self._ctx, self._sandbox, self._options = place, ctx, sandbox, options

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
        back = WriteBack(before, outcome)
        done = await self._write(back, lambda: _told(before, outcome, back, back.edits))
        return _told(before, outcome, back, done)

    async def _write(self, back: WriteBack, told: Callable[[], Any]) -> list[BackEdit]:
        """Write back what may be written: what was. On the agent's own rows together with the result."""
        files, may_have_links = self._place.concluding(self._ctx, told), True
        while back.edits and isinstance(files, Workspace):
            try:
                await files.apply(back.edits)
                return list(back.edits)
            except WorkspaceError as error:
                if may_have_links:
                    may_have_links = False
                    if await _drop_links(files, back):
                        continue
                if error.code != "EXDEV" and back.drop(error):
                    continue
                if not files.is_own and error.code != "EDQUOT":
                    break
                back.drop_all(error)
        done: list[BackEdit] = []
        for edit in tuple(back.edits):
            if edit in back.edits and await self._write_one(edit, back):
                done.append(edit)
        return done

    async def _write_one(self, edit: BackEdit, back: WriteBack) -> bool:
        """The same one by one, where storage cannot do it at once. An error leaves out the one edit."""
        files = self._place.of(self._ctx)
        try:
            if isinstance(files, Workspace):
                await files.apply([edit])
            else:
                await _done_by(files, edit, back)
            return edit in back.edits
        except WorkspaceError as error:
            back.refuse(edit, error.what)
        except ToolError as error:
            back.refuse(edit, str(error))
        except Exception as error:  # noqa: BLE001 - whatever it raises, the other files are written
            _log.exception("a workspace of somebody's own failed at %r", edit.path)
            back.refuse(edit, f"{type(error).__name__}.")
        return False


async def _done_by(files: Any, edit: BackEdit, back: WriteBack) -> None:
    """One edit by storage of somebody's own."""
    match edit:
        case MakeFolder(path):
            await awaited(files.mkdir(path, recursive=True))
        case Put(path, data):
            if await awaited(files.read_file_bytes(path)) != back.given(path):
                back.refuse(edit, "it has changed since the script began.")
            else:
                await awaited(files.write_file_bytes(path, data))
        case Remove(path):
            if back.given(path) is None or await awaited(files.read_file_bytes(path)) == back.given(path):
                await awaited(files.rm(path, recursive=False, force=True))
            else:
                back.refuse(edit, "it has changed since the script began.")
        case _:
            assert_never(edit)


async def _drop_links(files: Workspace, back: WriteBack) -> bool:
    """Leave out what would be written through a link that has come meanwhile. True when there was one.

    What a link leads to is refused under its own path, which may be that of another edit.
    """
    found = False
    for edit in tuple(back.edits):
        entry = await files.lstat(edit.path)
        if entry is not None and entry.kind == "symlink":
            back.refuse(edit, "a link has come there since the script began.")
            found = True
    return found


def _told(before: Snapshot, outcome: Outcome, back: WriteBack, done: list[BackEdit]) -> dict[str, Any]:
    """What the model reads of it."""
    told: dict[str, Any] = {
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
        "exitCode": 1 if outcome.exit_code is None else outcome.exit_code,
        "changedFiles": back.changed_files(done),
    }
    if outcome.dropped_bytes:
        told["note"] = f"{in_words(outcome.dropped_bytes)} of its output are left out."
    if before.skipped:
        told["skippedFiles"] = _some(before.skipped)
    if back.errors:
        told["errors"] = _some(back.errors)
    return told


def _some(lines: list[str]) -> list[str]:
    if len(lines) <= MOST_NAMED:
        return list(lines)
    return [*lines[:MOST_NAMED], f"… and {len(lines) - MOST_NAMED:,} more"]


class _Screen(NoHost):
    """Shows what a script prints while it runs, now and then, the latest of it."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._texts: dict[Stream, str] = {"stdout": "", "stderr": ""}
        self._is_new = asyncio.Event()
        self._showing = asyncio.ensure_future(self._show()) if ctx.show is not None else None

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
        try:
            while True:
                await self._is_new.wait()
                self._is_new.clear()
                await self._ctx.progress(dict(self._texts))
                await asyncio.sleep(SHOWN_EVERY)
        except Exception:  # noqa: BLE001 - the script goes on, seen or not
            _log.exception("the output of a script could not be shown")
