"""What an MCP server offers: a value, kept in its row.

    the SDK's lists --catalogue_of--> Catalogue --encode--> mcp_servers.catalogue --decode--> Catalogue
                                          |--> tools of a turn, also while the server is away

Pure; the SDK's objects come as arguments and are only read. A server is a stranger: what it says of its
tools is looked over once, when it is listed, and what cannot be used is left out alone, with the reason.
Equal lists give equal catalogues, and a tool that says anything else than before has another `hash`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from ..errors import AgentError
from ..messages import bounded_json, decode_json, encode_json
from ..tools.bounds import MAX_DEPTH, SchemaBounds, resolve
from ..words import clean, said

__all__ = [
    "EMPTY",
    "Argument",
    "Catalogue",
    "CatalogueTool",
    "Prompt",
    "Resource",
    "ResourceTemplate",
    "Skipped",
    "catalogue_of",
    "decode",
    "encode",
]

log = logging.getLogger("everthink.mcp")

MOST_ENTRIES = 1_000
"""Tools of one server; and prompts, resources, templates."""
LONGEST_DESCRIPTION = 2_000
LONGEST_INSTRUCTIONS = 10_000
LONGEST_NAME = 200
LONGEST_URI = 2_000
MOST_BYTES = 4_000_000
"""JSON of everything that is taken of one server."""
MOST_TOOL_BYTES = 128 * 1024
"""JSON of one tool."""
MOST_CAPABILITIES, MOST_CAPABILITY_BYTES = 50, 2_000
MOST_SKIPPED = 100
"""Reasons that are kept; there may be more."""
_DEEPEST_SCHEMA = 100
_MOST_ARGUMENTS = 100
_SAID = ("description", "title", "$comment")
_DATA = ("default", "const", "enum", "examples")
"""What stands below these in a schema is data, not words about it."""


# --- the values


class CatalogueTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool as its server describes it. What it says of itself are hints: a server may lie."""

    name: str
    """What the server calls it, and wants to be asked for."""
    description: str
    input_schema: dict[str, Any]
    hash: str
    """Of everything that was said of it, before anything was cut."""
    title: str | None = None
    output_schema: dict[str, Any] | None = None
    read_only: bool = False
    idempotent: bool = False
    destructive: bool = True
    open_world: bool = True


