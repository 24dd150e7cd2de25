"""What fibers are given, how they end, and how one that was cut off goes on.

from everthink.fibers import FiberCompleted, FiberContext
"""

from ..facades import help_from
from .values import (
    FiberAborted,
    FiberCompleted,
    FiberContext,
    FiberFailed,
    FiberInspection,
    FiberInterrupted,
    FiberRecovery,
    FiberRecoveryContext,
)

__all__ = [
    "FiberAborted",
    "FiberCompleted",
    "FiberContext",
    "FiberFailed",
    "FiberInspection",
    "FiberInterrupted",
    "FiberRecovery",
    "FiberRecoveryContext",
]

help_from(__name__)
