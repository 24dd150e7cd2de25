"""How much a JSON text would unfold to, counted before it is decoded.

    text --check--> why it is too much | None --> decode

A byte of JSON can become thirty in memory (`[],[],…`), so values are counted in the text itself: brackets,
commas and colons outside strings, and numbers by what reading them takes (`numbers.py`). Counting makes no
object for a value and stops early. Pure. What passes takes at most eight times its bytes, once it is a MiB
or more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from ..limits import Limits
from .numbers import LONGEST, Numbers, at_most

__all__ = ["PIECE", "check", "mend"]

PIECE = 64 * 1024
"""So much is looked at in one go: what that takes is gone before the next."""

FREE_NODES, BYTES_PER_NODE = 80_000, 13
"""More nodes than so many stand no closer than this: each may take 64 bytes in memory."""

_NODES = (b"{", b"[", b",", b":")
_ALL = bytes(range(256))
_BRACKETS_ONLY = bytes(set(_ALL) - set(b"{}[]"))
_UNMARKED = bytes(set(_ALL) - set(b'{[\\"'))
# The step that a bracket makes, in place of the bracket: 1 down, 255 up.
_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
_PAIR_OF_STEPS, _ROUNDS = b"\x01\xff", 16
# What neither bounds a value nor is part of a number: most of what people say.
_IDLE = bytes(set(_ALL) - set(b'{}[],:"+-.eE0123456789'))


def check(text: str | bytes, limits: Limits) -> str | None:
    """What is wrong with `text`, as words that follow "it": over which bound it is. `None`: nothing."""
    if len(text) > limits.frame_bytes:
        return f"is longer than {limits.frame_bytes} bytes"
    nodes = min(limits.frame_nodes, max(FREE_NODES, len(text) // BYTES_PER_NODE))
    # What stands in strings counts here as well: for most short texts even that is not much.
    if len(text) <= min(nodes, PIECE):
        data = _encoded(text)
        depth = limits.frame_depth
        is_flat = data.count(b"{") + data.count(b"[") <= depth or _opened(data) <= depth
        if is_flat and len(text) + at_most(data) <= nodes:
            return None
    return _exactly(text, nodes, limits.frame_depth)


def _opened(data: bytes) -> int:
    """How many brackets are opened, or more. One that a backslash follows before a quote is in a string."""
    marks = data.translate(None, _UNMARKED)
    return sum(marks.count(mark) - marks.count(mark + b"\\") for mark in (b"{", b"["))


def _exactly(text: str | bytes, nodes: int, depth: int) -> str | None:
    too_many = f"holds more than {nodes} values"
    found = level = strings = 0
    numbers = Numbers()
    for outside, quotes in _outside_strings(text):
        strings += quotes
        found += sum(outside.count(mark) for mark in _NODES)
        if found > nodes or strings > 2 * (nodes + 1):  # beside each string, but for one, stands a mark
            return too_many
        numbers.add(outside)
        if why := _too_much(numbers, nodes - found, nodes):
            return why
        steps = outside.translate(_STEPS, _BRACKETS_ONLY)
        if level + steps.count(b"\x01") > depth and _at_most_deep(steps) > depth - level:
            highest = max(accumulate((1 if step == 1 else -1 for step in steps), initial=level))
            if highest > depth:
                return f"is nested deeper than {depth} levels"
        level += 2 * steps.count(b"\x01") - len(steps)
        if level < 0:
            return None  # not JSON: the decoder will say so
    numbers.end()
    return _too_much(numbers, nodes - found, nodes)


def _at_most_deep(steps: bytes) -> int:
    """How many levels a piece goes down, or some more: pairs are taken out, the innermost first."""
    for rounds in range(_ROUNDS):
        left = steps.replace(_PAIR_OF_STEPS, b"")
        if len(left) == len(steps):
            return rounds + left.count(b"\x01")
        steps = left
    return _ROUNDS + steps.count(b"\x01")


def _too_much(numbers: Numbers, room: int, nodes: int) -> str | None:
    if numbers.is_too_long:
        return f"holds a number of more than {LONGEST} digits"
    if numbers.more > room:
        return f"holds more than {nodes} values, numbers that are slow to read counted many times"
    return None


def _outside_strings(text: str | bytes) -> Iterator[tuple[bytes, int]]:
    """What stands outside strings, in pieces, each with the quotes that were between."""
    inside = 0
    for piece in _unescaped(text):
        parts = piece.translate(None, _IDLE).split(b'"')
        yield b"".join(parts[inside::2]), len(parts) - 1
        inside ^= len(parts) & 1 ^ 1


def _unescaped(text: str | bytes) -> Iterator[bytes]:
    """The text bit by bit, without backslashes and quotes that are escaped."""
    start = 0
    while start < len(text):
        end = start + PIECE
        piece = _encoded(text[start:end])
        if b"\\" in piece:
            if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
                piece, end = piece[:-1], end + 1  # what it escapes goes with it
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        yield piece
        start = end


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode(errors="surrogatepass")


# --- half surrogates

# A half: the first of a pair without the second, or the second without the first.
_HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def mend(data: bytes) -> bytes:
    """`data` with U+FFFD in place of each half of a surrogate pair that is written as an escape.

    Where there is none, `data` itself.
    """
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    # An escaped backslash before `ud83d` is no escape of a half: put it out of the way, as what no JSON has.
    if b"\x00" in data:
        return data
    hidden = data.replace(b"\\\\", b"\x00\x00")
    mended = b"".join(map(_mended, _between_escapes(hidden)))
    return data if mended == hidden else mended.replace(b"\x00\x00", b"\\\\")


def _mended(piece: bytes) -> bytes:
    has_any = b"\\ud" in piece or b"\\uD" in piece
    return _HALF.sub(rb"\\ufffd", piece) if has_any else piece


def _between_escapes(data: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(data):
        end = data.find(b"\\", start + PIECE)
        if end < 0:
            end = len(data)
        elif _PAIR.match(data, end - 6):
            end += 6
        yield data[start:end]
        start = end
