"""What the source of an extension was found to have: looked over before anybody believes it.

    sandboxed.py --what the source says of itself--> found_in --> Found: tools with schemas, hooks

Pure. A source is written by strangers, or by a model: names, sizes and schemas are bounded here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..errors import ExtensionError, ToolDefinitionError
from ..messages import encode_json
from ..settings import snake
from ..tools.bounds import SchemaBounds
from ..words import clean, said
from .values import HOOKS, HookName, Manifest

__all__ = ["Found", "FoundTool", "found_in"]

log = logging.getLogger("everthink.extensions")

MOST_TOOLS = 50
LARGEST = 200_000
"""Bytes of what a source says of itself."""
LONGEST_DESCRIPTION = 4_000
LONGEST_TOOL = 64
"""Characters of the full name of a tool: providers take no more."""
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
GUIDANCE = (
    "It is one object with `tools`, `hooks` or both: ({ tools: { add: { description, parameters, required,"
    " execute: async (args, host) => … } }, hooks: { … } }). Put tools below `tools`."
)
GUIDANCE_PYTHON = (
    'It has dictionaries `tools`, `hooks` or both: tools = {"add": {"description": …, "parameters": {…},'
    ' "required": […], "execute": add}}.'
)


@dataclass(frozen=True, slots=True)
class FoundTool:
    """A tool that a source has."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What a source has."""

    tools: tuple[FoundTool, ...]
    hooks: tuple[HookName, ...]

    def as_json(self) -> dict[str, Any]:
        """The same for a row."""
        tools = [
            {"name": one.name, "description": one.description, "schema": one.schema} for one in self.tools
        ]
        return {"tools": tools, "hooks": list(self.hooks)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Found:
        """What `as_json` gave."""
        tools = (FoundTool(one["name"], one["description"], one["schema"]) for one in value["tools"])
        return cls(tuple(tools), tuple(name for name in HOOKS if name in value["hooks"]))

    def of(self, manifest: Manifest) -> Found:
        """Of these, what the manifest means to have. Says in the log where both differ."""
        tools: Sequence[FoundTool] = self.tools
        hooks: Sequence[HookName] = self.hooks
        if manifest.tools is not None:
            _compare(manifest, "tools", set(manifest.tools), {one.name for one in tools})
            tools = [one for one in tools if one.name in manifest.tools]
        if manifest.hooks is not None:
            _compare(manifest, "hooks", set(manifest.hooks), set(hooks))
            hooks = [name for name in hooks if name in manifest.hooks]
        return Found(tuple(tools), tuple(hooks))


_told: set[str] = set()
_MOST_TOLD = 500


def _tell(words: str) -> None:
    """Say it once: thousands of agents may have the same extension."""
    if words not in _told and len(_told) < _MOST_TOLD:
        _told.add(words)
        log.warning("%s", words)


def _compare(manifest: Manifest, what: str, meant: set[str], has: set[str]) -> None:
    name = manifest.name
    if missing := ", ".join(sorted(meant - has)):
        _tell(f"the extension {name!r} names {what} that its source has not: {missing}")
    if more := said(", ".join(sorted(has - meant))):
        _tell(f"the extension {name!r} has {what} that its manifest does not name; they are left out: {more}")


def found_in(value: Any, manifest: Manifest, *, python: bool = False) -> Found:
    """What a source has, as it says itself. Raises `ExtensionError` in words for whoever wrote it."""
    name, has = manifest.name, cast("dict[str, Any]", value if isinstance(value, dict) else {})
    if not has or has.get("isNone") or (python and not (has.get("tools") or has.get("hooks"))):
        guidance = GUIDANCE_PYTHON if python else GUIDANCE
        raise ExtensionError(f"Invalid extension source format of {name!r}.", next_step=guidance)
    if len(encode_json(has)) > LARGEST:
        raise ExtensionError(f"What {name!r} says of its tools has more than {LARGEST:,} bytes.")
    listed = cast("list[dict[str, Any]]", has.get("tools") or [])
    if len(listed) > MOST_TOOLS:
        raise ExtensionError(f"{name!r} has {len(listed)} tools, and may have {MOST_TOOLS}.")
    bounds = SchemaBounds()
    tools = tuple(_tool(one, manifest, bounds) for one in listed)
    hooks = {snake(str(one)) for one in cast("list[Any]", has.get("hooks") or [])}
    if unknown := sorted(hooks - set(HOOKS)):
        _tell(
            f"the extension {name!r} has hooks that extensions do not hear: {said(', '.join(unknown))}."
            f" They hear: {', '.join(HOOKS)}"
        )
    return Found(tools, tuple(one for one in HOOKS if one in hooks))


def _tool(given: dict[str, Any], manifest: Manifest, bounds: SchemaBounds) -> FoundTool:
    name = given.get("name")
    if not isinstance(name, str) or _TOOL.fullmatch(name) is None:
        raise ExtensionError(
            f"{manifest.name!r} has a tool named {said(name, 80)!r}.",
            next_step="Names of tools are letters, digits, `_` and `-`.",
        )
    full = f"{manifest.prefix}_{name}"
    if len(full) > LONGEST_TOOL:
        raise ExtensionError(
            f"The name {full!r} has {len(full)} characters, and may have {LONGEST_TOOL}.",
            next_step="Give the extension or its tool a shorter name.",
        )
    if given.get("runs") is not True:
        raise ExtensionError(
            f"The tool {name!r} of {manifest.name!r} has no function `execute`.",
            next_step="Write execute: async (args, host) => … in it.",
        )
    description = given.get("description")
    told = clean(description, LONGEST_DESCRIPTION) if isinstance(description, str) else ""
    return FoundTool(name, told or name, _schema(given, f"{manifest.name}: {name}", bounds))


def _schema(given: dict[str, Any], where: str, bounds: SchemaBounds) -> dict[str, Any]:
    """The schema of a tool's input: `parameters` are its properties, or the whole of it."""
    parameters, required = given.get("parameters"), given.get("required")
    if not isinstance(parameters, dict | None) or not isinstance(required, list | None):
        raise ExtensionError(
            f"The parameters of the tool {where!r} cannot be read.",
            next_step='They are properties, { text: { type: "string" } }, and required: ["text"].',
        )
    properties = cast("dict[str, Any]", parameters or {})
    if properties.get("type") == "object" and isinstance(properties.get("properties"), dict):
        schema: dict[str, Any] = dict(properties)
    else:
        schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = [str(one) for one in cast("list[Any]", required)]
    try:
        bounds.check(where, schema)
    except ToolDefinitionError as error:
        raise ExtensionError(error.what, next_step=error.next_step) from error
    return schema
