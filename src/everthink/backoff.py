"""How long to wait before the next attempt: longer after each failure, up to a bound."""

from __future__ import annotations

__all__ = ["backoff"]

LARGEST_EXPONENT = 60
"""Beyond it every bound is reached, and a float would overflow."""


def backoff(failures: int, *, first: float, most: float, growth: float = 2.0) -> float:
    """Seconds to wait after so many failures in a row: `first` after one, longer after each further one."""
    return min(most, first * growth ** min(max(failures - 1, 0), LARGEST_EXPONENT))
