"""What comes from a server in a process of its own: answers on its standard output.

    standard output --bytes--> ANSWERS: whole lines --> the SDK, which reads JSON

Bounded: the SDK gathers a line without end, so lines are gathered here, as an encoding that it decodes with.
Of an answer that is too long whoever asked is told so. What it says on its standard error is in programs.py.
"""

from __future__ import annotations

import codecs
import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..masking import mask
from ..messages import encode_json
from ..plain import cut, plain
from .http import MAX_ANSWER

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["ANSWERS", "Printed", "printing"]

log = logging.getLogger("everthink.mcp")

ANSWERS = "everthink_mcp_answers"
"""UTF-8 of which only whole lines are given on, each of at most `MAX_ANSWER` bytes."""
TOO_LONG = "Its answer has more than {:,} bytes. It may or may not have taken effect."
_ENDS = 400
"""Bytes of the beginning and of the end of a line in which the id of an answer is looked for."""
_ID = re.compile(rb'\A\{(?:"jsonrpc":\s*"2.0",\s*)?"id":\s*(\d{1,18}),|"id":\s*(\d{1,18})\s*\}\s*\Z')
LONGEST_PRINTED = 200

# --- standard output


class Printed:
    """What a process prints where only answers belong. It is told once of each connection."""

    def __init__(self, name: str, said: Callable[[str], object]) -> None:
        self._name, self._said, self._is_told = name, said, False

    def take(self, line: str) -> None:
        """Note a line that is no answer."""
        text = cut(mask(plain(line.strip())), LONGEST_PRINTED)
        self._said(text)
        if not self._is_told:
            self._is_told = True
            log.warning(
                "the MCP server %s prints on its standard output, where only answers belong: %s",
                self._name,
                text,
            )


printing: ContextVar[Printed | None] = ContextVar("everthink_mcp_printing", default=None)
"""Whose standard output is read: the SDK makes the decoder, in a task that it begins in our context."""


class _Answers(codecs.IncrementalDecoder):
    """Bytes that become lines."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._parts: list[bytes] = []
        self._size = 0
        self._printed = printing.get()
        self._ends: tuple[bytes, bytes] | None = None
        """The beginning and the end of a line that is too long: nothing else of it is kept."""

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:
        """The lines that have ended by now."""
        *lines, begun = bytes(input).split(b"\n")
        ended: list[str] = []
        for line in lines:
            self._add(line)
            ended += self._taken()
        self._add(begun)
        return "".join(ended)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._ends is not None:
            first, last = self._ends
            self._ends = first, (last + part)[-_ENDS:]
            return
        self._parts.append(part)
        if self._size > MAX_ANSWER:
            line = b"".join(self._parts)
            self._ends = line[:_ENDS], line[-_ENDS:]
            self._parts.clear()

    def _taken(self) -> list[str]:
        """The line that has ended, unless it is too long for anybody."""
        line, ends = b"".join(self._parts), self._ends
        self._parts, self._size, self._ends = [], 0, None
        if ends is None:
            text = line.decode("utf-8", "replace")
            if self._printed is None or text.lstrip()[:1] in ("{", "["):
                return [f"{text}\n"]
            if text.strip():
                self._printed.take(text)
            return []
        found = None if b'"method"' in ends[0] else _ID.search(b" ".join(ends))
        if found is None:
            log.warning("an MCP server says something of more than %s bytes, which is left out", MAX_ANSWER)
            return []
        error = {"code": -32603, "message": TOO_LONG.format(MAX_ANSWER)}
        return [
            f"{encode_json({'jsonrpc': '2.0', 'id': int(found[1] or found[2]), 'error': error}).decode()}\n"
        ]


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != ANSWERS:
        return None
    plain_text = codecs.lookup("utf-8")
    return codecs.CodecInfo(plain_text.encode, plain_text.decode, incrementaldecoder=_Answers, name=ANSWERS)


codecs.register(_codec)
