"""The bounds of schemas that a stranger wrote. They are data: looked at once, never run.

    a browser's tools --schemas--> SchemaBounds --> JsonInput, the provider

Whoever reads a schema later (our check of the model's input, a provider's library that writes every
reference out) works within these bounds, because one that is larger is refused here. The walk itself stops
at the first bound, so hostile schemas cost no more to refuse than honest ones to take.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NoReturn, cast

from ..errors import ToolDefinitionError

__all__ = [
    "MAX_CHOICES",
    "MAX_DEPTH",
    "MAX_NODES",
    "MAX_REFERENCE",
    "MAX_SIZE",
    "MAX_VALUES",
    "MAX_WRITTEN_OUT",
    "SchemaBounds",
    "resolve",
]

MAX_NODES = 5_000
"""Keys and values of the schemas of one declaration."""
MAX_WRITTEN_OUT = 10_000
"""Schemas in them, when each reference stands for what it means, as some providers want them."""
MAX_REFERENCE = 256
"""Characters of a reference that is followed."""
MAX_DEPTH = 32
"""Levels of a schema, references followed."""
MAX_CHOICES = 64
"""Entries of one `anyOf`, `oneOf` or `allOf`."""
MAX_VALUES = 500
"""Entries of one `enum`, `required` or `type`."""
MAX_SIZE = 1_000_000
"""The largest `minLength`, `maxItems` and the like: somebody may want to write such a value."""

Kind = Literal["choices", "named", "schema", "items", "names", "type", "values", "size", "reference"]
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), "choices"),
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), "named"),
    **dict.fromkeys(
        ("additionalProperties", "additionalItems", "not", "contains", "propertyNames"), "schema"
    ),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems", "if", "then", "else"), "schema"),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), "size"),
    **dict.fromkeys(("minProperties", "maxProperties"), "size"),
    "items": "items",
    "required": "names",
    "type": "type",
    "enum": "values",
    "$ref": "reference",
}


class SchemaBounds:
    """One look at the schemas of one declaration, which share the bounds."""

    def __init__(self) -> None:
        self._nodes = self._written_out = 0
        self._tool, self._root = "", dict[str, Any]()

    def check(self, tool: str, schema: dict[str, Any]) -> None:
        """Raise `ToolDefinitionError` with the bound when `schema` is none, or too complex."""
        self._tool, self._root = tool[:64], schema
        self._count(schema)
        self._look(schema, frozenset(), 0)

    def _count(self, schema: dict[str, Any]) -> None:
        """Everything in it, whether it is a schema or not."""
        waiting: list[Any] = [schema]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                waiting += cast("dict[str, Any]", node).values()
            elif isinstance(node, list):
                waiting += cast("list[Any]", node)
            self._nodes += 1
            if self._nodes + len(waiting) > MAX_NODES:
                self._refuse(f"it has, with those before it, more than {MAX_NODES:,} keys and values")

    def _look(self, schema: Any, within: frozenset[str], depth: int) -> None:
        """A schema and those in it. `within`: the references that are being followed."""
        if isinstance(schema, bool):
            return
        if not isinstance(schema, dict):
            self._refuse(f"a {type(schema).__name__} stands where a schema belongs")
        self._written_out += 1
        if self._written_out > MAX_WRITTEN_OUT:
            self._refuse(f"with its references written out it has more than {MAX_WRITTEN_OUT:,} schemas")
        if depth > MAX_DEPTH:
            self._refuse(f"it is more than {MAX_DEPTH} levels deep")
        for key, value in cast("dict[str, Any]", schema).items():
            match _KINDS.get(key):
                case None:
                    pass
                case "reference":
                    self._follow(value, within, depth)
                case "schema":
                    self._look(value, within, depth + 1)
                case "items" if not isinstance(value, list):
                    self._look(value, within, depth + 1)
                case "choices" | "items":
                    self._each(self._list(key, value, MAX_CHOICES), within, depth)
                case "named":
                    self._each(self._object(key, value).values(), within, depth)
                case _ as kind:
                    self._plain(kind, key, value)

    def _each(self, schemas: Iterable[Any], within: frozenset[str], depth: int) -> None:
        for schema in schemas:
            self._look(schema, within, depth + 1)

    def _follow(self, reference: Any, within: frozenset[str], depth: int) -> None:
        if not isinstance(reference, str) or len(reference) > MAX_REFERENCE:
            self._refuse(f"a $ref is not text of at most {MAX_REFERENCE} characters")
        if reference in within:
            return  # it contains itself: a library stops here as well
        found = resolve(reference, self._root)
        if found is None:
            self._refuse(f"its reference {reference[:60]!r} leads nowhere")
        self._look(found, within | {reference}, depth + 1)

    def _plain(self, kind: Kind, key: str, value: Any) -> None:
        """A rule without schemas in it."""
        if kind == "size":
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SIZE:
                self._refuse(f"its {key!r} is not a number from 0 to {MAX_SIZE:,}")
        elif kind != "type" or not isinstance(value, str):
            entries = self._list(key, value, MAX_VALUES)
            if kind != "values" and not all(isinstance(entry, str) for entry in entries):
                self._refuse(f"its {key!r} holds something that is not text")

    def _list(self, key: str, value: Any, most: int) -> list[Any]:
        if not isinstance(value, list):
            self._refuse(f"its {key!r} is not a list")
        entries = cast("list[Any]", value)
        if len(entries) > most:
            self._refuse(f"its {key!r} has {len(entries):,} entries, more than {most}")
        return entries

    def _object(self, key: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(f"its {key!r} is not an object")
        return cast("dict[str, Any]", value)

    def _refuse(self, why: str) -> NoReturn:
        raise ToolDefinitionError(
            f"The schema of tool {self._tool!r} cannot be used: {why}.",
            kept="No tool was taken.",
            next_step="Describe a simpler input, and let the tool itself check the rest.",
        )


def resolve(reference: Any, root: Any) -> Any:
    """What `reference` points to within `root`, `None` when that is nothing."""
    if not isinstance(reference, str) or len(reference) > MAX_REFERENCE or not reference.startswith("#"):
        return None
    node = root
    for step in reference[1:].split("/")[1:]:
        if not isinstance(node, dict):
            return None
        node = cast("dict[str, Any]", node).get(step.replace("~1", "/").replace("~0", "~"))
    return node
