"""A skill as a value: what it is called, what it says, which files come with it.

    a source --SkillInfo--> the catalogue      --Skill--> the model      --Resource--> the model, a script

Pure. What a path means is said here once: its kind by its first folder, how it travels and what type it
has by the ending of its name. Every source and every tool asks these functions, so that none of them
reads a path which another would refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from .words import said

if TYPE_CHECKING:
    from .tools.context import ToolContext

__all__ = [
    "LONGEST_DESCRIPTION",
    "SCRIPTS",
    "SKILL_FILE",
    "Diagnostic",
    "Encoding",
    "Kind",
    "Level",
    "Resource",
    "ResourceInfo",
    "ScriptRequest",
    "Skill",
    "SkillInfo",
    "encoding_of",
    "is_safe_path",
    "kind_of",
    "media_type_of",
]

SKILL_FILE = "SKILL.md"
SCRIPTS = "scripts/"
"""The folder below which a skill's scripts are."""

LONGEST_DESCRIPTION = 1_024
"""Characters of a description that a catalogue shows: what the format allows."""

Kind = Literal["reference", "script", "asset", "file"]
Encoding = Literal["text", "base64"]
Level = Literal["note", "warning", "error"]
"""An error keeps a skill or a source out; a warning is about what other clients may refuse, or what is left
out; a note changes nothing."""

_KINDS: Mapping[str, Kind] = {"references": "reference", "scripts": "script", "assets": "asset"}
# fmt: off
_TEXT = frozenset([
    "bash", "bat", "c", "cfg", "conf", "cpp", "css", "csv", "go", "h", "html", "ini", "java", "js",
    "json", "jsonc", "jsonl", "jsx", "kt", "lua", "md", "mdx", "mjs", "php", "ps1", "py", "r", "rb",
    "rs", "rst", "sh", "sql", "svg", "swift", "tex", "toml", "ts", "tsv", "tsx", "txt", "xml",
    "xsd", "yaml", "yml", "zsh",
])
# fmt: on
"""Endings of names whose files are texts. A file that turns out to be none travels as base64 all the same."""
_MEDIA_TYPES: Mapping[str, str] = {
    "bash": "application/x-sh",
    "css": "text/css",
    "csv": "text/csv",
    "gif": "image/gif",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "pdf": "application/pdf",
    "png": "image/png",
    "py": "text/x-python",
    "sh": "application/x-sh",
    "svg": "image/svg+xml",
    "ts": "text/typescript",
    "tsx": "text/typescript",
    "txt": "text/plain",
    "webp": "image/webp",
    "woff": "font/woff",
    "woff2": "font/woff2",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _NOTHING


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """A file that comes with a skill, without what is in it."""

    path: str
    """Relative to the skill's folder, with `/` between the parts."""
    kind: Kind
    size: int | None = None
    """Bytes, where the source knows them without reading the file."""
    encoding: Encoding = "text"
    media_type: str | None = None


@dataclass(frozen=True, slots=True)
class Resource(ResourceInfo):
    """A file that comes with a skill, and what is in it: the text, or its bytes as base64."""

    content: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class SkillInfo:
    """What a catalogue says of a skill."""

    name: str
    description: str
    compatibility: str | None = None
    license: str | None = None
    allowed_tools: str | None = None
    """A hint of the skill's author. It grants nothing, and forbids nothing."""
    metadata: Mapping[str, Any] = field(default_factory=_nothing)
    source_id: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Skill(SkillInfo):
    """A skill with its instructions, and the list of its files."""

    body: str = field(kw_only=True)
    """What stands below the frontmatter, as it was written."""
    raw: str = field(kw_only=True)
    """The whole of `SKILL.md`."""
    resources: tuple[ResourceInfo, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something about a skill or a source that somebody may want to put right."""

    level: Level
    skill: str | None
    """The name of the skill, or of the folder it is in; `None`: it is about the source."""
    what: str
    next_step: str = ""
    source_id: str | None = None

    def __post_init__(self) -> None:
        # Names of files may hold anything; these words are shown, stored and sent.
        for name in ("skill", "what"):
            if (text := getattr(self, name)) is not None:
                object.__setattr__(self, name, said(text))

    def __str__(self) -> str:
        about = f"Skill {self.skill!r}: " if self.skill is not None else ""
        return f"{about}{self.what} {self.next_step}".strip()


@dataclass(frozen=True, slots=True)
class ScriptRequest:
    """A script of a skill, and what it is run with."""

    skill: Skill
    path: str
    """Below `scripts/`."""
    source: str
    input: Any = None
    """Any JSON value."""
    args: tuple[str, ...] = ()
    """What a program gets on its command line."""
    resources: tuple[Resource, ...] = ()
    """Every file of the skill that can be read."""
    context: ToolContext | None = None
    """The call that it serves; `None` outside of a turn."""


def is_safe_path(path: Any) -> bool:
    """True for a relative path that leads to one place below its folder, and is written one way."""
    if not isinstance(path, str) or not path or "\0" in path or "\\" in path:
        return False
    return all(part not in ("", ".", "..") for part in path.split("/"))


def kind_of(path: str) -> Kind:
    """What a file is for, by the folder it is in."""
    first, slash, _ = path.partition("/")
    return _KINDS.get(first, "file") if slash else "file"


def encoding_of(path: str) -> Encoding:
    """How a file travels: as the text it is, or as base64."""
    return "text" if _ending(path) in _TEXT else "base64"


def media_type_of(path: str) -> str | None:
    """The media type that the ending of a name says, if it says one."""
    return _MEDIA_TYPES.get(_ending(path))


def _ending(path: str) -> str:
    name = path.rpartition("/")[2]
    _, dot, ending = name.rpartition(".")
    return ending.lower() if dot else ""
