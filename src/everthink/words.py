"""Words of strangers, before a model or a person reads them.

    a server's descriptions, errors, notes --text--> clean, said --> catalogue, results, oauth

Pure. What nobody sees must say nothing: control characters, turned reading directions and the invisible twin
of ASCII (Unicode tags) are taken out, because a model reads them and the person beside it does not.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["LONGEST_ERROR", "clean", "said"]

LONGEST_ERROR = 500
"""Characters of an error that is shown."""

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_TAGS = range(0xE0000, 0xE0080)
_SELECTORS = range(0xE0100, 0xE01F0)  # any byte can be hidden in a row of them
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_BREAKS = (0x2028, 0x2029)


def _table(removed: Iterable[int], replaced: Iterable[int], by: str) -> dict[int, str | None]:
    return {**dict.fromkeys(removed), **dict.fromkeys(replaced, by)}


_HIDDEN = (*_BIDI, *_TAGS, *_SELECTORS)
_IN_LINES = _table((*_HIDDEN, *(code for code in _CONTROLS if chr(code) not in "\n\t")), _BREAKS, "\n")
_ON_ONE = _table((*_HIDDEN, *_CONTROLS), (*map(ord, "\n\t\r"), *_BREAKS), " ")


def clean(text: object, longest: int) -> str:
    """`text` without what is hidden in it, with its lines, in at most so many characters."""
    found = _readable(text, longest).replace("\r\n", "\n").translate(_IN_LINES).strip()
    return found if len(found) <= longest else f"{found[: longest - 1]}…"


def said(text: object, longest: int = LONGEST_ERROR) -> str:
    """An error of somebody else on one line: so many characters, and `...` when there were more."""
    found = " ".join(_readable(text, longest).translate(_ON_ONE).split())
    return found if len(found) <= longest else f"{found[:longest]}..."


def _readable(text: object, longest: int) -> str:
    # What is far too long is not looked at as a whole.
    found = (text if isinstance(text, str) else str(text))[: longest * 4 + 1]
    return found.encode("utf-8", "replace").decode()  # half a character is none
