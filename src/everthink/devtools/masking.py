"""Mask what looks like a credential in JSON, as the log does for text.

    rows, events --JSON--> masked --> the page

A net, not a promise: see `observe/redact.py`, whose patterns these are.
"""

from __future__ import annotations

from typing import Any, cast

from ..observe.redact import redact

__all__ = ["masked"]


def masked(value: Any) -> Any:
    """The same JSON with every text, and every text under a telling name, masked."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list | tuple):
        return [masked(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: _named(key, item) for key, item in entries.items()}
    return value


def _named(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return masked(value)
    # The patterns know "password=…": the name is half of what gives a secret away.
    before = f"{key}="
    text = redact(before + value)
    return redact(text.removeprefix(before)) if text.startswith(before) else redact(value)
