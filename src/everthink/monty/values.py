"""Values on their way between us and a guest: JSON, and bytes.

    host --to_guest, in_json--> a pipe --out_of_json--> the client --> Monty
    host <--out_of_json-- a pipe <--in_json, from_guest-- the client <-- Monty

A list of a guest may stand in a thousand places, as one object: what it comes to is counted while it is
written out, and writing stops at a bound. The standard library only: the client's process has nothing else.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = [
    "MOST_CHARACTERS",
    "MOST_VALUES",
    "NotAwaited",
    "TooMuch",
    "from_guest",
    "given_in_json",
    "in_json",
    "out_of_json",
    "to_guest",
]

DEEPEST = 100
MOST_VALUES = 200_000
"""Values that a guest may give at once, one in two places counted twice."""
MOST_CHARACTERS = 8 * 1024 * 1024
"""Characters and bytes of all texts among them."""
MOST_BYTES = 34 * 1024 * 1024
"""Of the JSON of what a guest gives: all those characters at their longest. A control character takes six."""
_MOST_BITS = 13_200
"""Of a whole number, 4,000 digits: to write a longer one takes the square of its length."""
_COROUTINE = re.compile(r"<coroutine (?:object \w+|external_future\(\d+\))>")
"""How the interpreter writes a coroutine on its way to us."""


_BYTES = "__bytes__"
"""The only key of an object that stands for bytes. A key of others that begins so gets one more letter."""


class TooMuch(ValueError):
    """A guest gave more than is read. Its words follow "it"."""


class NotAwaited(Exception):
    """A guest gives something away that it has never awaited. Told to it in these words."""


def to_guest(value: Any) -> Any:
    """A value of ours as a guest gets it; what it cannot have is text."""
    return _Writer(math.inf, math.inf).written(value, 0)


def from_guest(value: Any) -> Any:
    """A value of a guest: what is no JSON is written as text, tuples and sets as lists.

    Raises `TooMuch`, after no more work than the bounds allow; and `NotAwaited` for a call whose result it
    has never waited for: its name would be kept in its place.
    """
    return _Writer(MOST_VALUES, MOST_CHARACTERS, is_of_guest=True).written(value, 0)


def given_in_json(value: Any) -> bytes:
    """A value of a guest, for the pipe. Raises what `from_guest` does, also for what is long only there."""
    text = in_json(from_guest(value))
    if len(text) > MOST_BYTES:
        raise TooMuch(f"has more than {MOST_BYTES:,} bytes as JSON")
    return text


def in_json(value: Any) -> bytes:
    """What `to_guest` or `from_guest` has written, for the pipe."""
    text = _dumps(value)
    # As a value of somebody else it is rare enough to write all of it once more.
    return (_dumps(_escaped(value)) if f'"{_BYTES}' in text else text).encode("utf-8", "replace")


def out_of_json(text: bytes) -> Any:
    """What is on the other side of the pipe. Raises `ValueError` or `RecursionError` when it is no JSON."""
    return json.loads(text, object_hook=_opened) if f'"{_BYTES}'.encode() in text else json.loads(text)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_enveloped)


def _enveloped(data: bytes) -> dict[str, str]:
    return {_BYTES: base64.b64encode(data).decode()}


def _escaped(value: Any) -> Any:
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {f"{key}_" if key.startswith(_BYTES) else key: _escaped(one) for key, one in items}
        case list():
            return [_escaped(one) for one in cast("list[Any]", value)]
        case _:
            return value


def _opened(found: dict[str, Any]) -> Any:
    if _BYTES in found:
        return base64.b64decode(found[_BYTES], validate=True)
    return {key[:-1] if key.startswith(_BYTES) else key: value for key, value in found.items()}


class _Writer:
    """Writes a value out, so much of it."""

    def __init__(self, values: float, characters: float, *, is_of_guest: bool = False) -> None:
        self._values, self._characters, self._is_of_guest = values, characters, is_of_guest

    def written(self, value: Any, depth: int) -> Any:
        """A value, or `TooMuch`."""
        self._values -= 1
        if self._values < 0:
            raise TooMuch(f"holds more than {MOST_VALUES:,} values")
        if depth > DEEPEST:
            return "…"
        match value:
            case None | bool():
                return value
            case int():
                if value.bit_length() > _MOST_BITS and self._is_of_guest:
                    raise TooMuch("holds a whole number of more than 4,000 digits")
                return value
            case str() | bytes():
                return self._text(value)
            case float():
                return value if math.isfinite(value) else str(value)
            case bytearray() | memoryview():
                return self._text(bytes(cast("bytes", value)))
            case datetime.datetime() | datetime.date() | datetime.time():
                return value.isoformat()
            case Mapping():
                items = cast("Mapping[Any, Any]", value).items()
                return {self._key(key): self.written(one, depth + 1) for key, one in items}
            case set() | frozenset():
                return [self.written(one, depth + 1) for one in cast("set[Any]", value)]
            case Sequence():
                return [self.written(one, depth + 1) for one in cast("Sequence[Any]", value)]
            case _:
                attributes: Any = getattr(value, "attributes", None)
                return self.written(attributes, depth + 1) if isinstance(attributes, Mapping) else str(value)

    def _key(self, key: Any) -> str:
        # What is no text is written out first: of a tuple in a tuple `str` would write a thousand.
        return self._text(key) if isinstance(key, str) else self._other_key(key)

    def _other_key(self, key: Any) -> str:
        self.written(key, 0)
        return str(key)

    def _text(self, text: Any) -> Any:
        self._characters -= len(text)
        if self._characters < 0:
            raise TooMuch(f"holds more than {MOST_CHARACTERS:,} characters")
        is_text = self._is_of_guest and isinstance(text, str)
        if is_text and text.startswith("<cor") and _COROUTINE.fullmatch(text):
            raise NotAwaited(
                "A call stands where its result should be, and nobody has awaited it. Write `await`."
            )
        return text
