"""What a server in a process of its own says on its standard error: in our log, line by line.

    the process --bytes--> a pipe --logged--> everthink.mcp

Bounded: a line is cut, and of many at once only the first are written. What it said last, before it died, is
read before the pipe is closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from ..masking import mask
from ..plain import cut, plain

__all__ = ["logged"]

log = logging.getLogger("everthink.mcp")

LONGEST_LINE = 2_000
MOST_LINES = 50
"""So many lines of one read (64 KiB) are written."""
_READ = 65_536


@contextmanager
def logged(name: str) -> Generator[TextIO]:
    """A file for a process to write to, until the block ends."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()
    lines = _Lines(name)

    def heard() -> bool:
        try:
            said = os.read(reading, _READ)
        except BlockingIOError:
            return False
        lines.take(said)
        return bool(said)

    loop.add_reader(reading, heard)
    file = os.fdopen(writing, "w")
    try:
        yield file
    finally:
        loop.remove_reader(reading)
        file.close()
        for _ in range(16):  # what a pipe holds
            if not heard():
                break
        lines.end()
        os.close(reading)


class _Lines:
    """Bytes that become lines of the log."""

    def __init__(self, name: str) -> None:
        self._name, self._pending = name, b""

    def take(self, said: bytes) -> None:
        *lines, pending = said.split(b"\n")
        if lines:
            lines[0] = self._pending + lines[0]
            self._pending = b""
        self._pending = (self._pending + pending)[:LONGEST_LINE]
        for line in lines[:MOST_LINES]:
            self._write(line)
        if len(lines) > MOST_LINES:
            log.info("%s: (%d more lines)", self._name, len(lines) - MOST_LINES)

    def end(self) -> None:
        if self._pending:
            self._write(self._pending)

    def _write(self, line: bytes) -> None:
        text = plain(line.removesuffix(b"\r").decode(errors="replace"))
        log.info("%s: %s", self._name, cut(mask(text), LONGEST_LINE))
