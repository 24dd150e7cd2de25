"""Names for the cases of a test that every worker gives alike."""

from __future__ import annotations

import re

__all__ = ["by_repr"]


def by_repr(value: object) -> str:
    """A value as it is written, without where it is in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
