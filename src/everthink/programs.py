"""A program that runs for us: it ends when we do, and what it says is in the log.

    our own end     --a pipe that nobody holds--> leashed: so does the program, and what it has started
    standard error  --bytes--> a pipe --logged--> a logger, line by line

A line of the log is cut, and of many at once only the first are written; what a program said last, before it
died, is read before the pipe is closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TextIO

from .masking import mask
from .plain import cut, plain

__all__ = ["leashed", "logged"]

LONGEST_LINE = 2_000
MOST_LINES = 50
"""So many lines of one read (64 KiB) are written."""
_READ = 65_536
_SHELL = "/bin/sh"

# --- its end


_LEASH = """
((
    trap '' TERM
    exec <"$1"
    rm -rf "${1%/*}"
    read -r said || { kill -TERM -$$; sleep 3; kill -KILL -$$; }
) >/dev/null 2>&1 &)
shift
unset PWD OLDPWD SHLVL
exec "$@"
"""
"""Becomes the program, beside somebody who reads a pipe that we hold: when that ends without a word, we were
killed, and so is whatever the program has started. Many programs go on when their input ends."""


@contextmanager
def leashed(command: str, args: Sequence[str], path: str | None) -> Generator[tuple[str, list[str]]]:
    """A command that ends with us, even if we are killed: for as long as the block lasts."""
    if not os.path.exists(_SHELL) or shutil.which(command, path=path) is None:
        yield command, list(args)  # what cannot be run says so best by itself
        return
    with tempfile.TemporaryDirectory(prefix="everthink-", ignore_cleanup_errors=True) as folder:
        fifo = os.path.join(folder, "leash")
        os.mkfifo(fifo, 0o600)
        held = os.open(fifo, os.O_RDWR)
        try:
            yield _SHELL, ["-c", _LEASH, "everthink", fifo, command, *args]
        finally:
            os.write(held, b"done\n")
            os.close(held)


# --- standard error


@contextmanager
def logged(
    log: logging.Logger, name: str, said: Callable[[str], object] = lambda line: None
) -> Generator[TextIO]:
    """A file for a program to write to, until the block ends. `said` is given each line, too."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    loop = asyncio.get_running_loop()
    lines = _Lines(log, name, said)

    def heard() -> bool:
        try:
            read = os.read(reading, _READ)
        except BlockingIOError:
            return False
        lines.take(read)
        return bool(read)

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

    def __init__(self, log: logging.Logger, name: str, said: Callable[[str], object]) -> None:
        self._log, self._name, self._said = log, name, said
        self._pending = b""

    def take(self, said: bytes) -> None:
        *lines, pending = said.split(b"\n")
        if lines:
            lines[0] = self._pending + lines[0]
            self._pending = b""
        self._pending = (self._pending + pending)[:LONGEST_LINE]
        for line in lines[:MOST_LINES]:
            self._write(line)
        if len(lines) > MOST_LINES:
            self._log.info("%s: (%d more lines)", self._name, len(lines) - MOST_LINES)

    def end(self) -> None:
        if self._pending:
            self._write(self._pending)

    def _write(self, line: bytes) -> None:
        text = cut(mask(plain(line.removesuffix(b"\r").decode(errors="replace"))), LONGEST_LINE)
        self._log.info("%s: %s", self._name, text)
        self._said(text)