class Argument(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a prompt may be given."""

    name: str
    description: str = ""
    required: bool = False


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A prompt that a server has."""

    name: str
    title: str | None = None
    description: str = ""
    arguments: tuple[Argument, ...] = ()


class Resource(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that a server lets be read."""

    uri: str
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None
    size: int | None = None


class ResourceTemplate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A family of resources: an address with something to fill in."""

    uri_template: str
    name: str
    title: str | None = None
    description: str = ""
    mime_type: str | None = None


class Skipped(msgspec.Struct, frozen=True):
    """What was left out, and why."""

    name: str
    why: str


class Catalogue(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that one server offers."""

    tools: tuple[CatalogueTool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    resources: tuple[Resource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    instructions: str | None = None
    """For people: they are put into no prompt."""
    capabilities: dict[str, Any] = {}
    skipped: tuple[Skipped, ...] = ()


EMPTY = Catalogue()


# --- in a row


def encode(catalogue: Catalogue) -> str:
    """The catalogue as text for a column."""
    return encode_json(catalogue).decode()


def decode(text: str | None) -> Catalogue:
    """The catalogue in a column. One that cannot be read is empty: the server is listed again anyway."""
    if text is None:
        return EMPTY
    try:
        return decode_json(text, Catalogue)
    except msgspec.DecodeError as error:
        log.warning("a stored catalogue of an MCP server cannot be read, and is listed again: %s", error)
        return EMPTY


# --- made from the SDK's lists


def catalogue_of(
    *,
    tools: Sequence[Any] = (),
    prompts: Sequence[Any] = (),
    resources: Sequence[Any] = (),
    templates: Sequence[Any] = (),
    instructions: str | None = None,
    capabilities: Any = None,
) -> Catalogue:
    """The catalogue of a server, from the SDK's `Tool`, `Prompt`, `Resource`, `ResourceTemplate`."""
    look = _Look()
    return Catalogue(
        tools=look.taken(tools, "tools", _tool),
        prompts=look.taken(prompts, "prompts", _prompt),
        resources=look.taken(resources, "resources", _resource),
        templates=look.taken(templates, "resource templates", _template),
        instructions=clean(instructions, LONGEST_INSTRUCTIONS) if instructions else None,
        capabilities=_capabilities(capabilities),
        skipped=tuple(look.skipped[:MOST_SKIPPED]),
    )


class _Unusable(Exception):
    """Why something of a server is left out."""


class _Look:
    """One look at all lists of a server, which share a bound."""

    def __init__(self) -> None:
        self.skipped: list[Skipped] = []
        self._bytes = 0

    def taken(self, listed: Iterable[Any], kind: str, make: Any) -> tuple[Any, ...]:
        found: dict[str, Any] = {}
        for number, one in enumerate(listed):
            if number >= MOST_ENTRIES:
                self.skipped.append(
                    Skipped(kind, f"there are more than {MOST_ENTRIES:,}; the rest is left out")
                )
                break
            try:
                made = make(one)
                key = getattr(made, "uri", None) or getattr(made, "uri_template", None) or made.name
                if key in found:
                    raise _Unusable("there is another one of that name")
                self._weigh(made)
                found[key] = made
            except _Unusable as problem:
                self.skipped.append(Skipped(said(getattr(one, "name", kind), 80), str(problem)))
        return tuple(found.values())

    def _weigh(self, made: Any) -> None:
        size = len(encode_json(made))
        if size > MOST_TOOL_BYTES:
            raise _Unusable(f"it takes {size:,} bytes, more than {MOST_TOOL_BYTES:,}")
        if self._bytes + size > MOST_BYTES:
            raise _Unusable(f"with what is listed before it, it takes more than {MOST_BYTES:,} bytes")
        self._bytes += size


def _tool(tool: Any) -> CatalogueTool:
    schema = _schema(tool.name, tool.input_schema)
    if schema.get("type", "object") != "object":
        raise _Unusable("its input is no JSON object")
    hints = tool.annotations
    read_only = bool(hints is not None and hints.read_only_hint)
    return CatalogueTool(
        name=_name(tool.name),
        description=clean(tool.description or "", LONGEST_DESCRIPTION),
        input_schema=schema,
        hash=_hash(tool),
        title=_line(tool.title or (hints.title if hints is not None else None)),
        output_schema=_output_schema(tool),
        read_only=read_only,
        idempotent=bool(hints is not None and hints.idempotent_hint),
        # What says nothing may do anything: that is also what the protocol says.
        destructive=not read_only and (hints is None or hints.destructive_hint is not False),
        open_world=hints is None or hints.open_world_hint is not False,
    )


def _prompt(prompt: Any) -> Prompt:
    return Prompt(
        name=_name(prompt.name),
        title=_line(prompt.title),
        description=clean(prompt.description or "", LONGEST_DESCRIPTION),
        arguments=tuple(
            Argument(_name(one.name), clean(one.description or "", LONGEST_DESCRIPTION), bool(one.required))
            for one in (prompt.arguments or ())[:_MOST_ARGUMENTS]
        ),
    )


def _resource(resource: Any) -> Resource:
    size = resource.size
    return Resource(
        uri=_uri(resource.uri),
        name=_line(resource.name) or "",
        title=_line(resource.title),
        description=clean(resource.description or "", LONGEST_DESCRIPTION),
        mime_type=_line(resource.mime_type),
        size=size if isinstance(size, int) and 0 <= size < 2**63 else None,
    )


def _template(template: Any) -> ResourceTemplate:
    return ResourceTemplate(
        uri_template=_uri(template.uri_template),
        name=_line(template.name) or "",
        title=_line(template.title),
        description=clean(template.description or "", LONGEST_DESCRIPTION),
        mime_type=_line(template.mime_type),
    )


def _capabilities(found: Any) -> dict[str, Any]:
    """What a server says it can do. Settings of one that are too large are left out."""
    if found is None:
        return {}
    dumped = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    kept: dict[str, Any] = {}
    for key, value in list(cast("dict[str, Any]", dumped).items())[:MOST_CAPABILITIES]:
        try:
            fits = len(bounded_json(value, _DEEPEST_SCHEMA)) <= MOST_CAPABILITY_BYTES
        except AgentError:
            fits = False
        kept[said(key, 80)] = value if fits else {}
    return kept


# --- texts


def _name(name: str) -> str:
    """A name that a server wants to be asked for by: as it is, or not at all."""
    if not 0 < len(name) <= LONGEST_NAME or said(name, LONGEST_NAME) != name:
        raise _Unusable(f"its name is not one line of 1 to {LONGEST_NAME} characters")
    return name


def _uri(uri: Any) -> str:
    found = str(uri)
    if not 0 < len(found) <= LONGEST_URI or said(found, LONGEST_URI) != found:
        raise _Unusable(f"its address is not one line of 1 to {LONGEST_URI:,} characters")
    return found


def _line(text: str | None) -> str | None:
    return said(text, LONGEST_NAME) or None if text else None


# --- schemas


def _schema(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that may be used, with its words cleaned. Raises `_Unusable` for any other."""
    try:
        if len(bounded_json(schema, _DEEPEST_SCHEMA)) > MOST_TOOL_BYTES:
            raise _Unusable(f"its schema takes more than {MOST_TOOL_BYTES:,} bytes")
        SchemaBounds().check(name, schema)
    except AgentError as error:
        raise _Unusable(said(error.what)) from None
    _refuse_circles(schema, schema)
    return _cleaned(schema)


def _output_schema(tool: Any) -> dict[str, Any] | None:
    """What its results look like. It is of use only, so a bad one costs nothing else."""
    try:
        return None if tool.output_schema is None else _schema(tool.name, tool.output_schema)
    except _Unusable:
        return None


def _refuse_circles(node: Any, root: dict[str, Any]) -> None:
    """Raise for a reference that leads by references alone back to itself: it describes nothing.

    A schema that contains itself further in (a tree, a list of lists) is fine.
    """
    waiting: list[Any] = [node]
    while waiting:
        found: Any = waiting.pop()
        if isinstance(found, list):
            waiting += cast("list[Any]", found)
        if not isinstance(found, dict):
            continue
        members = cast("dict[str, Any]", found)
        waiting += members.values()
        met: set[str] = set()
        here: Any = members
        while isinstance(here, dict) and isinstance(there := cast("dict[str, Any]", here).get("$ref"), str):
            if there in met or len(met) > MAX_DEPTH:
                raise _Unusable(f"its reference {said(there, 60)!r} leads back to itself")
            met.add(there)
            here = resolve(there, root)


def _cleaned(node: Any) -> Any:
    """A copy of a schema whose words hide nothing. Names and values stay: calls are made of them."""
    if isinstance(node, list):
        return [_cleaned(one) for one in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    return {
        key: clean(value, LONGEST_DESCRIPTION)
        if key in _SAID and isinstance(value, str)
        else value
        if key in _DATA
        else _cleaned(value)
        for key, value in cast("dict[str, Any]", node).items()
    }


_sorted = msgspec.json.Encoder(order="sorted").encode


def _hash(tool: Any) -> str:
    """Changes with every word of it, also those that are cut."""
    hints = tool.annotations
    everything = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input": tool.input_schema,
        "output": tool.output_schema,
        "annotations": None if hints is None else hints.model_dump(mode="json", exclude_none=True),
    }
    try:
        written = _sorted(everything)
    except (RecursionError, UnicodeEncodeError):  # of what is not kept: the output's schema
        written = repr(sorted(everything.items())).encode("utf-8", "replace")
    return hashlib.sha256(written).hexdigest()
