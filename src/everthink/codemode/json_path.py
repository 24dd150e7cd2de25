"""Places in a JSON value: `users[0].name`.

    query --steps_of--> ("users", 0, "name") --value_at, with_value, without--> a value

Pure. Dots part names, `[0]` is a place in a list, `["a.b"]` a name with a dot in it. Nothing, or one dot, is
all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from .values import DEEPEST

__all__ = ["NoPlace", "steps_of", "value_at", "with_value", "without"]

_STEP = re.compile(r"""\.?([^.\[\]]+)|\[(\d{1,9})\]|\[("(?:[^"\\]|\\.)*")\]""")

_LONGEST = 4_000

Step = str | int


class NoPlace(ValueError):
    """A query that cannot be read, or leads through what holds nothing."""


def steps_of(query: str) -> tuple[Step, ...]:
    """What a query says, step by step."""
    if len(query) > _LONGEST:
        raise NoPlace(f"A place has {_LONGEST:,} characters at most, not {len(query):,}.")
    found: list[Step] = []
    at = 0
    while at < len(query) and query != ".":
        step = _STEP.match(query, at)
        if step is None:
            raise NoPlace(f"{query[:200]!r} cannot be read at {query[at:][:200]!r}: write users[0].name")
        name, index, quoted = step.groups()
        found.append(name if name is not None else int(index) if index is not None else json.loads(quoted))
        at = step.end()
    if len(found) > DEEPEST:
        raise NoPlace(f"A place has {DEEPEST} steps at most, not {len(found)}.")
    return tuple(found)


def value_at(value: Any, steps: Sequence[Step]) -> Any:
    """What is there; `None` when nothing is."""
    for step in steps:
        match value, step:
            case dict(), str():
                value = cast("dict[str, Any]", value).get(step)
            case list(), int():
                held = cast("list[Any]", value)
                value = held[step] if step < len(held) else None
            case _:
                return None
    return value


def with_value(value: Any, steps: Sequence[Step], new: Any) -> Any:
    """The value with something else at a place. What is missing on the way is made."""
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        held = _names(value, step)
        return {**held, step: with_value(held.get(step), rest, new)}
    items = _items(value, step)
    if step > len(items):
        raise NoPlace(
            f"[{step}] is beyond the end: the list has {len(items)} items, and the next is [{len(items)}]."
        )
    inner = with_value(items[step] if step < len(items) else None, rest, new)
    return [*items[:step], inner, *items[step + 1 :]]


def without(value: Any, steps: Sequence[Step]) -> Any:
    """The value without what is at a place; as it was when nothing is."""
    if not steps:
        raise NoPlace("All of it cannot be deleted: remove the file, or set it to null.")
    if value_at(value, steps[:-1]) is None:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, str):
        held = _names(value, step)
        if rest:
            return {**held, step: without(held[step], rest)}
        return {name: one for name, one in held.items() if name != step}
    items = _items(value, step)
    if rest:
        return [*items[:step], without(items[step], rest), *items[step + 1 :]]
    return [*items[:step], *items[step + 1 :]]


def _names(value: Any, step: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise NoPlace(f"{step!r} is a name, and there is {_kind(value)} and no object.")
    return cast("dict[str, Any]", value or {})


def _items(value: Any, step: int) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise NoPlace(f"[{step}] is a place in a list, and there is {_kind(value)} and no list.")
    return cast("list[Any]", value or [])


def _kind(value: Any) -> str:
    return (
        "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)[:40]
    )
