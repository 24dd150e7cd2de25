"""Input of tools that come with a JSON schema instead of a Python signature.

    browser, MCP server, extension --schema--> JsonInput --> the input, looked over

A light check, not a JSON Schema validator: types, required fields, enums, what is inside of
them. What it does not know it lets pass, because the owner of the tool checks again: patterns and
formats are never run. The look has a number of steps; input that needs more is refused, so that
no choice of choices of references takes longer than a large honest input.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from .bounds import resolve
from .explain import describe, misfit, not_an_object, path_text
from .finite import non_finite

__all__ = ["MAX_STEPS", "JsonInput", "misfits"]

MAX_STEPS = 20_000
"""Comparisons of a value with a schema, about 40 ms of them."""

_DEEPEST = 64
_MOST = 20  # problems that are worth counting
_TOO_COMPLEX = "the input is too complex to check against the schema; send less at once"


class JsonInput:
    """Input described by a JSON schema. The body gets the input itself."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    @property
    def names(self) -> list[str] | None:
        """The names of its properties. `None`: it names none."""
        properties = self.schema.get("properties")
        return list(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else None

    def arguments(self, tool: str, value: Any) -> dict[str, Any]:
        """The input, if it fits."""
        given: Any = {} if value is None else value
        if not isinstance(given, dict):
            raise not_an_object(tool, given)
        problems = list(misfits(given, self.schema))
        problems += [f"{where} should be a finite number" for where in non_finite(given)]
        if problems:
            raise misfit(tool, problems)
        return cast("dict[str, Any]", given)


def misfits(value: Any, schema: Any) -> Iterator[str]:
    """What about `value` contradicts `schema`, one sentence each."""
    yield from _Look(schema).problems(value)


class _TooComplex(Exception):
    """The steps are used up."""


Path = tuple[str | int, ...]


class _Look:
    """One look at a value."""

    def __init__(self, root: Any) -> None:
        self._root, self.left = root, MAX_STEPS
        self._behind: dict[str, Any] = {}

    def problems(self, value: Any) -> list[str]:
        found: list[str] = []
        try:
            self._look(value, self._root, (), 0, found)
        except _TooComplex:
            return [_TOO_COMPLEX]
        return found

    def _spend(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise _TooComplex

    def _look(self, value: Any, schema: Any, path: Path, depth: int, found: list[str]) -> None:
        self._spend()
        if not isinstance(schema, dict) or depth > _DEEPEST or len(found) >= _MOST:
            return
        rules = cast("dict[str, Any]", schema)
        if "$ref" in rules:
            self._look(value, self._follow(rules["$ref"]), path, depth + 1, found)
        for choices in (rules.get("anyOf"), rules.get("oneOf")):
            if isinstance(choices, list) and choices:
                self._look_at_choices(value, cast("list[Any]", choices), path, depth, found)
        for part in _list(rules.get("allOf")):
            self._look(value, part, path, depth + 1, found)
        if not self._is_of_type(value, rules.get("type")):
            found.append(f"{_where(path)} should be {_type_text(rules['type'])} (got {describe(value)})")
            return
        if isinstance(rules.get("enum"), list) and not self._is_among(value, rules["enum"]):
            found.append(f"{_where(path)} should be one of {_values(rules['enum'])} (got {describe(value)})")
        if "const" in rules and not self._is_among(value, [rules["const"]]):
            found.append(f"{_where(path)} should be {_values([rules['const']])} (got {describe(value)})")
        if (why := _out_of_bounds(value, rules)) is not None:
            found.append(f"{_where(path)} should {why}")
        if isinstance(value, dict):
            self._look_into_object(cast("dict[str, Any]", value), rules, path, depth, found)
        elif isinstance(value, list) and "items" in rules:
            for index, item in enumerate(cast("list[Any]", value)):
                self._look(item, rules["items"], (*path, index), depth + 1, found)

    def _look_into_object(
        self, value: dict[str, Any], rules: dict[str, Any], path: Path, depth: int, found: list[str]
    ) -> None:
        named = rules.get("properties")
        properties = cast("dict[str, Any]", named) if isinstance(named, dict) else {}
        required = _list(rules.get("required"))
        self._spend(len(required))
        for name in required:
            if isinstance(name, str) and name not in value and len(found) < _MOST:
                found.append(f"{path_text((*path, name))} is required but missing")
        rest = rules.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                self._look(item, properties[key], (*path, key), depth + 1, found)
            elif rest is False and "patternProperties" not in rules:
                if len(found) < _MOST:
                    found.append(f"{path_text((*path, key))} is not a known field{_known(properties)}")
            else:
                self._look(item, rest, (*path, key), depth + 1, found)

    def _look_at_choices(
        self, value: Any, choices: list[Any], path: Path, depth: int, found: list[str]
    ) -> None:
        closest: list[str] | None = None
        for choice in choices:
            problems: list[str] = []
            self._look(value, choice, path, depth + 1, problems)
            if not problems:
                return
            if closest is None or len(problems) < len(closest):
                closest = problems
        found += closest or ()

    def _follow(self, reference: Any) -> Any:
        if not isinstance(reference, str):
            return None
        if reference not in self._behind:
            self._behind[reference] = resolve(reference, self._root)
        return self._behind[reference]

    def _is_of_type(self, value: Any, wanted: Any) -> bool:
        if isinstance(wanted, list):
            self._spend(len(cast("list[Any]", wanted)))
            return any(_is_one(value, one) for one in cast("list[Any]", wanted)) or not wanted
        return _is_one(value, wanted)

    def _is_among(self, value: Any, choices: Any) -> bool:
        entries = _list(choices)
        self._spend(len(entries))
        # In Python True == 1; in JSON they differ.
        return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in entries)


def _is_one(value: Any, wanted: Any) -> bool:
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


def _out_of_bounds(value: Any, rules: dict[str, Any]) -> str | None:
    """What a number, a text or a list should be that is out of its bounds; `None` when it is not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, list)):
        return None
    if isinstance(value, (int, float)):
        names, size, verb, of = ("minimum", "maximum"), value, "be", ""
        for name, word in (("exclusiveMinimum", "above"), ("exclusiveMaximum", "below")):
            bound = _bound(rules.get(name))
            if bound is not None and (value <= bound if word == "above" else value >= bound):
                return f"be {word} {bound:g} (got {describe(value)})"
    elif isinstance(value, str):
        names, size, verb, of = ("minLength", "maxLength"), len(value), "have", " characters"
    else:
        names, size, verb, of = ("minItems", "maxItems"), len(cast("list[Any]", value)), "have", " entries"
    least, most = (_bound(rules.get(name)) for name in names)
    if least is not None and size < least:
        return f"{verb} at least {least:g}{of} (got {describe(value)})"
    if most is not None and size > most:
        return f"{verb} at most {most:g}{of} (got {describe(value)})"
    return None


def _bound(value: Any) -> int | float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _where(path: Path) -> str:
    return path_text(path) or "the input"


def _known(properties: dict[str, Any]) -> str:
    if not properties:
        return ""
    more = ", …" if len(properties) > _MOST else ""
    return f"; it takes {', '.join(islice(properties, _MOST))}{more}"


def _type_text(wanted: Any) -> str:
    if isinstance(wanted, list):
        return " or ".join(_type_text(one) for one in cast("list[Any]", wanted)[:_MOST])
    words = {"object": "an object", "array": "a list", "string": "text", "integer": "a whole number"}
    return words.get(wanted, "null" if wanted == "null" else f"a {wanted}")


def _values(values: Any) -> str:
    return ", ".join(describe(value) for value in _list(values)[:_MOST])


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
