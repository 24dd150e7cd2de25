"""What happens when a message arrives while a turn runs: `message_concurrency`.

    policy + overlap --> Enqueue | Supersede | Drop

Decisions are pure; `Overlaps` holds the few numbers they need. Only messages typed into a
chat are subject to this: never a regeneration, never a call from code.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from ..errors import TooManyTurns
from ..limits import Limits

__all__ = [
    "LONGEST_WAIT",
    "Debounce",
    "Decision",
    "Drop",
    "Enqueue",
    "MessageConcurrency",
    "Overlaps",
    "Supersede",
    "decide",
    "refuse_more_than_a_share",
    "refuse_when_full",
]

log = logging.getLogger("everthink.turn")

DEFAULT_DEBOUNCE = 0.75
LONGEST_WAIT = 10
"""So many times the quiet moment somebody waits for one at most."""


@dataclass(frozen=True, slots=True)
class Debounce:
    """Wait for a quiet moment of `seconds` before answering the newest message.

    Nobody waits longer than ten times that, however much is written meanwhile. What is no number of seconds,
    0 or more, is logged, and 0.75 is taken.
    """

    seconds: Any = DEFAULT_DEBOUNCE

    def __post_init__(self) -> None:
        if _quiet(self.seconds) != self.seconds or isinstance(self.seconds, bool):
            log.warning(
                "Debounce(%r) is no number of seconds, 0 or more; %s is taken.",
                self.seconds,
                DEFAULT_DEBOUNCE,
            )


MessageConcurrency = Literal["queue", "latest", "merge", "drop", "debounce"] | Debounce


@dataclass(frozen=True, slots=True)
class Enqueue:
    """A turn of its own, after those before it."""


@dataclass(frozen=True, slots=True)
class Supersede:
    """Stored, but skipped when a newer message came before its turn. `quiet` seconds are waited first."""

    quiet: float = 0.0


@dataclass(frozen=True, slots=True)
class Drop:
    """Not taken at all."""


Decision = Enqueue | Supersede | Drop


def decide(policy: Any, *, overlaps: bool) -> Decision:
    """What to do with a message. `policy` is an agent's `message_concurrency`."""
    if not overlaps or policy == "queue":
        return Enqueue()
    match policy:
        case "latest" | "merge":
            return Supersede()
        case "drop":
            return Drop()
        case "debounce":
            return Supersede(DEFAULT_DEBOUNCE)
        case Debounce(seconds):
            return Supersede(_quiet(seconds))
        case _:
            raise ValueError(
                f"message_concurrency is {policy!r}; "
                "use 'queue', 'latest', 'merge', 'drop', 'debounce' or Debounce(seconds)."
            )


def refuse_when_full(waiting: int, limits: Limits) -> None:
    """Raise when so many turns wait that a client may not add one. Code of the application always may."""
    if waiting >= limits.waiting_turns:
        raise TooManyTurns(waiting, limits.waiting_turns)


def refuse_more_than_a_share(theirs: int, limits: Limits) -> None:
    """Raise when one person holds half of the places: the others want theirs."""
    share = max(1, limits.waiting_turns // 2)
    if theirs >= share:
        raise TooManyTurns(theirs, share)


def _quiet(seconds: Any) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return DEFAULT_DEBOUNCE
    value = cast("float", seconds)
    return float(value) if math.isfinite(value) and value >= 0 else DEFAULT_DEBOUNCE


class Overlaps:
    """Messages between accepted and queued, and which of the overlapping ones is the newest."""

    __slots__ = ("_epoch", "_newest", "_pending", "_waiters", "since")

    def __init__(self) -> None:
        self._epoch = 0
        self._pending = 0
        self._newest = 0
        self.since: float | None = None
        """When the first message came that waits for a quiet moment."""
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    @property
    def pending(self) -> int:
        """How many are accepted but not yet in the queue."""
        return self._pending

    def take(self) -> Callable[[], None]:
        """Count one in. Returns how to count it out, once; without effect after a reset."""
        self._pending += 1
        epoch, left = self._epoch, False

        def release() -> None:
            nonlocal left
            if not left and epoch == self._epoch:
                self._pending -= 1
            left = True

        return release

    def number(self) -> int:
        """The next number of an overlapping message."""
        self._newest += 1
        return self._newest

    def is_superseded(self, number: int | None) -> bool:
        """True when a newer overlapping message came."""
        return number is not None and number < self._newest

    async def quiet(self, wait: Callable[[], Any]) -> None:
        """Wait with `wait()`, or until a reset."""
        loop = asyncio.get_running_loop()
        released: asyncio.Future[None] = loop.create_future()
        self._waiters += (released,)
        waiting = asyncio.ensure_future(wait())
        try:
            await asyncio.wait([waiting, released], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            self._waiters = tuple(waiter for waiter in self._waiters if waiter is not released)
            released.cancel()

    def reset(self) -> None:
        """Forget everything; whoever waits goes on at once."""
        self._epoch += 1
        self._pending = 0
        self.since = None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
