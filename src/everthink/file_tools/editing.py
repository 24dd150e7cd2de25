"""`edit`: replace one place in a text, found exactly or, failing that, whatever its white space.

    text, old, new --edited--> the new text | why not

Pure. The replacement is put in as it is written. A place that is not there once only is an error that says
what to do: a guess that writes is worse.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

__all__ = ["Edited", "NotEdited", "edited"]

_SPACES = re.compile(r"\r\n|[ \t]{2,}|\t")
MOST_COUNTED = 1_000
COUNTING = 10_000_000
"""Characters that are compared to say how often a place is there: each look costs as many as it has."""
LONGEST_FUZZY = 2_000_000
"""Characters of a text that is searched for a place with other white space."""


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
    most = min(max(COUNTING // len(old), 2), MOST_COUNTED)
    count = _count(text, old, most)
    if count > 1:
        times = f"{count} times" if count <= most else f"more than {most:,} times"
        raise NotEdited(
            f"old_string appears {times} in {path}. Add lines around it, so that it is there once."
        )
    if count == 1:
        at = text.index(old)
        return Edited(text[:at] + new + text[at + len(old) :])
    start, end = _fuzzy(path, text, old)
    return Edited(text[:start] + new + text[end:], is_fuzzy=True)


def _count(text: str, part: str, most: int) -> int:
    """How often it is there, those that overlap included; one more than `most` when it is more often."""
    count, at = 0, text.find(part)
    while at >= 0 and count <= most:
        count, at = count + 1, text.find(part, at + 1)
    return count


def _fuzzy(path: str, text: str, old: str) -> tuple[int, int]:
    """Where it is when white space counts once, however much there is of it."""
    needle = _Plain(old).text
    plain = _Plain(text if len(text) <= LONGEST_FUZZY else "")
    at = plain.text.find(needle) if needle else -1
    if at < 0:
        raise NotEdited(f"old_string was not found in {path}. Read the file first and copy it from there.")
    if plain.text.find(needle, at + len(needle)) >= 0:
        raise NotEdited(
            f"old_string is in {path} at multiple places when white space is not counted."
            " Add lines around it, so that it is there once."
        )
    return plain.place_of(at), plain.place_of(at + len(needle))


class _Plain:
    """A text with one space for each run of them and plain line ends; it knows where a character was."""

    def __init__(self, text: str) -> None:
        made: list[str] = []
        # Where a run has ended: in the plain text, and in the text itself.
        self._plain, self._real = [0], [0]
        last = length = 0
        for run in _SPACES.finditer(text):
            made += (text[last : run.start()], "\n" if run[0] == "\r\n" else " ")
            length += run.start() - last + 1
            last = run.end()
            self._plain.append(length)
            self._real.append(last)
        made.append(text[last:])
        self.text = "".join(made)

    def place_of(self, at: int) -> int:
        """Where in the text itself a character of the plain one is."""
        run = bisect_right(self._plain, at) - 1
        return self._real[run] + at - self._plain[run]
