"""Structured output: a schema for the model, and the value parsed from its final text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec

from ..errors import StructuredOutputError
from .port import OutputSchema

__all__ = ["Structured", "structured"]


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
                f"Structured output error: the model's answer does not fit {self.schema.name!r}: {error}",
                kept="The answer is stored as it came.",
            ) from error


def structured(output: Any) -> Structured | None:
    """Read `TurnConfig.output`: a type pydantic understands, a JSON schema, or a schema value."""
    if output is None:
        return None
    if isinstance(output, Structured):
        return output
    if isinstance(output, OutputSchema):
        return Structured(output, msgspec.json.decode)
    if isinstance(output, Mapping):
        schema = dict(cast("Mapping[str, Any]", output))
        return Structured(OutputSchema(schema, name=str(schema.get("title", "result"))), msgspec.json.decode)
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(output)
    name = getattr(output, "__name__", None) or "result"
    return Structured(OutputSchema(adapter.json_schema(), name=name), adapter.validate_json)


def _unfenced(text: str) -> str:
    """The JSON inside a Markdown fence, which some models cannot resist."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 : -3].strip()
    return stripped
