"""Skills that are values of the program: made by a build, read from a database, written in a test.

    from_manifest({"id": …, "skills": [{"name": …, "description": …, "body": …, "resources": […]}]})

What is written wrongly is refused where it is written. Files with unsafe paths are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from ..errors import InvalidSettings
from ..messages import encode_json
from ..settings import shown, snake
from ..skill_values import (
    Diagnostic,
    Resource,
    ResourceInfo,
    Skill,
    SkillInfo,
    encoding_of,
    is_safe_path,
    kind_of,
    media_type_of,
)
from ..surface import refuse_unknown
from .tree import as_info

__all__ = ["ManifestSource", "from_manifest"]

_MANIFEST = ("id", "fingerprint", "skills")
_ENTRY = (
    "name", "description", "compatibility", "license", "allowed_tools", "metadata", "version", "body", "raw",
    "resources",
)  # fmt: skip
_FILE = ("path", "kind", "size", "encoding", "media_type", "content")
_OTHERWISE = {"raw_content": "raw", "mime_type": "media_type", "content": "body", "instructions": "body"}
_TEXTS = ("compatibility", "license", "allowed_tools", "version")


def from_manifest(
    manifest: Mapping[str, Any] | None = None,
    *,
    id: str | None = None,
    fingerprint: str | None = None,
    skills: Sequence[Mapping[str, Any]] | None = None,
) -> ManifestSource:
    """Skills that are given as values, in a dict or as keywords. Without a fingerprint it is made of them."""
    given: dict[str, Any] = dict(manifest or {})
    refuse_unknown(map(str, given), _MANIFEST, "A manifest of skills")
    given |= {
        name: value
        for name, value in (("id", id), ("fingerprint", fingerprint), ("skills", skills))
        if value is not None
    }
    entries: Any = given.get("skills", ())
    if isinstance(entries, str | Mapping) or not isinstance(entries, Sequence):
        raise _refused(f"its skills are {shown(entries)}", "Give a list of dicts.")
    made = [_skill(entry, place) for place, entry in enumerate(cast("Sequence[Any]", entries))]
    source_id = _text(given, "id", "A manifest", needed=True)
    return ManifestSource(source_id, made, _text(given, "fingerprint", "A manifest") or _hash(made))


class ManifestSource:
    """Skills in memory. They change with the program only."""

    def __init__(
        self, id: str, skills: Sequence[tuple[Skill, Mapping[str, Resource]]], fingerprint: str
    ) -> None:
        self.id, self.fingerprint = id, fingerprint
        self._skills: dict[str, tuple[Skill, Mapping[str, Resource]]] = {}
        told = list[Diagnostic]()
        for skill, files in skills:
            if skill.name in self._skills:
                told.append(
                    Diagnostic(
                        "warning", skill.name, "The manifest has it twice; the first one is used.", "", id
                    )
                )
                continue
            self._skills[skill.name] = (_of(skill, id), files)
        self.diagnostics = tuple(told)

    async def list(self) -> Sequence[SkillInfo]:
        """Its skills, as they were given."""
        return tuple(as_info(skill) for skill, _ in self._skills.values())

    async def load(self, name: str) -> Skill | None:
        """One of them, with its instructions."""
        found = self._skills.get(name)
        return None if found is None else found[0]

    async def read_resource(self, name: str, path: str) -> Resource | None:
        """A file of a skill."""
        found = self._skills.get(name)
        return None if found is None or not is_safe_path(path) else found[1].get(path)

    async def refresh(self) -> None:
        """There is nothing to look at again."""


def _of(skill: Skill, source_id: str) -> Skill:
    from dataclasses import replace

    return replace(skill, source_id=source_id)


def _skill(entry: Any, place: int) -> tuple[Skill, Mapping[str, Resource]]:
    where = f"skills[{place}]"
    fields = _fields(entry, _ENTRY, where)
    name = _text(fields, "name", where, needed=True).strip()
    description = _text(fields, "description", where, needed=True).strip()
    body = _text(fields, "body", where)
    metadata: Any = fields.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise _refused(f"{where}.metadata is {shown(metadata)}", "Give a dict.")
    listed: Any = fields.get("resources") or ()
    files = [_file(one, f"{where}.resources[{n}]") for n, one in enumerate(listed)]
    safe = {one.path: one for one in files if is_safe_path(one.path)}
    infos = tuple(ResourceInfo(f.path, f.kind, f.size, f.encoding, f.media_type) for f in safe.values())
    optional = {key: _text(fields, key, where) or None for key in _TEXTS}
    skill = Skill(
        name,
        description,
        metadata=MappingProxyType(dict(cast("Mapping[str, Any]", metadata))),
        body=body,
        raw=_text(fields, "raw", where) or f"---\nname: {name}\ndescription: {description}\n---\n{body}",
        resources=infos,
        **optional,  # pyright: ignore[reportArgumentType] - texts all of them
    )
    return skill, MappingProxyType(safe)


def _file(given: Any, where: str) -> Resource:
    fields = _fields(given, _FILE, where)
    path, content = _text(fields, "path", where, needed=True), fields.get("content")
    encoding, kind = fields.get("encoding"), fields.get("kind")
    if not isinstance(content, str):
        raise _refused(f"{where}.content is {shown(content)}", "Give text, or bytes as base64 text.")
    if encoding not in (None, "text", "base64"):
        raise _refused(f"{where}.encoding is {shown(encoding)}", 'It is "text" or "base64".')
    if kind not in (None, "reference", "script", "asset", "file"):
        raise _refused(f"{where}.kind is {shown(kind)}", 'It is "reference", "script", "asset" or "file".')
    size: Any = fields.get("size")
    return Resource(
        path,
        kind or kind_of(path),
        size
        if isinstance(size, int)
        else len(content.encode("utf-8", "replace"))
        if encoding != "base64"
        else None,
        encoding or encoding_of(path),
        fields.get("media_type") or media_type_of(path),
        content=content,
    )


def _fields(given: Any, known: Sequence[str], where: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise _refused(f"{where} is {shown(given)}", "Give a dict.")
    entry = cast("Mapping[Any, Any]", given)
    names = {str(key): snake(str(key)) for key in entry}
    otherwise = {theirs: ours for theirs, ours in _OTHERWISE.items() if theirs not in known}
    fields = {otherwise.get(names[str(key)], names[str(key)]): value for key, value in entry.items()}
    refuse_unknown(fields, known, f"A manifest's {where}")
    return fields


def _text(fields: Mapping[str, Any], key: str, where: str, *, needed: bool = False) -> str:
    value = fields.get(key)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or (needed and not value.strip()):
        raise _refused(f"{where}: its {key} is {shown(value)}", "Give text.")
    return value


def _refused(why: str, next_step: str) -> InvalidSettings:
    return InvalidSettings(f"A manifest of skills cannot be used: {why}.", next_step=next_step)


def _hash(skills: Sequence[tuple[Skill, Mapping[str, Resource]]]) -> str:
    values = [
        [skill.name, skill.description, skill.raw, [(one.path, one.content) for one in files.values()]]
        for skill, files in skills
    ]
    return hashlib.sha256(encode_json(values)).hexdigest()[:16]
