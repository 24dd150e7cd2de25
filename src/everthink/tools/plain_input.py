"""Typed arguments seen as JSON again, for whoever looks at a call before it runs.

    typed_input --arguments--> as_json --> needs_approval, before_tool_call

A predicate that compares an amount must see the amount that will be paid, not the text it came as.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from pydantic_core import to_jsonable_python

__all__ = ["as_json"]


def as_json(value: Any, given: Any = None) -> Any:
    """`value` as JSON. Where the model `given` a number and ours is written as text, it stays a number."""
    if isinstance(value, Decimal) and given is None:
        return int(value) if value == value.to_integral_value() else float(value)
    try:
        written = to_jsonable_python(value, by_alias=True, fallback=str)
    except ValueError:  # bytes that are no text, a value that holds itself
        written = str(value)
    return _with_numbers(written, given)


def _with_numbers(written: Any, given: Any) -> Any:
    if isinstance(written, str) and isinstance(given, int | float) and not isinstance(given, bool):
        return given
    if isinstance(written, dict) and isinstance(given, dict):
        known = cast("dict[str, Any]", given)
        members = cast("dict[str, Any]", written)
        return {key: _with_numbers(item, known.get(key)) for key, item in members.items()}
    if isinstance(written, list) and isinstance(given, list):
        items, others = cast("list[Any]", written), cast("list[Any]", given)
        if len(items) == len(others):
            return [_with_numbers(item, other) for item, other in zip(items, others, strict=True)]
    return cast("Any", written)
