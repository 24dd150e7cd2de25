"""Standard input and output as the two ends of a protocol: lines in, lines out, and nothing else.

    claim() --> Pipes: fd 0 and 1 for the protocol alone      everybody else: /dev/null in, standard error out

Whatever else in this process prints, a module while it is imported, a tool, a child of it, must not end up in
the protocol, so the descriptors are taken before anything of the application runs. A thread waits for each
end: both may block for as long as the client likes, and neither keeps the process from ending.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading

__all__ = ["Pipes", "claim"]

AT_ONCE = 64 * 1024
GOODBYE = 2.0
"""Seconds a client gets to read the last lines."""


def claim() -> Pipes:
    """Take standard input and output. From now on `print` writes to standard error."""
    sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Pipes(reading, writing)


class Pipes:
    """Lines of one client."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name="MCP output", daemon=True)
        self._is_broken = False

    def read(self, most: int) -> asyncio.Queue[bytes | None]:
        """Begin to read. Lines that say something arrive whole; `b""` stands for one of more than `most`
        bytes, `None` for the end."""
        # One line ahead: a client that writes faster than it is answered waits.
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(1)
        loop = asyncio.get_running_loop()
        reader = threading.Thread(target=self._read, args=(lines, loop, most), name="MCP input", daemon=True)
        reader.start()
        return lines

    def _read(self, lines: asyncio.Queue[bytes | None], loop: asyncio.AbstractEventLoop, most: int) -> None:
        def put(line: bytes | None) -> None:
            putting = lines.put(line)
            try:
                asyncio.run_coroutine_threadsafe(putting, loop).result()
            except RuntimeError:
                putting.close()
                raise

        begun, is_long = bytearray(), False
        try:
            while piece := self._piece():
                *whole, rest = piece.split(b"\n")
                for line in whole:
                    begun += line
                    if is_long or len(begun) > most:
                        put(b"")
                    elif said := bytes(begun).strip():
                        put(said)
                    begun, is_long = bytearray(), False
                begun += rest
                if len(begun) > most:
                    begun, is_long = bytearray(), True
            put(None)
        except RuntimeError:
            return  # the loop has ended, and nobody waits for more

    def _piece(self) -> bytes:
        try:
            return os.read(self._reading, AT_ONCE)
        except OSError:
            return b""

    def begin_writing(self) -> None:
        """Let lines go out."""
        self._writer.start()

    def write(self, line: bytes) -> None:
        """Send a line, soon."""
        if not self._is_broken:
            self._out.put(line + b"\n")

    def _write(self) -> None:
        while (line := self._out.get()) is not None:
            left = memoryview(line)
            try:
                while left:
                    left = left[os.write(self._writing, left) :]
            except OSError:
                self._is_broken = True
                return

    def close(self) -> None:
        """Wait a moment until the last lines are out."""
        self._out.put(None)
        if self._writer.is_alive():
            self._writer.join(GOODBYE)
