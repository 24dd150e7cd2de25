"""Results of at most so many characters, in the shape they had: a text is cut, a list loses its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["MOST", "bounded"]

MOST = 50_000
"""Characters of one result."""
_PREVIEW = 2_000


def bounded(value: Any, most: int = MOST) -> Any:
    """A JSON value within `most` characters; with 0 as it is. An object that is too large becomes
    `{"truncated": true, "note": …, "preview": …}`."""
    if not most:
        return value
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}\n[cut: {len(value) - most} more characters]"
    written = _written(value)
    if len(written) <= most:
        return value
    if isinstance(value, Mapping):
        note = (
            f"This is {len(written):,} characters long, more than the {most:,} that are given. Ask for less."
        )
        return {"truncated": True, "note": note, "preview": written[: min(most, _PREVIEW)]}
    if isinstance(value, Sequence):
        return _shorter(cast("Sequence[Any]", value), most)
    return written[:most]


def _shorter(items: Sequence[Any], most: int) -> list[Any]:
    """The first items that fit; of a first one that does not, what fits of it."""
    kept: list[Any] = []
    size = 2
    for item in items:
        size += len(_written(item)) + 2
        if size > most:
            break
        kept.append(item)
    return kept or [bounded(items[0], most)]


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
