"""What the numbers of a JSON text cost to read, told from how they are written before one is read.

    text outside strings, piece by piece --add--> more (values that they count as besides), is_too_long

Reading `1e300` takes five hundred times as long as reading `0.1`, and nothing else runs meanwhile: reading
exactly is quick only up to 15 digits and near to 1. The time of an integer grows with the square of its
digits. Pure; digits are counted by looking for their shape, so no number costs a step of its own.
"""

from __future__ import annotations

from math import inf

__all__ = ["LONGEST", "Numbers", "at_most"]

LONGEST = 40
"""Digits of one number: the largest of 128 bits has 39."""
LONG, FAR, FARTHEST = 4, 20, 400
"""What a number counts as besides: for every 16 digits, an exponent of two digits, one of three and more.

Measured against the slowest of each kind: what is let in is read in well under 50 ms.
"""

_DIGITS = 16
_TOO_LONG = b"0" * (LONGEST + 1)
# A number as its shape: each digit is a 0, an exponent an e. Signs and the point are left out.
_SHAPE, _SILENT = bytes.maketrans(b"123456789E", b"000000000e"), b"+-."
# The same in a hurry: with signs and points as digits, which makes it more, never less.
_AT_MOST = bytes.maketrans(b"123456789+-.E", b"000000000000e")
_OPEN_AT_MOST = 2 * LONGEST + 2


def at_most(piece: bytes) -> float:
    """What the numbers in `piece`, also those in strings, count as besides: this or less."""
    shape = piece.translate(_AT_MOST)
    long = shape.count(b"0" * _DIGITS)
    if long and _TOO_LONG in shape:
        return inf
    return FARTHEST * shape.count(b"e00") + LONG * long


class Numbers:
    """The numbers of a text that arrives in pieces, which may end in the middle of one."""

    __slots__ = ("_open", "is_too_long", "more")

    def __init__(self) -> None:
        self.more = 0
        """What they count as besides one value each, so far."""
        self.is_too_long = False
        """True when one of them has more digits than may be."""
        self._open = b""

    def add(self, piece: bytes) -> None:
        """Go on with what stands outside strings."""
        # Python writes 1e-07.
        shape = self._open + piece.replace(b"e-0", b"e").translate(_SHAPE, _SILENT)
        whole = shape.rstrip(b"0e")
        if len(shape) - len(whole) > _OPEN_AT_MOST:
            whole = shape  # too long, or no number
        self._open = shape[len(whole) :]
        self._count(whole)

    def end(self) -> None:
        """No more pieces."""
        self._count(self._open)
        self._open = b""

    def _count(self, shape: bytes) -> None:
        self.is_too_long = self.is_too_long or _TOO_LONG in shape
        self.more += LONG * shape.count(b"0" * _DIGITS)
        if exponents := shape.count(b"e00"):
            self.more += FAR * exponents + (FARTHEST - FAR) * shape.count(b"e000")
