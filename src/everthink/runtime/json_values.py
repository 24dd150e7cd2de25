"""Refuse what is no JSON where it is given, with the path to it.

    set_state({"born": date(…)}) --check_json--> set_state: state['born'] is datetime.date(…), a date …

Encoders are kinder: they make texts of dates, lists of sets, dicts of objects, and the agent reads back
something else than it has written.
"""

from __future__ import annotations

import math
from typing import Any, cast

from ..errors import AgentError
from ..messages import DEEPEST
from ..settings import shown

__all__ = ["check_json"]


def check_json(value: Any, name: str, where: str) -> None:
    """Raise when `value` is not made of texts, numbers, booleans, `None`, lists and dicts."""
    if (found := _misfit(value, name, 0)) is not None:
        path, what = found
        raise AgentError(
            f"{where}: {path} is {what}, which JSON does not have.",
            kept="Nothing was changed.",
            next_step="Use text, numbers, True, False, None, lists, and dicts whose keys are text: of a time"
            " its isoformat(), of an object a dict.",
        )


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
