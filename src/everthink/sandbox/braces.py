"""Find ranges in braces that bashkit would leave as they are written.

    "for i in {1..20000}" --too_many_words--> "{1..20000}"

Pure. bashkit expands at most 10,000 words and says nothing when there are more: the loop above would run
once, with the text itself. Such a script is refused before anything of it runs.
"""

from __future__ import annotations

import re

__all__ = ["MOST_WORDS", "too_many_words"]

MOST_WORDS = 10_000

_LIST = r"""\{[^{}\s'"$`]*(?:,|\.\.)[^{}\s'"$`]*\}"""
_NEXT = re.compile(
    rf"""
    \\.                                             # one character as it is
  | (?<![^\s;&|(])\#[^\n]*                          # a comment
  | '[^']*'                                         # nothing in it is expanded; in " " commands are
  | \$\{{[^}}]*\}}                                  # a parameter
  | <<<                                             # a here-string, which is no here-document
  | <<-?[ \t]*['"\\]?(?P<heredoc>\w+)['"]?          # its text comes after this line
  | (?P<double>")
  | (?P<line>\n)
  | (?P<word>{_LIST}(?:[^\s{{}}'"$`;&|<>()]*{_LIST})*)
    """,
    re.X | re.S,
)
_FACTOR = re.compile(r"\{([^{}]*)\}")
_NUMBERS = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(-?\d{1,18}))?")


def too_many_words(script: str) -> str | None:
    """The first word with braces that stands for more words than are expanded, as it is written."""
    place, ends = 0, list[str]()
    quoted = False
    while found := _NEXT.search(script, place):
        place = found.end()
        kind = found.lastgroup
        if kind == "double":
            quoted = not quoted
        elif kind == "heredoc" and not quoted:
            ends.append(found["heredoc"])
        elif kind == "line" and ends:
            place = _after(script, place, ends)
        elif kind == "word" and not quoted and _count(found["word"]) > MOST_WORDS:
            return found["word"]
    return None


def _after(script: str, place: int, ends: list[str]) -> int:
    """Where the here-documents that begin at this line are over."""
    while ends:
        end = re.compile(rf"^\t*{re.escape(ends.pop(0))}$", re.M).search(script, place)
        place = end.end() if end else len(script)
    return place


def _count(word: str) -> int:
    count = 1
    for inside in _FACTOR.findall(word):
        if numbers := _NUMBERS.fullmatch(inside):
            first, last, step = int(numbers[1]), int(numbers[2]), abs(int(numbers[3] or 1)) or 1
            count *= abs(last - first) // step + 1
        elif "," in inside:
            count *= inside.count(",") + 1
    return count
