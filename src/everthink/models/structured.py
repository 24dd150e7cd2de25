"""Structured output: a schema for the model, and the value parsed from its final text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..errors import InvalidSettings, StructuredOutputError
from ..settings import nearest, shown
from .port import OutputSchema

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["Structured", "adapted", "check_schema", "structured"]

TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


class Structured:
    """What `TurnConfig.output` asks for."""

    def __init__(self, schema: OutputSchema, parse: Callable[[str], Any]) -> None:
        self.schema, self._parse = schema, parse

    def parse(self, text: str) -> Any:
        """The value in `text`. Raises `StructuredOutputError`."""
        try:
            return self._parse(_unfenced(text))
        except (ValueError, msgspec.MsgspecError) as error:
            raise StructuredOutputError(
                f"Structured output error: the model's answer does not fit {self.schema.name!r}:"
                f" {_in_words(error)}",
                kept="The answer is stored as it came.",
            ) from error


def structured(output: Any, where: str = "TurnConfig") -> Structured | None:
    """Read an `output`: a type pydantic understands, a JSON schema, or a schema value. `where` it is given.

    Raises `InvalidSettings` for what is none.
    """
    if output is None:
        return None
    if isinstance(output, Structured):
        return output
    if isinstance(output, OutputSchema):
        return Structured(output, msgspec.json.decode)
    if isinstance(output, Mapping):
        schema = dict(cast("Mapping[str, Any]", output))
        check_schema(schema, f"{where}: output")
        return Structured(OutputSchema(schema, name=str(schema.get("title", "result"))), msgspec.json.decode)
    adapter, schema = adapted(output, f"{where}: output")
    name = getattr(output, "__name__", None) or "result"
    return Structured(OutputSchema(schema, name=name), adapter.validate_json)


def adapted(given: Any, what: str) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """What reads values of a type, and its JSON schema. `what` was given it: for the words of the error."""
    from pydantic import TypeAdapter

    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        raise InvalidSettings(
            f"{what} is an instance of {type(given).__name__}.",
            next_step=f"Give the class, not an instance: {type(given).__name__}.",
        )
    try:
        if isinstance(given, str):
            raise TypeError("a text names no type")
        adapter: TypeAdapter[Any] = TypeAdapter(given)
        return adapter, adapter.json_schema()
    except Exception as error:
        called = f"the class {given.__name__}" if isinstance(given, type) else shown(given)
        raise InvalidSettings(
            f"{what} is {called}, of which no schema can be made.",
            next_step="It takes the class of a dataclass, TypedDict or pydantic model, or a JSON schema.",
        ) from error


def check_schema(schema: Mapping[str, Any], what: str) -> None:
    """Refuse a JSON schema with a type that JSON does not have."""
    found: Any = schema.get("type")
    for one in cast("list[Any]", found) if isinstance(found, list) else [found]:
        if one is not None and one not in TYPES:
            near = nearest(str(one), TYPES)
            meant = f"Did you mean {near!r}? " if near else ""
            raise InvalidSettings(
                f"{what} is a JSON schema with the type {one!r}, which JSON does not have.",
                next_step=f"{meant}There are {', '.join(sorted(TYPES))}.",
            )
    inside: Any = schema.get("properties")
    below = list(cast("dict[str, Any]", inside).values()) if isinstance(inside, dict) else []
    for one in (*below, schema.get("items")):
        if isinstance(one, Mapping):
            check_schema(cast("Mapping[str, Any]", one), what)


def _in_words(error: Exception) -> str:
    """What does not fit, in one sentence."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return str(error)
    found = cast("list[dict[str, Any]]", cast("Any", listed)(include_url=False, include_context=False))
    places = [".".join(map(str, one["loc"])) for one in found]
    return "; ".join(
        f"{place}: {one['msg']}" if place else str(one["msg"])
        for place, one in zip(places, found, strict=True)
    )


def _unfenced(text: str) -> str:
    """The JSON inside a Markdown fence, which some models cannot resist."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 : -3].strip()
    return stripped
