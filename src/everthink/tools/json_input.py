"""Input of tools that come with a JSON schema instead of a Python signature.

    browser, MCP server, extension --schema--> JsonInput --> the input, looked over

A light check, not a JSON Schema validator: types, required fields, enums, what is inside of
them. What it does not know it lets pass, because the owner of the tool checks again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from .explain import describe, misfit, not_an_object, path_text

__all__ = ["JsonInput", "misfits"]

_DEEPEST = 64


class JsonInput:
    """Input described by a JSON schema. The body gets the input itself."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def arguments(self, tool: str, value: Any) -> dict[str, Any]:
        """The input, if it fits."""
        given: Any = {} if value is None else value
        if not isinstance(given, dict):
            raise not_an_object(tool, given)
        problems = list(misfits(given, self.schema))
        if problems:
            raise misfit(tool, problems)
        return cast("dict[str, Any]", given)


def misfits(value: Any, schema: Any) -> Iterator[str]:
    """What about `value` contradicts `schema`, one sentence each."""
    yield from _look(value, schema, schema, [], 0)


def _look(value: Any, schema: Any, root: Any, path: list[str | int], depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return
    rules = cast("dict[str, Any]", schema)
    where = path_text(path) or "the input"
    if "$ref" in rules:
        yield from _look(value, _follow(rules["$ref"], root), root, path, depth + 1)
    for choices in (rules.get("anyOf"), rules.get("oneOf")):
        if isinstance(choices, list) and choices:
            yield from _look_at_choices(value, cast("list[Any]", choices), root, path, depth)
    for part in _list(rules.get("allOf")):
        yield from _look(value, part, root, path, depth + 1)
    if not _is_of_type(value, rules.get("type")):
        yield f"{where} should be {_type_text(rules['type'])} (got {describe(value)})"
        return
    if isinstance(rules.get("enum"), list) and not _is_among(value, rules["enum"]):
        yield f"{where} should be one of {_values(rules['enum'])} (got {describe(value)})"
    if "const" in rules and not _is_among(value, [rules["const"]]):
        yield f"{where} should be {_values([rules['const']])} (got {describe(value)})"
    if isinstance(value, dict):
        yield from _look_into_object(cast("dict[str, Any]", value), rules, root, path, depth)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from _look(item, rules.get("items"), root, [*path, index], depth + 1)


def _look_into_object(
    value: dict[str, Any], rules: dict[str, Any], root: Any, path: list[str | int], depth: int
) -> Iterator[str]:
    found = rules.get("properties")
    properties = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    for name in _list(rules.get("required")):
        if isinstance(name, str) and name not in value:
            yield f"{path_text([*path, name])} is required but missing"
    rest = rules.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from _look(item, properties[key], root, [*path, key], depth + 1)
        elif rest is False and "patternProperties" not in rules:
            known = f"; it takes {', '.join(properties)}" if properties else ""
            yield f"{path_text([*path, key])} is not a known field{known}"
        else:
            yield from _look(item, rest, root, [*path, key], depth + 1)


def _look_at_choices(
    value: Any, choices: list[Any], root: Any, path: list[str | int], depth: int
) -> Iterator[str]:
    closest: list[str] | None = None
    for choice in choices:
        problems = list(_look(value, choice, root, path, depth + 1))
        if not problems:
            return
        if closest is None or len(problems) < len(closest):
            closest = problems
    yield from closest or ()


def _follow(ref: Any, root: Any) -> Any:
    if not isinstance(ref, str) or not ref.startswith("#"):
        return None
    node = root
    for step in ref[1:].split("/")[1:]:
        if not isinstance(node, dict):
            return None
        node = cast("dict[str, Any]", node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def _is_of_type(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return any(_is_of_type(value, one) for one in cast("list[Any]", wanted)) or not wanted
    match wanted:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "integer":
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return is_number and (isinstance(value, int) or value.is_integer())
        case _:
            return True


def _is_among(value: Any, choices: Any) -> bool:
    # In Python True == 1; in JSON they differ.
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in _list(choices))


def _type_text(wanted: Any) -> str:
    if isinstance(wanted, list):
        return " or ".join(_type_text(one) for one in cast("list[Any]", wanted))
    words = {"object": "an object", "array": "a list", "string": "text", "integer": "a whole number"}
    return words.get(wanted, "null" if wanted == "null" else f"a {wanted}")


def _values(values: Any) -> str:
    return ", ".join(describe(value) for value in _list(values)[:20])


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
