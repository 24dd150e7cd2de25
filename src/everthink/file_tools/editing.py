"""`edit`: replace one place in a text, found exactly or, failing that, whatever its white space.

    text, old, new --edited--> the new text | why not

Pure. The replacement is put in as it is written. A place that is not there once only is an error that says
what to do: a guess that writes is worse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Edited", "NotEdited", "edited"]

_SPACES = re.compile(r"\r\n|[ \t]+")


class NotEdited(Exception):
    """Why a text was not changed, for the model."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A text with one place replaced."""

    text: str
    is_fuzzy: bool = False
    """True when the place was only found with other white space."""


def edited(path: str, text: str, old: str, new: str) -> Edited:
    """`text` with its one `old` replaced by `new`. Raises `NotEdited`."""
    count = _count(text, old)
    if count > 1:
        raise NotEdited(
            f"old_string appears {count} times in {path}. Add lines around it, so that it is there once."
        )
    if count == 1:
        at = text.index(old)
        return Edited(text[:at] + new + text[at + len(old) :])
    start, end = _fuzzy(path, text, old)
    return Edited(text[:start] + new + text[end:], is_fuzzy=True)


def _count(text: str, part: str) -> int:
    """How often it is there, those that overlap included."""
    count, at = 0, text.find(part)
    while at >= 0:
        count, at = count + 1, text.find(part, at + 1)
    return count


def _fuzzy(path: str, text: str, old: str) -> tuple[int, int]:
    """Where it is when white space counts once, however much there is of it."""
    needle, _ = _normal(old)
    plain, places = _normal(text)
    at = plain.find(needle) if needle else -1
    if at < 0:
        raise NotEdited(f"old_string was not found in {path}. Read the file first and copy it from there.")
    if plain.find(needle, at + len(needle)) >= 0:
        raise NotEdited(
            f"old_string is in {path} at multiple places when white space is not counted."
            " Add lines around it, so that it is there once."
        )
    return places[at], places[at + len(needle)]


def _normal(text: str) -> tuple[str, list[int]]:
    """The text with one space for each run of them and plain line ends, and where each character was."""
    made: list[str] = []
    places: list[int] = []
    last = 0
    for found in _SPACES.finditer(text):
        made.append(text[last : found.start()])
        places += range(last, found.start())
        made.append("\n" if found[0] == "\r\n" else " ")
        places.append(found.start())
        last = found.end()
    made.append(text[last:])
    places += range(last, len(text))
    places.append(len(text))
    return "".join(made), places
