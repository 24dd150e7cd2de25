"""What somebody is asked to agree to, in a bounded number of characters.

    the input of a call --> asked_input --> a message with buttons, the words of a question

Pure. Whoever writes the input may not choose what is left out: what is too long is cut in each of its
texts, not at its end, where the field that matters may stand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from .plain import in_json

__all__ = ["asked_input"]

_LONGEST_TEXTS = (400, 100, 30)
"""Characters of each text, when there is no room for all."""


def asked_input(given: Any, most: int, *, write: Callable[[Any], str]) -> tuple[str, int]:
    """An input as JSON that `write` makes, and how many characters of it there is no room for. Nothing in it
    turns the direction of reading."""
    shown = whole = in_json(write(given))
    if len(whole) <= most:
        return whole, 0
    for longest in _LONGEST_TEXTS:
        shown = in_json(write(_shortened(given, longest)))
        if len(shown) <= most:
            return shown, len(whole) - len(shown)
    return f"{shown[:most]}\n…", len(whole) - most


def _shortened(given: Any, longest: int) -> Any:
    match given:
        case str() if len(given) > longest:
            return f"{given[:longest]}…"
        case list():
            return [_shortened(one, longest) for one in cast("list[Any]", given)]
        case dict():
            items = cast("dict[str, Any]", given).items()
            return {name: _shortened(one, longest) for name, one in items}
        case _:
            return given
