"""Looking for a pattern in the texts of many files.

    Files.scan --500 files at a time--> search (a thread) --> Found, Found, …

A text is searched whole first, since most have no hit; only then line by line. A pattern that would take for
ever (`(a|aa)+$`) is stopped by its time, in the middle of a text. Patterns are those of the package `regex`,
which reads what models write for JavaScript and for Python. It is imported at the first search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import WorkspaceError
from ..media_types import text_of
from .refusals import unfit

__all__ = ["Found", "Hits", "Search"]

_MOST_PATTERN = 1_000
_LONGEST_LINE = 2_000
_MOST_CONTEXT, _MOST_CHARACTERS = 100, 4_000_000  # lines around a hit; of all that was found


@dataclass(frozen=True, slots=True)
class Found:
    """A line that a pattern was found in."""

    path: str
    line: int
    """Its number, from 1 on."""
    text: str
    """The line itself; of a very long one the beginning."""
    before: tuple[str, ...] = ()
    """Lines that come before it, as many as were asked for, and at most a hundred."""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found."""

    found: list[Found]
    files_searched: int
    """Texts that were looked through."""
    files_skipped: int
    """Files that are no text, or too large."""
    is_cut: bool
    """True when there is more: the search stopped at its limit."""


@dataclass(slots=True)
class Search:
    """A search that goes on from page to page."""

    pattern: str
    fixed: bool = False
    ignore_case: bool = False
    context: int = 0
    limit: int = 200
    seconds: float = 5.0
    """Time for one text."""
    found: list[Found] = field(default_factory=list[Found])
    searched: int = 0
    skipped: int = 0
    _compiled: Any = None
    _held: int = 0

    def __post_init__(self) -> None:
        import regex

        if not self.pattern:
            raise unfit("There is nothing to look for.")
        if len(self.pattern) > _MOST_PATTERN:
            raise unfit(f"A pattern has {_MOST_PATTERN:,} characters at most.")
        flags = regex.MULTILINE | (regex.IGNORECASE if self.ignore_case else 0)
        try:
            self._compiled = regex.compile(regex.escape(self.pattern) if self.fixed else self.pattern, flags)
        except (regex.error, RecursionError) as error:
            raise unfit(
                f"{self.pattern!r} is no regular expression: {error}.",
                next_step="Escape its signs, or look for it as a fixed text.",
            ) from error

    @property
    def is_over(self) -> bool:
        """True when there is as much as may be."""
        return len(self.found) > self.limit or self._held > _MOST_CHARACTERS

    def look(self, page: Sequence[tuple[str, bytes | None]]) -> None:
        """Search some files. Belongs in a thread: others run while `regex` looks."""
        for path, data in page:
            text = None if data is None else text_of(data)
            if text is None:
                self.skipped += 1
                continue
            self.searched += 1
            if self._is_in(text, path):
                for one in self._lines(path, text):
                    self.found.append(one)
                    self._held += sum(map(len, (one.text, *one.before, *one.after)))
                    if self.is_over:
                        return

    def hits(self) -> Hits:
        """What was found."""
        return Hits(self.found[: self.limit], self.searched, self.skipped, self.is_over)

    def _lines(self, path: str, text: str) -> Iterator[Found]:
        lines, around = text.split("\n"), min(self.context, _MOST_CONTEXT)
        for number, line in enumerate(lines):
            if self._is_in(line, path):
                yield Found(
                    path,
                    number + 1,
                    line[:_LONGEST_LINE],
                    tuple(one[:_LONGEST_LINE] for one in lines[max(number - around, 0) : number]),
                    tuple(one[:_LONGEST_LINE] for one in lines[number + 1 : number + 1 + around]),
                )

    def _is_in(self, text: str, path: str) -> bool:
        try:
            return self._compiled.search(text, timeout=self.seconds, concurrent=True) is not None
        except TimeoutError as error:
            raise WorkspaceError(
                f"Looking for {self.pattern!r} in {path!r} took longer than {self.seconds:g} seconds.",
                code="EINVAL",
                path=path,
                kept="Nothing was changed.",
                next_step="Use a simpler pattern: one that repeats what repeats itself takes for ever.",
            ) from error
