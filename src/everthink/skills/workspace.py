"""Skills among an agent's own files: those that people and code put there, and no model.

    from_workspace("/skills") --bind(agent)--> WorkspaceTree --change log--> who wrote this file?

A model that may write its own instructions keeps them beyond the conversation, and so does whoever talks it
into that. So a skill counts only while every file of it was last written outside of a tool call, in words
that no tool call wrote before; what nobody can know any more does not count. A file that was once seen to be
so is remembered by its hash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidSettings, SkillError
from ..kinds import YES_NO, check_options
from ..settings import shown
from ..skill_values import Diagnostic, Resource, Skill, SkillInfo
from ..workspace.port import Change, Entry
from ..workspace.stored import StoredFiles
from ..workspace.workspace import Workspace
from .tree import OPTIONS, Bounds, FileFound, Looked, TreeSource

__all__ = ["Trust", "WorkspaceSource", "from_workspace"]

_PAGE = 1000
_NEEDS_LOG = (
    "The workspace of this agent does not tell who wrote its files, so its skills may be a model's.",
    "Read them with skills.from_directory(…), or say allow_model_skills=True.",
)


@dataclass(slots=True)
class Trust:
    """Which files of an agent no model wrote, by path: the hash that each had then."""

    known: dict[str, str]
    remember: Callable[[Mapping[str, str]], Awaitable[None]] | None = None
    """Keeps them with the agent."""


def from_workspace(
    folder: str = "/skills",
    *,
    allow_model_skills: bool = False,
    id: str | None = None,
    bounds: Bounds | None = None,
) -> WorkspaceSource:
    """Skills in the agent's own workspace.

        skills = [skills.from_workspace("/skills")]
        await skills.install("release-notes.zip", into=agent.workspace)

    With `allow_model_skills` the model may write skills for itself, which then outlive the conversation.
    """
    if not isinstance(folder, str) or not folder.strip("/"):  # pyright: ignore[reportUnnecessaryIsInstance] - users call it
        raise InvalidSettings(
            f"from_workspace: the folder is {shown(folder)}.", next_step='Name one: "/skills".'
        )
    options = {**OPTIONS, "allow_model_skills": YES_NO}
    check_options("from_workspace", options, allow_model_skills=allow_model_skills, id=id, bounds=bounds)
    where = f"/{folder.strip('/')}"
    return WorkspaceSource(id or f"workspace:{where}", where, allow_model_skills, bounds)


class WorkspaceSource:
    """Skills in a workspace. A definition, until it is bound to an agent."""

    diagnostics: tuple[Diagnostic, ...] = ()

    def __init__(self, id: str, folder: str, allow_model_skills: bool, bounds: Bounds | None) -> None:
        self.id = self.fingerprint = id
        self._folder, self._allow, self._bounds = folder, allow_model_skills, bounds

    def bind(self, agent: Any, trust: Trust | None = None) -> TreeSource:
        """The source of one agent."""
        tree = _WorkspaceTree(
            lambda: agent.workspace, self._folder, None if self._allow else trust or Trust({})
        )
        return TreeSource(self.id, tree, bounds=self._bounds)

    async def list(self) -> Sequence[SkillInfo]:
        """Its skills, once it belongs to an agent."""
        raise self._unbound()

    async def load(self, name: str) -> Skill | None:
        """One of them."""
        raise self._unbound()

    async def read_resource(self, name: str, path: str) -> Resource | None:
        """A file of one of them."""
        raise self._unbound()

    async def refresh(self) -> None:
        """There is nothing to look at."""

    def _unbound(self) -> SkillError:
        return SkillError(
            f"The source {self.id!r} belongs to no agent.",
            next_step="Give it to an agent: `skills = […]`; without one: from_workspace(…).bind(agent).",
        )


class _WorkspaceTree:
    """A folder of a workspace. With `trust` only what no model wrote."""

    def __init__(self, workspace: Callable[[], Any], folder: str, trust: Trust | None) -> None:
        self._workspace, self._folder, self._trust = workspace, folder, trust

    async def look(self, bounds: Bounds) -> Looked:
        """Every file, by the log of changes too when it matters who wrote it."""
        workspace = self._workspace()
        told = list[Diagnostic]()
        entries = await _below(workspace, self._folder, bounds, told)
        if self._trust is not None:
            entries = await self._trusted(workspace, entries, told)
        skip = len(self._folder) + 1
        return Looked([FileFound(one.path[skip:], one.size, _mark(one)) for one in entries], told)

    async def read(self, path: str, most: int) -> bytes | None:
        """The bytes of a file."""
        workspace, where = self._workspace(), f"{self._folder}/{path}"
        if isinstance(workspace, Workspace):  # not one of the events that tell what a model reads
            data = await workspace.files.read(where, length=most + 1)
        else:
            data = await workspace.read_file_bytes(where)
        return None if data is None or len(data) > most else data

    async def _trusted(
        self, workspace: Any, entries: Sequence[Entry], told: list[Diagnostic]
    ) -> Sequence[Entry]:
        assert self._trust is not None
        files = workspace.files if isinstance(workspace, Workspace) else None
        if not isinstance(files, StoredFiles):
            raise SkillError(_NEEDS_LOG[0], next_step=_NEEDS_LOG[1])
        if not entries:
            return entries
        new = {one.path: one.hash for one in entries if self._trust.known.get(one.path) != one.hash}
        doubts = await self._doubts(files, new) if new else {}
        skip = len(self._folder) + 1
        refused: dict[str, str] = {}
        for entry in entries:
            if entry.path in doubts:
                refused.setdefault(
                    entry.path[skip:].partition("/")[0], f"{doubts[entry.path]} {entry.path!r}"
                )
        for folder, why in refused.items():
            told.append(
                Diagnostic(
                    "error",
                    folder,
                    f"It is left out: {why}.",
                    "Write it again yourself, or say from_workspace(allow_model_skills=True).",
                )
            )
        await self._remember(
            {one.path: one.hash for one in entries if one.hash is not None and one.path not in doubts}
        )
        return [one for one in entries if one.path[skip:].partition("/")[0] not in refused]

    async def _doubts(self, files: StoredFiles, asked: Mapping[str, str | None]) -> dict[str, str]:
        """Of these files, those that a model wrote, or nobody knows who: why."""
        last: dict[str, Change] = {}
        by_model: set[str] = set()
        after = 0
        while page := await files.changes(after=after, limit=_PAGE):
            for change in page:
                if change.path in asked:
                    last[change.path] = change
                if change.call_id is not None and change.hash is not None:
                    by_model.add(change.hash)
            after = page[-1].seq
        doubts: dict[str, str] = {}
        for path, hash in asked.items():
            change = last.get(path)
            if hash is None or change is None or change.hash != hash:
                doubts[path] = "nobody knows any more who wrote"
            elif change.call_id is not None or hash in by_model:
                doubts[path] = "the model wrote"
        return doubts

    async def _remember(self, known: dict[str, str]) -> None:
        assert self._trust is not None
        if known == self._trust.known:
            return
        self._trust.known = known
        if self._trust.remember is not None:
            await self._trust.remember(known)


async def _below(workspace: Any, folder: str, bounds: Bounds, told: list[Diagnostic]) -> list[Entry]:
    """Every file below a folder; links are left out."""
    files, waiting, looked = list[Entry](), [folder], 0
    while waiting:
        where, offset = waiting.pop(), 0
        while page := await workspace.read_dir(where, limit=_PAGE, offset=offset):
            offset += len(page)
            for entry in page:
                looked += 1
                if looked > bounds.entries:
                    told.append(Diagnostic("warning", None, f"There are more than {bounds.entries:,} files."))
                    return files
                if entry.kind == "directory":
                    waiting.append(entry.path)
                elif entry.kind == "file":
                    files.append(entry)
                else:
                    skill = entry.path[len(folder) + 1 :].partition("/")[0]
                    told.append(
                        Diagnostic("warning", skill, f"{entry.path!r} is a link, and links are not followed.")
                    )
    return files


def _mark(entry: Entry) -> str:
    return entry.hash or str(entry.modified_at)
