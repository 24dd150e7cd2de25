"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from ..clock import Timer

__all__ = ["ManualClock"]


class _Alarm:
    def __init__(self, callback: Callable[[], object], *, counts: bool) -> None:
        self.callback: Callable[[], object] | None = callback
        self.counts = counts

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Time that only `advance` moves. Sleepers and timers due on the way wake in order."""

    def __init__(self, start_ms: int = 1_800_000_000_000) -> None:
        self._now = start_ms / 1000
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._order = itertools.count()
        self._sleeping = asyncio.Event()

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as this clock is concerned."""
        return round(self._now * 1000)

    def monotonic(self) -> float:
        """The same time in seconds."""
        return self._now

    @property
    def waiting(self) -> int:
        """How many sleepers and timers wait, housekeeping left out."""
        return sum(alarm.callback is not None and alarm.counts for _, _, alarm in self._alarms)

    def call_later(
        self, seconds: float, callback: Callable[[], object], *, housekeeping: bool = False
    ) -> Timer:
        """Call `callback` once the clock was moved by `seconds`."""
        alarm = _Alarm(callback, counts=not housekeeping)
        heapq.heappush(self._alarms, (self._now + max(0.0, seconds), next(self._order), alarm))
        self._sleeping.set()
        return alarm

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was moved by `seconds`."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        alarm = self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        try:
            await woken
        finally:
            alarm.cancel()

    async def until_waiting(self) -> None:
        """Return once somebody sleeps or has set a timer."""
        while not self.waiting:
            self._sleeping.clear()
            await self._sleeping.wait()

    async def advance(self, seconds: float) -> None:
        """Move the time; everything due happens in order, and gets a chance to act on it."""
        end = self._now + seconds
        while self._alarms and self._alarms[0][0] <= end:
            due, _, alarm = heapq.heappop(self._alarms)
            self._now = max(self._now, due)
            if alarm.callback is not None:
                alarm.callback()
                for _ in range(5):
                    await asyncio.sleep(0)
        self._now = end
        await asyncio.sleep(0)
