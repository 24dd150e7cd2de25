"""What tests of an agent need: a scripted model, a clock that stands still, a store that can be watched,
readers that wait, served models, contracts.

from everthink.testing import ScriptedModel, says, calls
"""

from ..facades import help_from
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
from .watched_store import FailingCommit, HeldRead, Traffic, WatchedStore
from .window import Window
from .witness import Witness

__all__ = [
    "FailingCommit",
    "HeldRead",
    "ManualClock",
    "Play",
    "ScriptedModel",
    "Traffic",
    "WatchedStore",
    "Window",
    "Witness",
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

help_from(__name__)
