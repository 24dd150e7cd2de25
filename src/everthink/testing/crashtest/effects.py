"""What tools do to the world, as lines of a file: the one thing a database cannot take back.

a tool --effect("mail to Ada")--> the file that EVERTHINK_EFFECTS names --> judge: once, or reported
"""

from __future__ import annotations

import os

__all__ = ["EFFECTS", "effect"]

EFFECTS = "EVERTHINK_EFFECTS"


def effect(what: str) -> None:
    """Write down that a tool has done something. Does nothing outside of a crash test."""
    if path := os.environ.get(EFFECTS):
        line = what.replace("\n", " ") + "\n"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
