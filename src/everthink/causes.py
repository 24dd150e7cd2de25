"""What lies behind an error: the one it was raised from, or all those of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from .errors import FiberStopped, LeaseLost, StoreClosed, TurnInterrupted

__all__ = ["has_cause", "is_superseded"]

DEEPEST_CAUSE = 8
"""How far down the causes of an error are looked at."""


def is_superseded(error: object) -> bool:
    """True when this process is stopping or no longer owns the agent: the next one goes on."""
    return has_cause(error, lambda e: isinstance(e, LeaseLost | TurnInterrupted | FiberStopped | StoreClosed))


def has_cause(error: object, test: Callable[[BaseException], bool], depth: int = DEEPEST_CAUSE) -> bool:
    """True when the error, or one that it was raised from, passes the test; a group when all of it does."""
    while isinstance(error, BaseException) and depth > 0:
        if test(error):
            return True
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return all(has_cause(member, test, depth - 1) for member in group.exceptions)
        error, depth = error.__cause__, depth - 1
    return False
