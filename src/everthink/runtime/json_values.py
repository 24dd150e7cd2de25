"""Refuse what is no JSON where it is given, with the path to it; and give the rest as it will be read back.

    set_state({"born": date(…)}) --check_json--> set_state: state['born'] is datetime.date(…), a date …
    set_state({"at": (1, 2)})    --plain_json--> {"at": [1, 2]}, now as after a restart

Encoders are kinder: they make texts of dates, lists of sets, dicts of objects, and the agent reads back
something else than it has written.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, cast

import msgspec

from ..errors import NotJson
from ..messages import DEEPEST, bounded_json, decode_json
from ..settings import shown

__all__ = ["check_json", "plain_json", "without_objects"]


def plain_json(value: Any, name: str, where: str = "") -> Any:
    """A copy of `value` as it comes back from the database. Raises when it is no JSON."""
    check_json(value, name, where)
    return decode_json(bounded_json(value))


def check_json(value: Any, name: str, where: str = "") -> None:
    """Raise when `value` is not made of texts, numbers, booleans, `None`, lists and dicts."""
    if (found := _misfit(value, name, 0)) is not None:
        path, what = found
        raise NotJson(
            f"{where and f'{where}: '}{path} is {what}, which JSON does not have.",
            kept="Nothing was changed.",
            next_step="Use text, numbers, True, False, None, lists, and dicts whose keys are text: of a time"
            " its isoformat(), of an object a dict.",
        )


def without_objects(value: Any) -> Any:
    """`value` with a dict in the place of each dataclass and each `msgspec.Struct`."""
    if isinstance(value, type):
        return cast("Any", value)
    if is_dataclass(value):
        return {field.name: without_objects(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, msgspec.Struct):
        return {name: without_objects(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: without_objects(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [without_objects(one) for one in cast("list[Any]", value)]
    return value


def _misfit(value: Any, path: str, depth: int) -> tuple[str, str] | None:
    """The first thing that is no JSON: where, and what."""
    if value is None or isinstance(value, str | bool | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else (path, repr(value))
    if depth > DEEPEST:
        return None  # whoever writes it says so
    if isinstance(value, list | tuple):
        inside = ((f"{path}[{place}]", item) for place, item in enumerate(cast("list[Any]", value)))
    elif isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        for key in entries:
            if not isinstance(key, str):
                return f"a key of {path}", shown(key)
        inside = ((f"{path}[{key!r}]", item) for key, item in entries.items())
    else:
        return path, shown(value)
    return next((found for where, item in inside if (found := _misfit(item, where, depth + 1))), None)
