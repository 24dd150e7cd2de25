"""Read `SKILL.md` as the field writes it: strings only, stray colons forgiven, every oddity said.

    text --split--> frontmatter, body --fields_of--> a mapping of texts --read--> Skill + diagnostics

Pure, and it never raises: whatever stands in the file, there is a skill or a reason why there is none.
YAML is read without tags, numbers or booleans, so `no` and `1.10` stay what was written; aliases are not
followed, because a few lines of them make gigabytes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, cast

import yaml

from ..settings import nearest, snake
from ..skill_values import LONGEST_DESCRIPTION, Diagnostic, Level, Skill
from ..words import clean, said

__all__ = ["LONGEST_FRONTMATTER", "Read", "parse", "read", "split"]

LONGEST_FRONTMATTER = 64_000
LONGEST_NAME, LONGEST_COMPATIBILITY = 64, 500
"""What the format allows."""
LONGEST_USABLE_NAME = 200
"""A longer one is no name for a model to repeat."""
MOST_LINES, MOST_TOKENS = 500, 5_000
"""What the format recommends for the instructions."""
_DEEPEST = 20

_OPENS = re.compile(r"\ufeff?---[ \t]*\r?\n")
_CLOSES = re.compile(r"^---[ \t]*(?:\r?\n|\Z)", re.M)
_FORMAL = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_LINE = re.compile(r"([A-Za-z][\w-]*)[ \t]*:(?:[ \t]+(.*)|[ \t]*)$")
_INNER = re.compile(r"[ \t]+([A-Za-z][\w.-]*):[ \t]+(.*)$")
_KNOWN = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")

Fields = Mapping[str, Any]


@dataclass(slots=True)
class Read:
    """What a `SKILL.md` came to."""

    skill: Skill | None
    """`None`: it is no skill, and an error among the diagnostics says why."""
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])


def split(text: str) -> tuple[str | None, str]:
    """The frontmatter without its fences, and all that stands below it. `None`: there is none."""
    if (opened := _OPENS.match(text)) is None:
        return None, text
    if (closed := _CLOSES.search(text, opened.end())) is None:
        return None, text
    return text[opened.end() : closed.start()], text[closed.end() :]


def parse(text: str) -> tuple[dict[str, Any], str]:
    """The fields of the frontmatter, and the body. Without one, or without fields in it: none, and all of
    the text."""
    front, body = split(text)
    if front is None or len(front) > LONGEST_FRONTMATTER:
        return {}, text
    return _fields(front, _Said("")), body


def read(text: str, folder: str, source_id: str | None = None) -> Read:
    """The skill that a `SKILL.md` in a folder of that name is."""
    told = _Said(folder, source_id)
    front, body = split(text)
    if front is None:
        told.error(
            "SKILL.md does not begin with a frontmatter.",
            "Begin it with a line `---`, `name:` and `description:`, and another line `---`.",
        )
    elif len(front) > LONGEST_FRONTMATTER:
        told.error(
            f"The frontmatter of SKILL.md has {len(front):,} characters; {LONGEST_FRONTMATTER:,} are read.",
            "Move what it says below the second `---`.",
        )
    if told.is_refused or front is None:
        return Read(None, told.all)
    fields = _fields(front, told)
    name, description = _name(fields, told), _description(fields, told)
    if name is None or description is None:
        return Read(None, told.all)
    told.skill = name
    _check_name(name, folder, told)
    _check_body(body, told)
    metadata = _metadata(fields, told)
    for unknown in sorted(fields.keys() - set(_KNOWN)):
        words = f"The field {said(unknown, 60)!r} is none of the format, and nobody reads it."
        if (near := _meant(unknown)) is not None and near not in fields:
            told.warning(f"{words} Did you mean `{near}:`?", "Write it like this.")
        else:
            told.note(words, "Put it below `metadata:`.")
    version = metadata.get("version")
    skill = Skill(
        name,
        description,
        _compatibility(fields, told),
        _text(fields, "license", told),
        _tools(fields, told),
        MappingProxyType(metadata),
        source_id,
        version.strip() or None if isinstance(version, str) else None,
        body=body,
        raw=text,
    )
    return Read(skill, told.all)


# --- the fields


def _name(fields: Fields, told: _Said) -> str | None:
    name = fields.get("name")
    if not isinstance(name, str) or not name.strip():
        told.error("SKILL.md has no name.", f"Write `name: {told.skill}` into its frontmatter.")
        return None
    name = unicodedata.normalize("NFKC", name.strip())
    if len(name) > LONGEST_USABLE_NAME or not name.isprintable() or "/" in name:
        told.error(
            f"{said(name, 60)!r} cannot be the name of a skill.",
            f"Use the name of its folder, `name: {told.skill}`: words in small letters with hyphens.",
        )
        return None
    return name


def _meant(field: str) -> str | None:
    """The field of the format that a name is a slip of."""
    plain = snake(field).replace("_", "-").lower()
    return plain if plain in _KNOWN else nearest(plain, _KNOWN, like=0.85)


def _check_name(name: str, folder: str, told: _Said) -> None:
    if len(name) > LONGEST_NAME:
        told.warning(f"Its name has {len(name)} characters.", f"The format allows {LONGEST_NAME}.")
    if name != name.lower() or not _FORMAL.fullmatch(name):
        told.warning("Its name is not made of words in small letters with single hyphens.", "Rename it.")
    if name != unicodedata.normalize("NFKC", folder):
        told.warning(
            f"Its name is not that of its folder, {folder!r}.",
            "Give both the same name: other clients look for it by its folder.",
        )


def _description(fields: Fields, told: _Said) -> str | None:
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        written = next((one for one in fields if _meant(one) == "description"), None)
        meant = "" if written is None else f" It has {said(written, 60)!r}: did you mean `description:`?"
        told.error(
            f"SKILL.md has no description.{meant}",
            "Write `description:` into its frontmatter: what it does, and when to use it.",
        )
        return None
    description = description.strip()
    if len(description) > LONGEST_DESCRIPTION:
        told.warning(
            f"Its description has {len(description):,} characters; the catalogue shows the first"
            f" {LONGEST_DESCRIPTION:,}.",
            "Move the rest into the instructions.",
        )
    return description


def _compatibility(fields: Fields, told: _Said) -> str | None:
    text = _text(fields, "compatibility", told)
    if text is not None and len(text) > LONGEST_COMPATIBILITY:
        told.warning(
            f"Its compatibility has {len(text):,} characters.",
            f"The format allows {LONGEST_COMPATIBILITY}.",
        )
    return text


def _tools(fields: Fields, told: _Said) -> str | None:
    listed = fields.get("allowed-tools")
    if not isinstance(listed, list):
        return _text(fields, "allowed-tools", told)
    names = [one for one in cast("list[Any]", listed) if isinstance(one, str)]
    told.note("Its allowed-tools are a list.", "The format has them in one text, with spaces between.")
    return " ".join(names) or None


def _text(fields: Fields, key: str, told: _Said) -> str | None:
    value = fields.get(key)
    if value is None or isinstance(value, str):
        return (value or "").strip() or None
    told.warning(f"Its {key} is no text, and is left out.", f"Write it on one line: `{key}: …`.")
    return None


def _metadata(fields: Fields, told: _Said) -> dict[str, Any]:
    value = fields.get("metadata")
    if not value:
        return {}
    if not isinstance(value, dict):
        told.warning("Its metadata is no mapping, and is left out.", "Write `key: value` lines below it.")
        return {}
    metadata = cast("dict[str, Any]", value)
    if any(not isinstance(one, str) for one in metadata.values()):
        told.note("Its metadata has values that are no texts.", "The format has texts only.")
    return metadata


def _check_body(body: str, told: _Said) -> None:
    if not body.strip():
        told.warning("It has no instructions.", "Write them below the second `---`.")
    if (lines := body.count("\n")) > MOST_LINES:
        told.warning(
            f"Its instructions have {lines:,} lines.",
            f"The format recommends {MOST_LINES}: move what is not always needed into files of its own.",
        )
    if (tokens := round(len(body.encode("utf-8", "replace")) / 3.5)) > MOST_TOKENS:
        told.warning(
            f"Its instructions take about {tokens:,} tokens.",
            f"The format recommends {MOST_TOKENS:,}: move what is not always needed into files of its own.",
        )
    seen = body.replace("\r\n", "\n").strip()
    if clean(seen, len(seen) + 1) != seen:
        told.note(
            "Its instructions have characters that nobody sees; the model is shown them without these.",
            "Take them out.",
        )


# --- YAML


@cache
def _loader() -> Any:
    """Every scalar stays a text: `no`, `1.10`, dates."""
    return getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _fields(front: str, told: _Said) -> dict[str, Any]:
    try:
        doubled = _looked_through(front)
        data: Any = yaml.load(front, _loader())
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        told.warning(
            f"Its frontmatter is no valid YAML ({_where(error)}); it was read line by line.",
            "Put texts with a colon or a sign at their beginning into quotes.",
        )
        return _by_lines(front)
    if data is None or data == "":
        return {}
    if not isinstance(data, dict):
        told.warning("Its frontmatter is no mapping.", "Write it as lines of `key: value`.")
        return {}
    for key in doubled:
        told.warning(f"Its {said(key, 60)} is there twice; the last one counts.", "Keep one of them.")
    return {str(key): value for key, value in cast("dict[Any, Any]", data).items()}


def _looked_through(front: str) -> list[str]:
    """The keys that are there twice. Raises for what is not to be built: aliases, and deep nests."""
    depth, is_key = 0, True
    seen, doubled = set[str](), list[str]()
    for event in cast("Any", yaml).parse(front, _loader()):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise yaml.YAMLError("it is nested too deep")
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
            is_key = is_key if depth != 1 else not is_key
        elif isinstance(event, yaml.ScalarEvent) and depth == 1:
            if is_key and str(event.value) in seen:
                doubled.append(str(event.value))
            if is_key:
                seen.add(str(event.value))
            is_key = not is_key
    return doubled


def _where(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    what = said(getattr(error, "problem", None) or error, 80).rstrip(".") or type(error).__name__
    return what if mark is None else f"line {mark.line + 2}: {what}"


def _by_lines(front: str) -> dict[str, Any]:
    """`key: anything at all`, continued by lines that are indented; one level of nesting."""
    found: dict[str, Any] = {}
    key, is_block = "", False
    for line in front.splitlines():
        if top := _LINE.match(line):
            key, value = top[1], (top[2] or "").strip()
            is_block = bool(re.fullmatch(r"[|>][+-]?", value))
            found[key] = "" if is_block else _unquoted(value)
        elif key and line[:1] in (" ", "\t") and line.strip():
            inner, so_far = None if is_block else _INNER.match(line), found[key]
            if inner and (isinstance(so_far, dict) or so_far == ""):
                found[key] = {**(so_far or {}), inner[1]: _unquoted(inner[2].strip())}
            elif isinstance(so_far, str):
                found[key] = f"{so_far} {line.strip()}".strip()
    return found


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value


class _Said:
    """What there is to say of one file."""

    def __init__(self, skill: str, source_id: str | None = None) -> None:
        self.skill, self._source_id = skill, source_id
        self.all: list[Diagnostic] = []

    @property
    def is_refused(self) -> bool:
        return any(one.level == "error" for one in self.all)

    def error(self, what: str, next_step: str) -> None:
        self._add("error", what, next_step)

    def warning(self, what: str, next_step: str) -> None:
        self._add("warning", what, next_step)

    def note(self, what: str, next_step: str) -> None:
        self._add("note", what, next_step)

    def _add(self, level: Level, what: str, next_step: str) -> None:
        self.all.append(Diagnostic(level, self.skill, what, next_step, self._source_id))
