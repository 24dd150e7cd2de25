"""Patterns of paths: `**/*.{py,md}`.

    pattern --Glob--> the folder to look in; paths below it --matching--> those that are meant

Pure. `*` and `?` stay within one part of a path, `**/` stands for any folders or none, and `**` elsewhere for
anything; `[abc]` is one of these, `[!abc]` none of them, `{a,b}` one of several patterns. A bracket that is
never closed is itself. Patterns begin at the root, as paths do, and never mean the root. A pattern that would
take for ever (`*a*a*a*a*a*b`) is stopped by its time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

from .paths import normal, parent_of
from .port import WorkspaceLimits
from .refusals import unfit

__all__ = ["Glob"]

_MOST_CHARACTERS = 4_096
_LENGTHS = WorkspaceLimits(path_bytes=4 * _MOST_CHARACTERS, name_bytes=4 * _MOST_CHARACTERS)
_MOST_BRACES = 64
_MOST_NESTED = 8
_WITHIN = r"[^/\n]"
_FOLDERS = rf"(?:{_WITHIN}+/)*"
_SECONDS = 5.0
_MAGIC = re.compile(r"[*?\[{]")


class Glob:
    """A pattern, read."""

    __slots__ = ("folder", "path", "pattern")

    def __init__(self, pattern: str) -> None:
        if isinstance(pattern, str) and len(pattern) > _MOST_CHARACTERS:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise unfit(f"A pattern has {_MOST_CHARACTERS:,} characters at most, not {len(pattern):,}.")
        self.pattern = normal(pattern, _LENGTHS)
        magic = _MAGIC.search(self.pattern)
        if magic and len(self.pattern) > 1_000:  # it has to be compiled, and others wait for that
            raise unfit(f"A pattern has 1,000 characters at most, not {len(self.pattern):,}.")
        self.path = None if magic else self.pattern
        """The one path it means, when there is no sign in it that means several."""
        literal = self.pattern if magic is None else self.pattern[: magic.start()]
        self.folder = (
            parent_of(literal) if not literal.endswith("/") or literal == "/" else literal[:-1] or "/"
        )
        """Everything it can mean is below this folder."""
        _compiled(self.pattern)  # refuses what is too much

    def matching(self, paths: Sequence[str]) -> set[str]:
        """Those of the paths that the pattern means. Belongs in a thread when they are many."""
        try:
            # All at once: a line each, since no path has a line break. So there is one time for all.
            found = _compiled(self.pattern).finditer("\n".join(paths), timeout=_SECONDS, concurrent=True)
            return {match[0] for match in found} - {"/"}
        except TimeoutError as error:
            raise unfit(
                f"Looking for {self.pattern!r} took longer than {_SECONDS:g} seconds.",
                next_step="Use a pattern with fewer * in it.",
            ) from error


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import regex

    return regex.compile(f"^(?:{_Translation(pattern).through(0, len(pattern))})$", regex.MULTILINE)


class _Translation:
    """A pattern on its way to a regular expression."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._braces = 0
        self._closes, opened = dict[int, int](), list[int]()  # where each brace is closed that is
        for at, sign in enumerate(pattern):
            if sign == "{":
                opened.append(at)
            elif sign == "}" and opened:
                self._closes[opened.pop()] = at

    def through(self, start: int, end: int, depth: int = 0) -> str:
        """The expression for a stretch of the pattern."""
        text, out, at = self._pattern, list[str](), start
        while at < end:
            sign = text[at]
            if sign == "*":
                stars = at
                while at < end and text[at] == "*":
                    at += 1
                if at - stars == 1:
                    out.append(_WITHIN + "*")
                elif at < end and text[at] == "/" and (stars == 0 or text[stars - 1] in "/{,"):
                    if out[-1:] != [_FOLDERS]:
                        out.append(_FOLDERS)
                    at += 1
                else:
                    out.append(".*")
            elif sign == "?":
                out.append(_WITHIN)
                at += 1
            elif sign == "[" and (close := self._class_end(at, end)):
                out.append(self._class(at + 1, close))
                at = close + 1
            elif sign == "{" and at < (close := self._closes.get(at, 0)) < end:
                out.append(self._alternatives(at + 1, close, depth))
                at = close + 1
            else:
                out.append(re.escape(sign))
                at += 1
        return "".join(out)

    def _class_end(self, start: int, end: int) -> int:
        at = start + 1
        if at < end and self._pattern[at] in "!^":
            at += 1
        close = self._pattern.find("]", at + 1, end)  # a bracket that comes first is one of the signs
        slash = self._pattern.find("/", start, end)
        return 0 if close < 0 or 0 <= slash < close else close

    def _class(self, start: int, end: int) -> str:
        text = self._pattern[start:end]
        negated = text[0] in "!^"
        signs, ranges, at = text[negated:], list[str](), 0
        while at < len(signs):
            if at + 2 < len(signs) and signs[at + 1] == "-":
                first, last = signs[at], signs[at + 2]
                if first <= last:
                    ranges.append(f"{re.escape(first)}-{re.escape(last)}")
                at += 3
            else:
                ranges.append(re.escape(signs[at]))
                at += 1
        if not ranges:  # `[z-a]`: none of nothing is anything, one of nothing is nothing
            return _WITHIN if negated else "(?!)"
        return f"(?![/\\n])[{'^' if negated else ''}{''.join(ranges)}]"

    def _alternatives(self, start: int, end: int, depth: int) -> str:
        self._braces += 1
        if self._braces > _MOST_BRACES or depth >= _MOST_NESTED:
            raise unfit(
                f"A pattern has {_MOST_BRACES} braces at most, {_MOST_NESTED} inside of each other.",
                next_step="Look for less at a time.",
            )
        places, level = [start - 1], 0
        for at in range(start, end):
            sign = self._pattern[at]
            level += (sign == "{") - (sign == "}")
            if sign == "," and level == 0:
                places.append(at)
        places.append(end)
        pieces = [self.through(first + 1, last, depth + 1) for first, last in pairwise(places)]
        return f"(?:{'|'.join(pieces)})"
