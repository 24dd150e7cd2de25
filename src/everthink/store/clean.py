"""Make a parameter mean the same on every engine.

    Statement.params --> storable --> the driver

PostgreSQL cannot keep the character U+0000 and neither engine can encode half a surrogate pair.
A model may stream either, and a stray character must not cost a whole turn, so both become
U+FFFD, the replacement character, on every engine, in what is written and in what is looked up.
"""

from __future__ import annotations

from typing import Any

from ..errors import StoreError

__all__ = ["storable"]

_AS_THEY_ARE = frozenset({int, float, bool, type(None)})


def storable(params: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `params` as both engines can keep them: the same tuple unless something had to change."""
    value: object
    for value in params:
        if type(value) is str:
            if "\0" in value or not (value.isascii() or _encodes(value)):
                return tuple(map(_cleaned, params))
        elif type(value) not in _AS_THEY_ARE:
            return tuple(map(_cleaned, params))
    return params


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        if not _encodes(value):
            # Two halves that belong together become the character they meant.
            value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return str(value).replace("\0", "\ufffd")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if value is None:
        return None
    raise StoreError(
        f"A statement has a parameter of type {type(value).__name__!r}, which a store cannot keep.",
        kept="Nothing of its commit was written.",
        next_step="Parameters are str, int, float or None; turn anything else into JSON text first.",
    )
