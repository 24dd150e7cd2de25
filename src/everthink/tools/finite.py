"""Numbers that are none: NaN and the infinities, wherever they stand in a tool's input.

    typed_input, json_input --> non_finite --> what the model is told

No JSON holds them, but text may become one (`"nan"`), types of an application's own may allow them, and
nothing compares with them as with an amount: `nan > 100` is false. So they are refused everywhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Set
from typing import Any, cast

from .explain import path_text

__all__ = ["non_finite"]


_PLAIN = (str, int, bool, type(None))


def non_finite(value: Any, path: tuple[str | int, ...] = (), above: tuple[int, ...] = ()) -> Iterator[str]:
    """Where in `value` there is NaN or an infinity."""
    if type(value) in _PLAIN:
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path_text(path)
        return
    if id(value) in above:
        return  # it holds itself
    for key, item in _inside(value):
        yield from non_finite(item, (*path, key), (*above, id(value)))


def _inside(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        yield from ((str(key), item) for key, item in members.items())
    elif isinstance(value, (list, tuple, Set)) and not isinstance(value, str):
        yield from enumerate(cast("list[Any]", value))
    elif hasattr(cast("Any", type(value)), "__pydantic_fields__"):
        yield from vars(value).items()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((one.name, getattr(value, one.name, None)) for one in dataclasses.fields(value))
