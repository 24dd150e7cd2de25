"""What is different between two texts, as a unified diff with three lines around each change.

Pure. Texts of more than 10,000 lines are refused: comparing them takes longer than anybody waits.
"""

from __future__ import annotations

from difflib import SequenceMatcher

from ..errors import WorkspaceError

__all__ = ["MOST_LINES", "unified"]

MOST_LINES = 10_000
_AROUND = 3


def unified(before: str, after: str, *, old: str, new: str) -> str:
    """The diff from one text to the other, under their labels; empty when they are equal."""
    if before == after:
        return ""
    one, other = _lines(before, old), _lines(after, new)
    out = [f"--- {old}", f"+++ {new}"]
    # Junk heuristics would treat lines that are frequent as if they were not there.
    for group in SequenceMatcher(None, one, other, autojunk=False).get_grouped_opcodes(_AROUND):
        first, last = group[0], group[-1]
        out.append(f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out += [f" {line}" for line in one[i1:i2]]
                continue
            out += [f"-{line}" for line in one[i1:i2]]
            out += [f"+{line}" for line in other[j1:j2]]
    return "\n".join(out) + "\n"


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
