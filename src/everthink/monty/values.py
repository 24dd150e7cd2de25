"""Values on their way between us and a guest: JSON, and bytes.

host --to_guest--> Monty --from_guest--> host
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["from_guest", "to_guest"]

DEEPEST = 100


def to_guest(value: Any) -> Any:
    """A value of ours as a guest gets it; what it cannot have is text."""
    return _plain(value, 0)


def from_guest(value: Any) -> Any:
    """A value of a guest: what is no JSON is written as text, tuples and sets as lists."""
    return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        return "…"
    match value:
        case None | bool() | int() | str() | bytes():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytearray() | memoryview():
            return bytes(cast("bytes", value))
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {key if isinstance(key, str) else str(key): _plain(one, depth + 1) for key, one in items}
        case set() | frozenset():
            return [_plain(one, depth + 1) for one in cast("set[Any]", value)]
        case Sequence():
            return [_plain(one, depth + 1) for one in cast("Sequence[Any]", value)]
        case _:
            attributes: Any = getattr(value, "attributes", None)
            return _plain(attributes, depth + 1) if isinstance(attributes, Mapping) else str(value)
