"""What tests of an agent need: a scripted model, a clock that stands still, served models, contracts.

from everthink.testing import ScriptedModel, says, calls
"""

from .clock import ManualClock
from .scripted import (
    Play,
    ScriptedModel,
    attaches,
    calls,
    calls_raw,
    cites,
    fails,
    hangs,
    opens,
    overflows,
    says,
    thinks,
    waits,
)

__all__ = [
    "ManualClock",
    "Play",
    "ScriptedModel",
    "attaches",
    "calls",
    "calls_raw",
    "cites",
    "fails",
    "hangs",
    "opens",
    "overflows",
    "says",
    "thinks",
    "waits",
]
