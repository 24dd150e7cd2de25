"""Tidy the JSON schemas that pydantic writes, so that a model reads only what matters.

    typed_input --schema--> tidy --schema--> ToolSpec

Automatic titles go, definitions that are simple or used once move to where they are used,
definitions nobody mentions are dropped. What a schema accepts never changes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

__all__ = ["tidy"]

Schema = dict[str, Any]

_SMALL = 200  # characters of JSON; a repeated definition below this is clearer in place
_REF = "#/$defs/"
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "dependentSchemas")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "unevaluatedProperties")


def tidy(schema: Schema) -> Schema:
    """A clean copy of `schema`."""
    defs = cast("dict[str, Schema]", schema.get("$defs", {}))
    for name, definition in defs.items():
        _untitle(name, definition)
    inlined = {name: defs[name] for name in defs if _belongs_in_place(name, defs, schema)}
    result = cast(Schema, _settle({k: v for k, v in schema.items() if k != "$defs"}, inlined))
    kept = {name: cast(Schema, _settle(defs[name], inlined)) for name in defs if name not in inlined}
    needed = _reachable(result, kept)
    if needed:
        result["$defs"] = {name: kept[name] for name in kept if name in needed}
    return result


def _untitle(name: str, definition: Schema) -> None:
    title = definition.get("title")
    if isinstance(title, str):
        automatic = re.sub(r"[^a-zA-Z0-9.\-_]", "_", title)
        if name == automatic or name.endswith(f"__{automatic}"):
            del definition["title"]


def _belongs_in_place(name: str, defs: dict[str, Schema], schema: Schema) -> bool:
    if name in _reachable(defs[name], defs):
        return False  # it contains itself
    uses = Counter(_refs(schema))
    for definition in defs.values():
        uses.update(_refs(definition))
    return uses[name] <= 1 or len(json.dumps(defs[name], default=str)) <= _SMALL


def _settle(node: Any, inlined: dict[str, Schema]) -> Any:
    """A copy of the schema `node` with references to `inlined` replaced by what they stand for."""
    if not isinstance(node, dict):
        return node
    schema = cast(Schema, node)
    name = _ref(schema)
    if name in inlined:
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _settle({**inlined[name], **beside}, inlined)
    settled: Schema = {}
    for key, value in schema.items():
        if key in _NAMED_SCHEMAS and isinstance(value, dict):
            named = cast(Schema, value)
            settled[key] = {inner: _settle(child, inlined) for inner, child in named.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            settled[key] = [_settle(child, inlined) for child in cast("list[Any]", value)]
        elif key in _SCHEMAS:
            settled[key] = _settle(value, inlined)
        elif key == "discriminator":
            continue  # OpenAPI's; it would point to definitions that moved
        elif key == "default" and value is None:
            continue  # "may be left out" is already said by not being required
        else:
            settled[key] = value
    return settled


def _ref(schema: Schema) -> str:
    ref = schema.get("$ref")
    return ref[len(_REF) :] if isinstance(ref, str) and ref.startswith(_REF) else ""


def _refs(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        schema = cast(Schema, node)
        if name := _ref(schema):
            yield name
        for key, value in schema.items():
            if key != "$defs":
                yield from _refs(value)
    elif isinstance(node, list):
        for child in cast("list[Any]", node):
            yield from _refs(child)


def _reachable(node: Any, defs: dict[str, Schema]) -> set[str]:
    found: set[str] = set()
    waiting = list(_refs(node))
    while waiting:
        name = waiting.pop()
        if name in defs and name not in found:
            found.add(name)
            waiting.extend(_refs(defs[name]))
    return found
