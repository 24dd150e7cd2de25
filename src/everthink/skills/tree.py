"""Skills out of files, wherever those are: which folders are skills, what comes with them, what is left out.

    Tree.look, read (a directory, a package, a bucket, a workspace, an archive) --> TreeSource --> SkillSource

A skill is a folder with a `SKILL.md`, directly below the root. All that is in it comes with it, within
bounds; what is left out is said. Only `SKILL.md` files are read to make the list, the others when they are
asked for. A look that fails leaves what the last one found.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Protocol

from ..clock import Clock, SystemClock
from ..errors import AgentError, InvalidSettings
from ..kinds import SECONDS, TEXT, Kind, optional
from ..media_types import text_of
from ..skill_values import (
    SKILL_FILE,
    Diagnostic,
    Level,
    Resource,
    ResourceInfo,
    Skill,
    SkillInfo,
    encoding_of,
    is_safe_path,
    kind_of,
    media_type_of,
)

__all__ = [
    "OPTIONS",
    "Bounds",
    "FileFound",
    "FilesTree",
    "Index",
    "Looked",
    "Tree",
    "TreeSource",
    "as_info",
    "index_of",
    "resource_of",
]

# fmt: off
SKIPPED = frozenset([
    ".git", ".hg", ".svn", ".bzr", "CVS", ".idea", ".vscode", "node_modules", "__pycache__", ".venv", "venv",
    ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".DS_Store", "Thumbs.db", ".gitignore",
    ".gitattributes", ".gitkeep",
])
# fmt: on
"""What tools leave behind: nobody means it to be a part of a skill."""

_AT_ONCE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of a source is read. What is beyond is left out, and a diagnostic says so."""

    skills: int = 500
    """Skills of one source."""
    skill_bytes: int = 256 * 1024
    """Bytes of one `SKILL.md`."""
    files: int = 500
    """Files of one skill, besides `SKILL.md`."""
    file_bytes: int = 5 * 1024 * 1024
    """Bytes of each of them."""
    tree_bytes: int = 32 * 1024 * 1024
    """Bytes of all of them together."""
    depth: int = 8
    """Folders one in another, below the folder of a skill."""
    path_bytes: int = 512
    """Bytes of a path below the folder of a skill."""
    entries: int = 20_000
    """Files and folders of a source that are looked at."""

    def __post_init__(self) -> None:
        for bound in fields(self):
            value = getattr(self, bound.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidSettings(
                    f"Bounds({bound.name}={value!r}): a bound is a whole number above 0.",
                    next_step="Leave it out for the default.",
                )


OPTIONS = {
    "id": optional(TEXT),
    "refresh_interval": SECONDS,
    "bounds": optional(Kind("Bounds: skills.Bounds(files=…)", lambda value: isinstance(value, Bounds))),
}
"""What whoever makes a source of files may say of it."""


@dataclass(frozen=True, slots=True)
class FileFound:
    """A file of a tree."""

    path: str
    """Below the root of the tree."""
    size: int | None
    mark: str = ""
    """Changes when the file does; empty where only its bytes tell."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What a tree has."""

    files: Sequence[FileFound]
    diagnostics: Sequence[Diagnostic] = ()
    """What it did not look at, and why."""


class Tree(Protocol):
    """Files below a root. Whatever fails raises `OSError` or an `AgentError`."""

    async def look(self, bounds: Bounds) -> Looked:
        """Every file, without what is in it."""
        ...

    async def read(self, path: str, most: int) -> bytes | None:
        """The bytes of a file; `None` when there is none, or it has more than `most`."""
        ...


Texts = Mapping[FileFound, bytes]
"""What was read of files that have a mark."""


@dataclass(frozen=True, slots=True)
class Index:
    """What one look at a tree came to."""

    skills: Mapping[str, Skill]
    """By name, in the order of names."""
    folders: Mapping[str, str]
    """Where each of them is, below the root."""
    diagnostics: tuple[Diagnostic, ...]
    marks: str
    """Changes with every file of every skill."""
    texts: Texts
    """The `SKILL.md` files, for the next look."""


class FilesTree:
    """Files that are in memory."""

    def __init__(self, files: Mapping[str, bytes], diagnostics: Sequence[Diagnostic] = ()) -> None:
        self.files, self._diagnostics = files, diagnostics

    async def look(self, bounds: Bounds) -> Looked:
        """Every file, without what is in it."""
        return Looked(
            [FileFound(path, len(data), _mark(data)) for path, data in self.files.items()], self._diagnostics
        )

    async def read(self, path: str, most: int) -> bytes | None:
        """The bytes of a file."""
        data = self.files.get(path)
        return None if data is None or len(data) > most else data


def _mark(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_info(skill: Skill) -> SkillInfo:
    """What a catalogue says of a skill."""
    return SkillInfo(*(getattr(skill, one.name) for one in fields(SkillInfo)))


# --- from files to skills


@dataclass(slots=True)
class _Folder:
    """A folder that may be a skill."""

    name: str
    skill_file: FileFound | None = None
    files: list[FileFound] = field(default_factory=list[FileFound])
    twin: str | None = None
    """A file whose name is nearly `SKILL.md`."""


async def index_of(
    tree: Tree,
    bounds: Bounds,
    source_id: str | None = None,
    *,
    names: Collection[str] | None = None,
    known: Texts | None = None,
) -> Index:
    """Look at a tree, and read its `SKILL.md` files. `names`: only skills that are called so. What is `known`
    is not read again."""
    looked = await tree.look(bounds)
    told = [replace(one, source_id=source_id) for one in looked.diagnostics]
    found = _folders(looked.files, told, source_id)
    candidates = [one for one in found if one.skill_file is not None]
    if len(candidates) > bounds.skills:
        told.append(
            _said("warning", None, f"There are {len(candidates):,} skills; {bounds.skills:,} are read.",
                  "Allow more with bounds=Bounds(skills=…), or split the source.", source_id)
        )  # fmt: skip
        candidates = candidates[: bounds.skills]
    limit = asyncio.Semaphore(_AT_ONCE)
    texts = await asyncio.gather(*(_text(tree, one, bounds, limit, known or {}) for one in candidates))
    skills, folders = dict[str, Skill](), dict[str, str]()
    # YAML takes a tenth of a second for a long frontmatter, and strangers write these.
    parsed = await asyncio.to_thread(_skills, candidates, texts, bounds, source_id)
    for folder, (skill, said) in zip(candidates, parsed, strict=True):
        if skill is not None and names is not None and skill.name not in names:
            continue
        told += said
        if skill is None:
            continue
        if skill.name in skills:
            first = folders[skill.name]
            what = f"The folders {first!r} and {folder.name!r} have skills of the same name."
            told.append(
                _said(
                    "warning", skill.name, what, f"The one in {first!r} is used; rename the other.", source_id
                )
            )
            continue
        skills[skill.name], folders[skill.name] = skill, folder.name
    used = set(folders.values())
    kept = [(one, text) for one, text in zip(candidates, texts, strict=True) if one.name in used]
    read = {
        one.skill_file: text
        for one, text in zip(candidates, texts, strict=True)
        if one.skill_file is not None and isinstance(text, bytes)
    }
    return Index(dict(sorted(skills.items())), folders, tuple(told), _marks(kept), read)


def _folders(files: Sequence[FileFound], told: list[Diagnostic], source_id: str | None) -> list[_Folder]:
    found: dict[str, _Folder] = {}
    deeper: set[str] = set()
    for file in sorted(files, key=lambda one: one.path):
        name, slash, rest = file.path.partition("/")
        if not slash:
            if name == SKILL_FILE:
                told.append(
                    _said("warning", None, "The root is a skill itself, and is not read as one.",
                          "Name the folder above it.", source_id)
                )  # fmt: skip
            continue
        folder = found.setdefault(name, _Folder(name))
        if rest == SKILL_FILE:
            folder.skill_file = file
        else:
            if rest.lower() == SKILL_FILE.lower():
                folder.twin = rest
            if rest.endswith(f"/{SKILL_FILE}"):
                deeper.add(f"{name}/{rest.rpartition('/')[0]}")
            folder.files.append(file)
    for folder in found.values():
        if folder.skill_file is not None:
            continue
        if folder.twin is not None:
            told.append(
                _said("error", folder.name, f"Its file is called {folder.twin!r}.", f"Call it {SKILL_FILE}.",
                      source_id)
            )  # fmt: skip
        for nested in sorted(one for one in deeper if one.startswith(f"{folder.name}/")):
            told.append(
                _said("warning", nested, "It is too deep to be found: skills are directly below the root.",
                      f"Name {nested.rpartition('/')[0]!r} as a root of its own.", source_id)
            )  # fmt: skip
    return list(found.values())


async def _text(
    tree: Tree, folder: _Folder, bounds: Bounds, limit: asyncio.Semaphore, known: Texts
) -> bytes | str | None:
    """The bytes of a `SKILL.md`, or why there are none."""
    assert folder.skill_file is not None
    if folder.skill_file.size is not None and folder.skill_file.size > bounds.skill_bytes:
        return None
    if folder.skill_file.mark and folder.skill_file in known:
        return known[folder.skill_file]
    async with limit:
        try:
            return await tree.read(folder.skill_file.path, bounds.skill_bytes)
        except OSError as error:
            return error.strerror or type(error).__name__


def _skills(
    folders: Sequence[_Folder], texts: Sequence[bytes | str | None], bounds: Bounds, source_id: str | None
) -> list[tuple[Skill | None, list[Diagnostic]]]:
    both = zip(folders, texts, strict=True)
    return [_skill(folder, text, bounds, source_id) for folder, text in both]


def _skill(
    folder: _Folder, data: bytes | str | None, bounds: Bounds, source_id: str | None
) -> tuple[Skill | None, list[Diagnostic]]:
    from .frontmatter import read  # YAML is loaded with the first skill

    def refused(what: str, next_step: str) -> tuple[None, list[Diagnostic]]:
        return None, [_said("error", folder.name, what, next_step, source_id)]

    if data is None:
        return refused(
            f"SKILL.md has more than {bounds.skill_bytes:,} bytes.",
            "Move what is not always needed into files of its own.",
        )
    if isinstance(data, str):
        return refused(f"SKILL.md cannot be read: {data}.", "Let this process read it.")
    if b"\0" in data:
        return refused("SKILL.md is no text: it has NUL characters.", "Save it as UTF-8.")
    text, is_mended = data.decode("utf-8", "replace"), False
    if "\ufffd" in text:
        is_mended = not _is_utf8(data)
    found = read(text, folder.name, source_id)
    if is_mended:
        found.diagnostics.append(
            _said("warning", folder.name, "SKILL.md is not UTF-8: what is no character became `\ufffd`.",
                  "Save it as UTF-8.", source_id)
        )  # fmt: skip
    if found.skill is None:
        return None, found.diagnostics
    resources = _resources(folder, found.skill.name, bounds, found.diagnostics, source_id)
    return replace(found.skill, resources=resources), found.diagnostics


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _resources(
    folder: _Folder, skill: str, bounds: Bounds, told: list[Diagnostic], source_id: str | None
) -> tuple[ResourceInfo, ...]:
    kept, size = list[ResourceInfo](), 0
    skip = len(folder.name) + 1
    seen: dict[str, str] = {}

    def say(level: Level, what: str, next_step: str = "") -> None:
        told.append(_said(level, skill, what, next_step, source_id))

    for file in folder.files:
        path = file.path[skip:]
        if (why := _left_out(path, file.size, bounds)) is not None:
            if why:
                say("warning", f"Its file {path[:120]!r} is left out: {why}.")
            continue
        if (twin := seen.setdefault(path.casefold(), path)) != path:
            say(
                "note",
                f"Its files {twin!r} and {path!r} differ in capital letters only.",
                "Rename one: on some systems they are the same.",
            )
        size += file.size or 0
        if len(kept) >= bounds.files or size > bounds.tree_bytes:
            what = f"{bounds.files:,} files" if len(kept) >= bounds.files else f"{bounds.tree_bytes:,} bytes"
            say(
                "warning",
                f"It has more than {what}; the rest is left out, from {path!r} on.",
                "Take some out.",
            )
            break
        kept.append(as_resource(path, file.size))
    return tuple(kept)


def as_resource(path: str, size: int | None) -> ResourceInfo:
    """A file of a skill, by its path."""
    return ResourceInfo(path, kind_of(path), size, encoding_of(path), media_type_of(path))


def _left_out(path: str, size: int | None, bounds: Bounds) -> str | None:
    """Why a file is no part of its skill; empty when nobody expects it to be, `None` when it is."""
    parts = path.split("/")
    if any(part in SKIPPED or part.endswith(".pyc") for part in parts):
        return ""
    if any(part.startswith(".") for part in parts):
        return "it is hidden"
    if not is_safe_path(path) or not path.isprintable():
        return "its path has characters that paths do not have everywhere"
    if len(parts) - 1 > bounds.depth:
        return f"it is more than {bounds.depth} folders deep"
    if len(path.encode("utf-8", "replace")) > bounds.path_bytes:
        return f"its path has more than {bounds.path_bytes} bytes"
    if size is not None and size > bounds.file_bytes:
        return f"it has {size:,} bytes, and {bounds.file_bytes:,} are allowed"
    return None


def _marks(found: Sequence[tuple[_Folder, bytes | str | None]]) -> str:
    hashed = hashlib.sha256()
    for folder, data in found:
        for file in (folder.skill_file, *folder.files):
            assert file is not None
            hashed.update(f"{file.path}\0{file.size}\0{file.mark}\0".encode("utf-8", "surrogatepass"))
        hashed.update(data if isinstance(data, bytes) else b"")
    return hashed.hexdigest()[:16]


def _said(level: Level, skill: str | None, what: str, next_step: str, source_id: str | None) -> Diagnostic:
    return Diagnostic(level, skill, what, next_step, source_id)


def resource_of(info: ResourceInfo, data: bytes) -> Resource:
    """A file with what is in it. One that should be a text and is none travels as base64."""
    if info.encoding == "text" and (text := text_of(data)) is not None:
        return Resource(info.path, info.kind, len(data), "text", info.media_type, content=text)
    content = base64.b64encode(data).decode()
    return Resource(info.path, info.kind, len(data), "base64", info.media_type, content=content)


# --- the source


class TreeSource:
    """Skills that are files below a root."""

    def __init__(
        self,
        id: str,
        tree: Tree,
        *,
        bounds: Bounds | None = None,
        names: Collection[str] | None = None,
        refresh_interval: float = 0.0,
        hashes_contents: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.id = id
        self.tree, self.bounds = tree, bounds or Bounds()
        self._names, self._interval = names, refresh_interval
        self._hashes_contents = hashes_contents
        self._clock = clock or SystemClock()
        self._index: Index | None = None
        self._listed: tuple[Index, tuple[SkillInfo, ...]] | None = None
        self._contents = ""
        self._looked_at = 0.0

    @property
    def fingerprint(self) -> str:
        """Its id, and since the first look a text that changes with its skills."""
        if self._index is None:
            return self.id
        return f"{self.id}:{self._contents or self._index.marks}"

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """What there is to say of its skills since the last look."""
        return () if self._index is None else self._index.diagnostics

    async def list(self) -> Sequence[SkillInfo]:
        """Its skills, in the order of their names."""
        index = await self._current()
        if self._listed is None or self._listed[0] is not index:  # asked for in every turn
            self._listed = index, tuple(as_info(skill) for skill in index.skills.values())
        return self._listed[1]

    async def load(self, name: str) -> Skill | None:
        """One of them, with its instructions."""
        return (await self._last()).skills.get(name)

    async def read_resource(self, name: str, path: str) -> Resource | None:
        """A file of a skill; `None` for one that is not in its list."""
        index = await self._last()
        skill = index.skills.get(name)
        if skill is None or not is_safe_path(path):
            return None
        info = next((one for one in skill.resources if one.path == path), None)
        if info is None:
            return None
        data = await self.tree.read(f"{index.folders[name]}/{path}", self.bounds.file_bytes)
        return None if data is None else resource_of(info, data)

    async def refresh(self) -> None:
        """Look again, unless that was done less than `refresh_interval` seconds ago."""
        await self._current()

    async def _last(self) -> Index:
        """As it is now; when that cannot be seen, as it was."""
        try:
            return await self._current()
        except (OSError, AgentError):
            if self._index is None:
                raise
            return self._index

    async def _current(self) -> Index:
        now = self._clock.monotonic()
        if self._index is None or now - self._looked_at >= self._interval:
            known = None if self._index is None else self._index.texts
            index = await index_of(self.tree, self.bounds, self.id, names=self._names, known=known)
            contents = await self._hashed(index) if self._hashes_contents else ""
            self._index, self._contents, self._looked_at = index, contents, now
        return self._index

    async def _hashed(self, index: Index) -> str:
        """The contents of everything, as one hash."""
        hashed = hashlib.sha256()
        for name, skill in index.skills.items():
            hashed.update(f"{name}\0{skill.raw}\0".encode("utf-8", "surrogatepass"))
            for info in skill.resources:
                data = await self.tree.read(f"{index.folders[name]}/{info.path}", self.bounds.file_bytes)
                hashed.update(f"{info.path}\0".encode("utf-8", "surrogatepass") + (data or b""))
        return hashed.hexdigest()[:16]
