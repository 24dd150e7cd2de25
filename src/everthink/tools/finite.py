"""Numbers that are none: NaN and the infinities, wherever they stand in a tool's input.

    typed_input, json_input --> non_finite --> what the model is told

No JSON holds them, but text may become one (`"nan"`), types of an application's own may allow them, and
nothing compares with them as with an amount: `nan > 100` is false. So they are refused everywhere.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, cast

from .explain import path_text

__all__ = ["non_finite"]


_PLAIN = frozenset({str, int, bool, type(None)})


def non_finite(value: Any, path: tuple[str | int, ...] = (), above: tuple[int, ...] = ()) -> Iterator[str]:
    """Where in `value` there is NaN or an infinity."""
    if _is_fine(value):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            yield path_text(path)
        return
    if id(value) in above:
        return  # it holds itself
    for key, item in _inside(value):
        if not _is_fine(item):
            yield from non_finite(item, (*path, key), (*above, id(value)))


def _is_fine(value: Any) -> bool:
    """Whether it is seen at once that there is none: code gives a hundred thousand small lists at a time."""
    kind = cast("Any", type(value))
    if kind is list:
        return _PLAIN.issuperset(map(type, value))
    if kind is dict:
        return _PLAIN.issuperset(map(type, value.values()))
    return kind in _PLAIN


def _inside(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return ((str(key), item) for key, item in members.items())
    if isinstance(value, (list, tuple, Set)) and not isinstance(value, str):
        return enumerate(cast("list[Any]", value))
    if hasattr(cast("Any", type(value)), "__pydantic_fields__"):
        return vars(value).items()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((one.name, getattr(value, one.name, None)) for one in dataclasses.fields(value))
    return ()
