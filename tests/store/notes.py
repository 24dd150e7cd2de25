"""A table of notes, and children that use it."""

from __future__ import annotations

import subprocess
import sys

from everthink.store.port import Migration, Statement

__all__ = ["COUNT", "SCHEMA", "put", "python"]

SCHEMA = [Migration(1, "notes", ("CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT)",))]
COUNT = "SELECT COUNT(*) FROM notes"


def put(id: str, body: str = "") -> list[Statement]:
    """A commit that stores a note."""
    return [Statement("INSERT INTO notes (id, body) VALUES (?, ?)", (id, body))]


def python(code: str, *args: object) -> subprocess.Popen[str]:
    """Another process that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
