"""Words to look for and snippets to show: what a search is on every engine.

    Search.words --> words_of --> the engine's own query --> text with its hits marked --> snippet_of

Pure. An engine cuts and stems words its own way; what it is asked, and what a reader sees of a hit, is
decided here. Nothing that stands in `words` can be syntax: it is cut to letters before an engine sees it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from unicodedata import category

from ..errors import StoreError
from .clean import storable
from .port import LONGEST_QUERY, Migration, Search, TextIndex

__all__ = [
    "LONGEST_TEXT",
    "MOST_HITS",
    "OPEN",
    "SHUT",
    "not_indexed",
    "snippet_of",
    "text_indexes",
    "words_of",
]

MOST_HITS = 1000
"""So many hits, the newest, are ranked."""

LONGEST_TEXT = 50_000
"""So many characters of a text, its beginning, can be found: to index a MiB of words takes half a second."""

OPEN, SHUT = "\ue000", "\ue001"
"""What an engine puts around a hit: characters that nobody writes."""

_MOST_WORDS = 32
_LONGEST_WORD = 200
_SNIPPET = 24
"""Words in a snippet; a text without spaces is cut after so many times `_WIDTH` characters."""
_BEFORE = 6
_WIDTH = 12
_WORD = re.compile(r"\S+")


def text_indexes(migrations: Sequence[Migration]) -> dict[str, TextIndex]:
    """The index of each searchable table."""
    steps = (step for migration in migrations for step in migration.statements)
    return {step.table: step for step in steps if isinstance(step, TextIndex)}


def not_indexed(table: str) -> StoreError:
    """A search in a table that no migration made searchable."""
    return StoreError(
        f"The table {table!r} has no text index, so nothing can be searched in it.",
        kept="Nothing was changed.",
        next_step=f"Add TextIndex({table!r}, column) to a migration.",
    )


def words_of(search: Search) -> list[str]:
    """The words to look for, letters and digits only, within the bounds; none when nothing can be found.

    A word with a sign inside gives several: `main.py` is `main` and `py`, as it is in the index.
    """
    found: list[str] = []
    for word in search.words:
        for piece in word[:LONGEST_QUERY].split():
            (clean,) = storable((piece[:_LONGEST_WORD],))
            found += "".join(sign if _is_letter(sign) else " " for sign in clean).split()
            if len(found) >= _MOST_WORDS:
                return found[:_MOST_WORDS]
    return found[:_MOST_WORDS]


def _is_letter(sign: str) -> bool:
    """True for what belongs to a word: letters, digits, and the marks that stand on letters."""
    return sign.isalnum() if sign.isascii() else category(sign)[0] in "LNM"


def snippet_of(text: str, marked: str) -> str:
    """Some words around the first hit. `marked` is `text`, sign for sign, with marks around the hits."""
    hits = _hits(text, marked)
    first, _ = next(hits, (0, 0))
    start = _start(text, first)
    end = _end(text, start)
    pieces = ["…" if text[:start].strip() else ""]
    at = start
    for begin, stop in _hits(text, marked):
        if begin >= end:
            break
        stop = min(stop, end)
        pieces += text[at:begin], "**", text[begin:stop], "**"
        at = stop
    pieces += text[at:end], "…" if text[end:].strip() else ""
    return " ".join("".join(pieces).split())


def _hits(text: str, marked: str) -> Iterator[tuple[int, int]]:
    """Where the hits are in `text`."""
    if len(marked) - len(text) != 2 * marked.count(OPEN) or OPEN in text:
        return  # Somebody did write the marks: the snippet shows the text and points at nothing.
    begin = marked.find(OPEN)
    marks = 0
    while begin >= 0:
        stop = marked.find(SHUT, begin)
        yield begin - marks, stop - marks - 1
        marks += 2
        begin = marked.find(OPEN, stop)


def _start(text: str, first: int) -> int:
    """A few words before the first hit."""
    reach = max(0, first - _BEFORE * _WIDTH)
    before = [match.start() for match in _WORD.finditer(text, reach, first)]
    if len(before) > _BEFORE:
        return before[-_BEFORE]
    if reach and len(before) > 1:
        return before[1]  # The first one may be half a word.
    return reach


def _end(text: str, start: int) -> int:
    """So many words further, or fewer when they are long."""
    reach = start + _SNIPPET * _WIDTH
    words = [match.end() for match in _WORD.finditer(text, start, reach + 1)]
    if len(words) > _SNIPPET:
        return words[_SNIPPET - 1]
    if reach < len(text) and len(words) > 1:
        return words[-2]
    return min(reach, len(text))
