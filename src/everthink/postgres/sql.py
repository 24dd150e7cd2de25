"""Our SQL as PostgreSQL wants it: numbered parameters that say their type.

    "… WHERE agent = ? AND seq > ?"  -->  "… WHERE agent = $1::text AND seq > $2::bigint"

Pure. The cast comes from the Python value, because PostgreSQL guesses where SQLite looks: a bare
`SELECT ?` would be text and `? > 0` a 32-bit integer. None becomes NULL in the text, which fits any type.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..errors import StoreError
from ..store.error_texts import shortened
from ..store.marks import QUOTED

__all__ = ["Kinds", "elements", "kinds_of", "numbered", "present", "returns_rows", "subscripted"]

Kinds = tuple[type[object], ...]

_TYPES: dict[type[object], str] = {str: "text", int: "bigint", bool: "bigint", float: "double precision"}

_QUOTED_OR_MARK = re.compile(rf"{QUOTED}|\?", re.DOTALL)


def kinds_of(params: tuple[Any, ...]) -> Kinds:
    """The types of `params` (as `storable` leaves them)."""
    return tuple(map(type, params))


def present(params: tuple[Any, ...]) -> list[Any]:
    """The parameters to send along with `numbered` SQL: those that are not NULL."""
    return [int(value) if value is True or value is False else value for value in params if value is not None]


def elements(params: tuple[Any, ...]) -> list[str]:
    """The parameters to send along with `subscripted` SQL, as text."""
    return [value if isinstance(value, str) else repr(value) for value in present(params)]


@lru_cache(maxsize=4096)
def numbered(sql: str, kinds: Kinds) -> str:
    """`sql` for the wire: `$1::text`, `$2::bigint`, …"""
    return _filled(sql, kinds, lambda number: f"${number}")


@lru_cache(maxsize=4096)
def subscripted(sql: str, kinds: Kinds) -> str:
    """`sql` for a function whose `$1` is an array and whose `$2` says where our parameters begin in it."""
    return _filled(sql, kinds, lambda number: f"($1)[$2 + {number}]")


@lru_cache(maxsize=4096)
def returns_rows(sql: str) -> bool:
    """True for a query and for anything with RETURNING."""
    words = re.findall(r"\w+", _QUOTED_OR_MARK.sub(" ", sql).upper())
    if "RETURNING" in words or words[:1] in (["SELECT"], ["VALUES"]):
        return True
    return words[:1] == ["WITH"] and not {"INSERT", "UPDATE", "DELETE"} & set(words)


def _filled(sql: str, kinds: Kinds, place: Callable[[int], str]) -> str:
    used = numbers = 0

    def fill(match: re.Match[str]) -> str:
        nonlocal used, numbers
        if match[0] != "?":
            return match[0]
        used += 1
        kind = kinds[used - 1] if used <= len(kinds) else type(None)
        if kind is type(None):
            return "NULL"
        numbers += 1
        return f"{place(numbers)}::{_TYPES[kind]}"

    text = _QUOTED_OR_MARK.sub(fill, sql)
    if used != len(kinds):
        raise StoreError(
            f"A statement has {used} placeholders and {len(kinds)} parameters: {shortened(sql)}",
            kept="Nothing of its commit was written.",
            next_step="Give it one parameter for each `?`.",
        )
    return text
