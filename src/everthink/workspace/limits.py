"""How much a workspace may hold: every bound in one value.

    Workspace(limits=WorkspaceLimits(files_bytes=…)) --> paths, plan, Workspace

What is over a bound is refused, and the refusal names the bound.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from ..errors import InvalidSettings

__all__ = ["UNLIMITED", "WorkspaceLimits"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceLimits:
    """The bounds of one agent's files. Each has a default; raise what you need."""

    path_bytes: int = 4_096
    """Bytes of a path, and of a link's target."""
    name_bytes: int = 255
    """Bytes of one part of a path."""
    depth: int = 100
    """Parts of a path."""
    file_bytes: int = 100 * MIB
    """Bytes of one file."""
    files_bytes: int = 512 * MIB
    """Bytes of all files together. What is kept only to undo changes does not count."""
    entries: int = 50_000
    """Files, folders and links."""
    history: int = 1_000
    """Changes that are kept to be undone. The last edit can be undone however many changes it was."""
    history_days: int = 30
    """For how long they are kept."""
    history_bytes: int = 512 * MIB
    """Bytes of earlier contents that are kept for them."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidSettings(
                    f"WorkspaceLimits({field.name}={value!r}): a limit is a whole number above 0.",
                    next_step="Leave it out for the default, or give a large number for hardly any limit.",
                )


UNLIMITED = WorkspaceLimits(file_bytes=sys.maxsize, files_bytes=sys.maxsize, entries=sys.maxsize)
"""What a backend assumes that nobody gave limits: those of paths only."""
