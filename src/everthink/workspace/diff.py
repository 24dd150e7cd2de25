"""What is different between two texts, as a unified diff with three lines around each change.

Pure. Texts of more than 10,000 lines are refused. Lines that occur often are compared each with each, which a
text can be written to make endless: after so many steps what is left is told as replaced.
"""

from __future__ import annotations

from collections import Counter
from difflib import Match, SequenceMatcher
from itertools import accumulate

from ..errors import WorkspaceError

__all__ = ["MOST_LINES", "unified"]

MOST_LINES = 10_000
MOST_STEPS = 4_000_000
"""Pairs of equal lines that are looked at: about half a second of work."""
_AROUND = 3


def unified(before: str, after: str, *, old: str, new: str) -> str:
    """The diff from one text to the other, under their labels; empty when they are equal."""
    if before == after:
        return ""
    one, other = _lines(before, old), _lines(after, new)
    out = [f"--- {old}", f"+++ {new}"]
    for group in _Matcher(one, other).get_grouped_opcodes(_AROUND):
        first, last = group[0], group[-1]
        out.append(f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out += [f" {line}" for line in one[i1:i2]]
                continue
            out += [f"-{line}" for line in one[i1:i2]]
            out += [f"+{line}" for line in other[j1:j2]]
    return "\n".join(out) + "\n"


class _Matcher(SequenceMatcher[str]):
    """Finds what two texts share, up to a number of steps. All that it finds is right."""

    def __init__(self, one: list[str], other: list[str]) -> None:
        self._one, self._other = one, other
        # Junk heuristics would treat lines that are frequent as if they were not there.
        super().__init__(None, one, other, autojunk=False)
        self._first = _alike(one, other)
        self._last = _alike(one[self._first :][::-1], other[self._first :][::-1])
        # How many pairs there are up to each line.
        often = Counter(other)
        self._pairs = list(accumulate((1 + often[line] for line in one), initial=0))
        self._left = MOST_STEPS

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """The longest part that both have here. What both begin or end with is known at once."""
        a_end, b_end = len(self._one) if ahi is None else ahi, len(self._other) if bhi is None else bhi
        first, last = self._first, self._last
        if alo == blo == 0 and first and min(a_end, b_end) >= first:
            self._first = 0
            return Match(0, 0, first)
        if last and a_end == len(self._one) and b_end == len(self._other):
            self._last = 0
            return Match(a_end - last, b_end - last, last)
        self._left -= self._pairs[a_end] - self._pairs[alo]
        if self._left < 0:
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, a_end, blo, b_end)


def _alike(one: list[str], other: list[str]) -> int:
    """How many lines two texts have in common at their beginning."""
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _span(start: int, stop: int) -> str:
    length = stop - start
    return f"{start + 1 if length else start},{length}"


def _lines(text: str, label: str) -> list[str]:
    lines = text.split("\n") if text else []
    if len(lines) > MOST_LINES:
        raise WorkspaceError(
            f"{label!r} has {len(lines):,} lines, and two texts are compared up to {MOST_LINES:,}.",
            code="EFBIG",
            path=label,
            kept="Nothing was changed.",
            next_step="Compare parts of them.",
        )
    return lines
