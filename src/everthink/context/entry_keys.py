"""The key of an entry that the model writes: a slug a person can read, the same for the same thing.

    set_context --(content, title)--> entry_key --> the row to insert or to replace

Pure. A title names its entry, so writing under it again replaces it. Without one the content names
itself: a slug of its beginning and a hash of all of it. Lengths and hashes count UTF-16 units, as the
JavaScript original does, so both give an entry the same key.
"""

from __future__ import annotations

import re

__all__ = ["entry_key"]

_SLUG_UNITS = 60
_OTHER = re.compile(r"[^a-z0-9]+")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF  # FNV-1a, 32 bit


def entry_key(content: str, title: str | None = None) -> str:
    """The key for `content`, or for whatever is called `title` when that is not blank."""
    named = (title or "").strip()
    if named:
        return _slug(named) or f"entry-{_hash(named)}"
    return f"{_slug(content) or 'entry'}-{_hash(content)}"


def _slug(text: str) -> str:
    start = _units(text)[: 2 * _SLUG_UNITS].decode("utf-16-le", "replace")
    return _OTHER.sub("-", start.lower()).removeprefix("-").removesuffix("-")


def _hash(text: str) -> str:
    units = _units(text)
    value = _OFFSET
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = ((value ^ (low | high << 8)) * _PRIME) & _MASK
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def _units(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")
