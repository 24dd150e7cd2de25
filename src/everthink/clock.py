"""Time as an argument. Everything that asks for the time or waits does it through a `Clock`.

`everthink.testing.ManualClock` is the other one: it stands still until a test moves it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["EPOCH", "Clock", "SystemClock", "Timer", "moment_of", "ms_of"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_000


def moment_of(ms: int) -> datetime:
    """Milliseconds since 1970, as rows and frames have them, as people get them: an aware datetime in UTC."""
    return EPOCH + timedelta(milliseconds=min(max(ms, _FIRST), _LAST))


def ms_of(moment: datetime) -> int:
    """An aware datetime as milliseconds since 1970."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


class Timer(Protocol):
    """Something that will happen later."""

    def cancel(self) -> None:
        """Let it not happen."""
        ...


class Clock(Protocol):
    """The time, and waiting for it."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, for rows and events."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...

    def call_later(
        self, seconds: float, callback: Callable[[], object], *, housekeeping: bool = False
    ) -> Timer:
        """Call `callback` after `seconds`. Nobody waits for `housekeeping`."""
        ...


class SystemClock:
    """The time of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)

    def call_later(
        self, seconds: float, callback: Callable[[], object], *, housekeeping: bool = False
    ) -> Timer:
        """Call `callback` after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback)
