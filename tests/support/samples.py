"""How much of a long test is run: a sample with the others, the whole of it on demand (`make walks`)."""

from __future__ import annotations

import os

__all__ = ["sample"]


def sample(part: int, whole: int) -> int:
    """`whole` when `EVERTHINK_THOROUGH` is set, else `part`."""
    return whole if os.environ.get("EVERTHINK_THOROUGH") else part
