"""Refuse what is no JSON where it is given, with the path to it; and give the rest as it will be read back.

    set_state({"born": date(…)}) --check_json--> set_state: state['born'] is datetime.date(…), a date …
    set_state({"at": (1, 2)})    --plain_json--> {"at": [1, 2]}, now as after a restart

Encoders are kinder: they make texts of dates, lists of sets, dicts of objects, and the agent reads back
something else than it has written.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec

from .errors import NotJson
from .messages import (
    DEEPEST,
    bounded_json,
    decode_json,
)
from .settings import shown, with_article

__all__ = ["NO_STATE", "check_json", "check_payload", "check_sent", "plain_json", "without_objects"]

NO_STATE: Any = msgspec.UNSET
"""In the place of a state: there is none."""
_WRITTEN_AS_TEXT = (date, time, timedelta, UUID, Decimal, Enum)
"""What a payload may hold besides JSON: a callback gets its text."""


def plain_json(value: Any, name: str, where: str = "") -> Any:
    """A copy of `value` as it comes back from the database. Raises when it is no JSON."""
    check_json(value, name, where)
    return decode_json(bounded_json(value))


def check_json(value: Any, name: str, where: str = "") -> None:
    """Raise when `value` is not made of texts, numbers, booleans, `None`, lists and dicts."""
    _check(value, name, where, ())


def check_payload(value: Any, name: str = "payload", where: str = "") -> None:
    """Raise when `value` would come to a callback as something else: a set, a number as a key."""
    _check(without_objects(value), name, where, _WRITTEN_AS_TEXT)


def check_sent(value: Any, name: str, where: str) -> None:
    """The same for what is told to somebody else, who reads where it is wrong and not what it holds."""
    found = _misfit(without_objects(value), name, 0, _WRITTEN_AS_TEXT)
    if found is not None:
        raise NotJson(
            f"{where}: {found.path} is {found.kind}, which JSON does not have.",
            next_step="Return text, numbers, True, False, None, lists, and dicts whose keys are text.",
        )


def _check(value: Any, name: str, where: str, besides: tuple[type, ...]) -> None:
    if (found := _misfit(value, name, 0, besides)) is not None:
        raise NotJson(
            f"{where and f'{where}: '}{found.path} is {found.what}, which JSON does not have.",
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
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {written: without_objects(getattr(value, name)) for written, name in names}
    if isinstance(value, dict):
        return {key: without_objects(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [without_objects(one) for one in cast("list[Any]", value)]
    return value


class _Misfit(NamedTuple):
    path: str
    what: str
    kind: str


def _misfit(value: Any, path: str, depth: int, besides: tuple[type, ...]) -> _Misfit | None:
    """The first thing that is no JSON, and none of `besides`: where, and what."""
    if value is None or isinstance(value, (str, bool, int, *besides)):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else _Misfit(path, repr(value), repr(value))
    if depth > DEEPEST:
        return None  # whoever writes it says so
    if isinstance(value, list | tuple):
        inside = ((f"{path}[{place}]", item) for place, item in enumerate(cast("list[Any]", value)))
    elif isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        for key in entries:
            if not isinstance(key, str):
                return _Misfit(f"a key of {path}", shown(key), with_article(type(key).__name__))
        inside = ((f"{path}[{key!r}]", item) for key, item in entries.items())
    else:
        return _Misfit(path, shown(value), with_article(type(value).__name__))
    return next(
        (found for where, item in inside if (found := _misfit(item, where, depth + 1, besides))), None
    )
