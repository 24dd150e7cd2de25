"""Declarations of functions from JSON schemas, in the words of a language.

    schema --python_stub--> async def refund(order: str, amount: float = ...) -> Any: ...
           --typescript_stub--> refund(input: {order: string, amount?: number}): Promise<any>

Pure. What a schema says beyond this is checked when the function is called; what cannot be said is `Any`.
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Mapping
from typing import Any, cast

__all__ = ["python_stub", "python_type", "typescript_stub", "typescript_type"]

DEEPEST = 20
Schema = Mapping[str, Any]


def python_stub(name: str, schema: Schema, description: str) -> str:
    """The declaration of a function in Python."""
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = set(cast("list[str]", schema.get("required") or ()))
    names = sorted(properties, key=lambda one: one not in required)  # those with a default come last
    if not all(one.isidentifier() and not keyword.iskeyword(one) for one in names):
        parameters = "**input: Any"
    else:
        given = [
            f"{one}: {python_type(properties[one], schema)}{'' if one in required else ' = ...'}"
            for one in names
        ]
        if schema.get("additionalProperties", not properties) not in (False, None) and not properties:
            given.append("**input: Any")
        parameters = ", ".join(given)
    text = _comment(description, schema).replace("\\", "\\\\").replace('"""', "'''")
    return f'async def {name}({parameters}) -> Any:\n    """{text}"""\n    ...'


def typescript_stub(name: str, schema: Schema, description: str) -> str:
    """The same in TypeScript."""
    text = _comment(description, schema).replace("*/", "*\\/")
    return f"/** {text} */\n{name}(input: {typescript_type(schema, schema)}): Promise<any>;"


def _comment(description: str, schema: Schema) -> str:
    lines = [description.strip()]
    for name, one in cast("dict[str, Any]", schema.get("properties") or {}).items():
        told = cast("dict[str, Any]", one).get("description") if isinstance(one, dict) else None
        if isinstance(told, str):
            lines.append(f"{name}: {' '.join(told.split())}")
    return "\n    ".join(filter(None, lines))


def python_type(schema: Any, root: Schema, depth: int = 0) -> str:
    """The type of a value in Python."""
    found = _resolved(schema, root, depth)
    if found is None or depth >= DEEPEST:
        return "Any"
    if (literals := _literals(found)) is not None:
        plain = [one for one in literals if isinstance(one, str | int | bool | None)]
        return f"Literal[{', '.join(map(repr, plain))}]" if plain and len(plain) == len(literals) else "Any"
    if (choices := _choices(found)) is not None:
        return " | ".join(dict.fromkeys(python_type(one, root, depth + 1) for one in choices)) or "Any"
    match found.get("type"):
        case "string":
            return "str"
        case "integer":
            return "int"
        case "number":
            return "float"
        case "boolean":
            return "bool"
        case "null":
            return "None"
        case "array":
            items = found.get("items")
            # Not list: one of integers is no list of numbers for a checker of types.
            return f"Sequence[{python_type(items, root, depth + 1) if items else 'Any'}]"
        case "object":
            return "Mapping[str, Any]"
        case _:
            return "Any"


def typescript_type(schema: Any, root: Schema, depth: int = 0) -> str:
    """The type of a value in TypeScript."""
    if schema is False:
        return "never"
    found = _resolved(schema, root, depth)
    if found is None or depth >= DEEPEST:
        return "unknown"
    if (literals := _literals(found)) is not None:
        return " | ".join(json.dumps(one, ensure_ascii=False) for one in literals) or "never"
    if (choices := _choices(found)) is not None:
        return (
            " | ".join(dict.fromkeys(typescript_type(one, root, depth + 1) for one in choices)) or "unknown"
        )
    match found.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array":
            items = found.get("items")
            inner = typescript_type(items, root, depth + 1) if items is not None else "unknown"
            return f"({inner})[]" if " " in inner else f"{inner}[]"
        case "object":
            return _typescript_object(found, root, depth)
        case _:
            return "unknown"


def _typescript_object(schema: Schema, root: Schema, depth: int) -> str:
    properties = cast("dict[str, Any]", schema.get("properties") or {})
    required = set(cast("list[str]", schema.get("required") or ()))
    fields = [
        f"{name if name.isidentifier() else json.dumps(name)}{'' if name in required else '?'}:"
        f" {typescript_type(one, root, depth + 1)}"
        for name, one in properties.items()
    ]
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        fields.append(f"[key: string]: {typescript_type(cast('Any', more), root, depth + 1)}")
    elif not properties and more is not False:
        return "Record<string, unknown>"
    return "{" + "; ".join(fields) + "}"


def _resolved(schema: Any, root: Schema, depth: int) -> dict[str, Any] | None:
    """The schema behind references of this very document."""
    seen = 0
    while isinstance(schema, dict) and "$ref" in schema:
        reference, seen = str(cast("dict[str, Any]", schema)["$ref"]), seen + 1
        if not reference.startswith("#") or seen + depth > DEEPEST:
            return None
        schema = root
        for step in filter(None, reference.removeprefix("#").split("/")):
            name = step.replace("~1", "/").replace("~0", "~")
            schema = cast("Any", schema).get(name) if isinstance(schema, Mapping) else None
    return cast("dict[str, Any]", schema) if isinstance(schema, Mapping) else None


def _literals(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return cast("list[Any]", schema["enum"]) if isinstance(schema.get("enum"), list) else None


def _choices(schema: Schema) -> list[Any] | None:
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return cast("list[Any]", schema[key])
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return [{**schema, "type": kind} for kind in cast("list[Any]", kinds)]
    if schema.get("nullable") is True:
        return [{**schema, "nullable": False}, {"type": "null"}]
    return None
