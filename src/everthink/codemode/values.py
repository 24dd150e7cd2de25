"""Values of code in the log: JSON, with bytes in an envelope.

guest --packed--> tools, rows --unpacked--> guest
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, cast

from ..messages import decode_json, encode_json

__all__ = [
    "DEEPEST",
    "MOST",
    "binary",
    "cut",
    "data_of",
    "is_deep",
    "misfit",
    "packed",
    "shown_int",
    "text_of",
    "unpacked",
    "value_of",
]

MOST = 1_000_000
"""So many characters the input of a call, a result and the code itself may have."""
DEEPEST = 90
"""So many levels a value may be nested: a message has some of its own around it."""
LONGEST_INT = 13_200
"""Bits of the longest whole number that is written: nobody writes or reads one of more than 4,300 digits."""
_BYTES = "__bytes__"


def binary(data: bytes) -> dict[str, str]:
    """Bytes as JSON."""
    return {_BYTES: base64.b64encode(data).decode()}


def data_of(value: Any) -> bytes | None:
    """The bytes of a text or of an envelope."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(cast("dict[str, Any]", value)) == {_BYTES}:
        try:
            return base64.b64decode(str(cast("dict[str, Any]", value)[_BYTES]), validate=True)
        except binascii.Error:
            return None
    return None


def packed(value: Any) -> Any:
    """What a guest gave, as JSON."""
    match value:
        case bytes():
            return binary(value)
        case dict():
            return {key: packed(one) for key, one in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [packed(one) for one in cast("list[Any]", value)]
        case _:
            return value


def shown_int(value: Any) -> Any:
    """The same for a message: whole numbers beyond 64 bits are text there, of which nothing is lost."""
    match value:
        case dict():
            return {key: shown_int(one) for key, one in cast("dict[str, Any]", value).items()}
        case list():
            return [shown_int(one) for one in cast("list[Any]", value)]
        case int() if not -(1 << 63) <= value < 1 << 63:
            return str(value)
        case _:
            return value


def unpacked(value: Any) -> Any:
    """The same for a guest."""
    match value:
        case dict():
            given = cast("dict[str, Any]", value)
            data = data_of(given)
            return data if data is not None else {key: unpacked(one) for key, one in given.items()}
        case list():
            return [unpacked(one) for one in cast("list[Any]", value)]
        case _:
            return value


def misfit(value: Any) -> str | None:
    """Why a value does not fit into a row or a message; `None` when it does."""
    level = [value]
    for _ in range(DEEPEST):
        if any(isinstance(one, int) and one.bit_length() > LONGEST_INT for one in level):
            return "holds a whole number of more than 4,000 digits; make it text in parts, or less exact"
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return None
    return f"is nested more than {DEEPEST} levels deep; make it flatter"


def is_deep(value: Any) -> bool:
    """True when a value is nested deeper than a message or a row can hold."""
    return (misfit(value) or "").startswith("is nested")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []


def text_of(value: Any, *, is_sorted: bool = False) -> str:
    """JSON. With its keys sorted, equal values are equal texts."""
    return json.dumps(
        decode_json(encode_json(value)), sort_keys=is_sorted, ensure_ascii=False, separators=(",", ":")
    )


def value_of(text: str) -> Any:
    """What a text of the log holds."""
    return json.loads(text)


def cut(value: Any, most: int) -> Any:
    """The value itself when it is small, else the beginning of its text with a notice."""
    text = value if isinstance(value, str) else text_of(value)
    if len(text) <= most:
        return value
    return f"{text[:most]}\n--- TRUNCATED --- ({len(text):,} characters in all)"
