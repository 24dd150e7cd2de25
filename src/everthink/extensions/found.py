"""What the source of an extension was found to have: looked over before anybody believes it.

    sandboxed.py --what the source says of itself--> found_in --> Found: tools with schemas, hooks

Pure. A source is written by strangers, or by a model: names, sizes and schemas are bounded here. A slip of
the pen is refused with what was meant. What nothing reads, and is no slip, is a note: the same source may be
written for other hosts, which read more.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..errors import ExtensionError, ToolDefinitionError
from ..messages import encode_json
from ..settings import nearest, snake
from ..tools.bounds import SchemaBounds
from ..words import clean, said
from .values import HOOKS, HookName, Manifest, camel

__all__ = ["Found", "FoundTool", "check_meant", "found_in"]

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
    notes: tuple[str, ...] = ()
    """What is there and is not used, in words for whoever wrote it."""

    def as_json(self) -> dict[str, Any]:
        """The same for a row."""
        tools = [
            {"name": one.name, "description": one.description, "schema": one.schema} for one in self.tools
        ]
        return {"tools": tools, "hooks": list(self.hooks), "notes": list(self.notes)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Found:
        """What `as_json` gave."""
        tools = (FoundTool(one["name"], one["description"], one["schema"]) for one in value["tools"])
        hooks: tuple[HookName, ...] = tuple(name for name in HOOKS if name in value["hooks"])
        return cls(tuple(tools), hooks, tuple(value.get("notes", ())))

    def of(self, manifest: Manifest) -> Found:
        """Of these, what the manifest means to have, with a note where both differ."""
        tools: Sequence[FoundTool] = self.tools
        hooks: Sequence[HookName] = self.hooks
        notes = list(self.notes)
        if manifest.tools is not None:
            notes += _compared("tools", set(manifest.tools), {one.name for one in tools})
            tools = [one for one in tools if one.name in manifest.tools]
        if manifest.hooks is not None:
            notes += _compared("hooks", set(manifest.hooks), set(hooks))
            hooks = [name for name in hooks if name in manifest.hooks]
        return Found(tuple(tools), tuple(hooks), tuple(notes))

    def tell(self, name: str) -> None:
        """Say in the log what is not used."""
        for note in self.notes:
            _tell(f"the extension {name!r}: {note}")


_told: set[str] = set()
_MOST_TOLD = 500


def _tell(words: str) -> None:
    """Say it once: thousands of agents may have the same extension."""
    if words not in _told and len(_told) < _MOST_TOLD:
        _told.add(words)
        log.warning("%s", words)


def _compared(what: str, meant: set[str], has: set[str]) -> list[str]:
    """Notes on what the manifest names and the source has not, and the other way round."""
    notes: list[str] = []
    if missing := said(", ".join(sorted(meant - has))):
        notes.append(f"its manifest names {what} that its source has not: {missing}")
    if more := said(", ".join(sorted(has - meant))):
        notes.append(f"its source has {what} that its manifest does not name; they are left out: {more}")
    return notes


def check_meant(manifest: Manifest, found: Found) -> None:
    """Raise for a tool of the manifest that its source has under a name much like it."""
    meant, has = manifest.tools or (), [one.name for one in found.tools]
    for name in meant:
        plain = name.removeprefix(f"{manifest.prefix}_")
        near = plain if plain in has else nearest(name, [one for one in has if one not in meant], like=0.75)
        if name not in has and near is not None:
            raise ExtensionError(
                f"The manifest of {manifest.name!r} names the tool {name!r}, which its source has not.",
                next_step=f"Did you mean {near!r}?",
            )


def found_in(value: Any, manifest: Manifest, *, python: bool = False) -> Found:
    """What a source has, as it says itself. Raises `ExtensionError` in words for whoever wrote it."""
    name, has = manifest.name, cast("dict[str, Any]", value if isinstance(value, dict) else {})
    has_some = any(has.get(one) for one in ("tools", "hooks", "idle"))
    if not has or has.get("isNone") or (python and not has_some):
        guidance = GUIDANCE_PYTHON if python else GUIDANCE
        raise ExtensionError(f"Invalid extension source format of {name!r}.", next_step=guidance)
    if len(encode_json(has)) > LARGEST:
        raise ExtensionError(f"What {name!r} says of its tools has more than {LARGEST:,} bytes.")
    listed = cast("list[dict[str, Any]]", has.get("tools") or [])
    if len(listed) > MOST_TOOLS:
        raise ExtensionError(f"{name!r} has {len(listed)} tools, and may have {MOST_TOOLS}.")
    bounds, notes = SchemaBounds(), list[str]()
    unread = _unused(_texts(has.get("fields")), ("tools", "hooks"), _OTHER_FIELDS, f"{name!r}")
    notes += [] if python else unread  # in Python these are variables of its own
    tools = tuple(_tool(one, manifest, bounds, notes) for one in listed)
    hooks = _hooks(has, f"{name!r}", notes, python=python)
    if not tools and not hooks:
        notes.append("it has neither a tool nor a hook that is heard")
    return Found(tools, hooks, tuple(notes))


_OTHER_FIELDS = {"tool": "tools", "functions": "tools", "hook": "hooks", "handlers": "hooks"}
_OTHER_HOOKS = {
    "after_step": "on_step_finish",
    "after_tool": "after_tool_call",
    "before_tool": "before_tool_call",
    "on_step": "on_step_finish",
    "on_step_end": "on_step_finish",
    "on_tool_call": "before_tool_call",
    "on_tool_result": "after_tool_call",
    "on_turn_start": "before_turn",
}
_OTHER_TOOL_FIELDS = {
    "args": "parameters",
    "call": "execute",
    "desc": "description",
    "doc": "description",
    "exec": "execute",
    "fn": "execute",
    "func": "execute",
    "function": "execute",
    "handler": "execute",
    "input": "parameters",
    "input_schema": "parameters",
    "inputs": "parameters",
    "invoke": "execute",
    "params": "parameters",
    "properties": "parameters",
    "run": "execute",
    "schema": "parameters",
}
"""What others call it."""
_TOOL_FIELDS = ("description", "parameters", "required", "execute")
_LIKE = 0.82
"""How much a name is like another that it was meant to be."""


def _meant(name: str, known: Sequence[str], others: Mapping[str, str]) -> str | None:
    plain = snake(name)
    if plain in known:
        return plain
    found = plain if plain in others else nearest(plain, [*known, *others], like=_LIKE)
    return None if found is None else others.get(found, found)


def _unused(given: Sequence[str], known: Sequence[str], others: Mapping[str, str], of: str) -> list[str]:
    """Notes on fields that nothing reads. Raises for one that was meant to be another."""
    notes: list[str] = []
    for name in given:
        if name in known:
            continue
        if (meant := _meant(name, known, others)) is not None and meant not in given:
            raise ExtensionError(
                f"{of} has a field {said(name, 80)!r}, which nothing reads.",
                next_step=f"Did you mean {meant!r}?",
            )
        notes.append(
            f"{of} has a field {said(name, 80)!r}, which nothing reads. Read are: {', '.join(known)}"
        )
    return notes


def _hooks(has: Mapping[str, Any], of: str, notes: list[str], *, python: bool) -> tuple[HookName, ...]:
    """The hooks of a source. One that agents alone hear is a note: other hosts pass over it, too."""
    written = [*_texts(has.get("hooks")), *_texts(has.get("idle"))]
    unheard = [one for one in written if snake(one) not in HOOKS]
    there = ", ".join(HOOKS if python else map(camel, HOOKS))
    for name in unheard:
        if snake(name) not in _OF_AGENTS and (meant := _meant(name, HOOKS, _OTHER_HOOKS)) is not None:
            raise ExtensionError(
                f"{of} has a hook {said(name, 80)!r}, which nobody calls.",
                next_step=f"Did you mean {meant if python else camel(meant)!r}?",
            )
    if unheard:
        named = said(", ".join(sorted(unheard)))
        notes.append(f"it has hooks that extensions do not hear: {named}. They hear: {there}")
    for name in _texts(has.get("idle")):
        raise ExtensionError(
            f"The hook {said(name, 80)!r} of {of} is no function.",
            next_step="Write async (snapshot, host) => … for it.",
        )
    heard = set(map(snake, written))
    return tuple(one for one in HOOKS if one in heard)


_OF_AGENTS = ("before_step", "after_turn", "on_finish", "on_start", "on_error")
"""Hooks that agents have, here or elsewhere, and extensions have not."""


def _texts(given: Any) -> list[str]:
    return [str(one) for one in cast("list[Any]", given)] if isinstance(given, list) else []


def _tool(given: dict[str, Any], manifest: Manifest, bounds: SchemaBounds, notes: list[str]) -> FoundTool:
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
    has, of = _texts(given.get("fields")), f"The tool {name!r} of {manifest.name!r}"
    if asks := next((one for one in has if snake(one) == "needs_approval"), None):
        raise ExtensionError(
            f"{of} has {asks!r}, and nobody would be asked: extensions cannot ask people.",
            next_step="Leave it out; the agent's before_tool_call() can have a say in each call.",
        )
    notes += _unused(has, _TOOL_FIELDS, _OTHER_TOOL_FIELDS, of)
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
    _check_schema(where, schema)
    try:
        bounds.check(where, schema)
    except ToolDefinitionError as error:
        raise ExtensionError(error.what, next_step=error.next_step) from error
    return schema


_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_KEYWORDS = ("type", "description", "properties", "required", "items", "enum", "default", "format")
_CLOSE = 0.75


def _check_schema(where: str, schema: Mapping[str, Any]) -> None:
    """Raise for what a model could never give right: a parameter that is not there, a type that is none."""
    known, needed = schema.get("properties"), schema.get("required")
    properties = cast("dict[str, Any]", known if isinstance(known, dict) else {})
    for name in cast("list[Any]", needed if isinstance(needed, list) else []):
        if name not in properties and not schema.get("additionalProperties"):
            near = nearest(str(name), properties)
            raise ExtensionError(
                f"The tool {where!r} requires {said(str(name), 80)!r}, which is none of its parameters.",
                next_step=f"Did you mean {near!r}?" if near else "Describe it in `parameters`, too.",
            )
    for name, one in properties.items():
        if isinstance(one, dict):
            _check_parameter(where, name, cast("dict[str, Any]", one))


def _check_parameter(where: str, name: str, schema: Mapping[str, Any]) -> None:
    of = f"The parameter {said(name, 80)!r} of the tool {where!r}"
    kind = schema.get("type")
    if isinstance(kind, str) and kind not in _TYPES:
        near = nearest(kind, _TYPES, like=0.5)
        raise ExtensionError(
            f"{of} has the type {said(kind, 80)!r}, which is none.",
            next_step=f"Did you mean {near!r}?" if near else f"There are: {', '.join(_TYPES)}.",
        )
    for word in schema:
        near = None if word in _KEYWORDS else nearest(word, _KEYWORDS, like=_CLOSE)
        if near is not None and near not in schema and len(word) == len(near):
            raise ExtensionError(
                f"{of} has {said(word, 80)!r}, which nothing reads.", next_step=f"Did you mean {near!r}?"
            )
