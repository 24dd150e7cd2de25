"""A clock that runs like the machine's and can be put forward, so that nobody waits for a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...clock import SystemClock, Timer

__all__ = ["ForwardClock"]


class ForwardClock(SystemClock):
    """The machine's time plus `ahead` seconds. Timers that `put_ahead` passes are due at once."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.ahead = ahead
        self._timers: set[_Timer] = set()

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as this clock is concerned."""
        return super().now_ms() + round(self.ahead * 1000)

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return super().monotonic() + self.ahead

    def call_later(
        self, seconds: float, callback: Callable[[], object], *, housekeeping: bool = False
    ) -> Timer:
        """Call `callback` after `seconds`, or when the clock was put forward by as much."""
        timer = _Timer(self, self.monotonic() + seconds, callback)
        self._timers.add(timer)
        return timer

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`, or when the clock was put forward by as much."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def put_ahead(self, ahead: float) -> None:
        """Be `ahead` seconds before the machine's time. Never back."""
        self.ahead = max(self.ahead, ahead)
        for timer in list(self._timers):
            timer.set()

    def drop(self, timer: _Timer) -> None:
        """A timer rang or was cancelled."""
        self._timers.discard(timer)


class _Timer:
    def __init__(self, clock: ForwardClock, due: float, callback: Callable[[], object]) -> None:
        self._clock, self._due, self._callback = clock, due, callback
        self._handle: asyncio.TimerHandle | None = None
        self.set()

    def set(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        left = max(0.0, self._due - self._clock.monotonic())
        self._handle = asyncio.get_running_loop().call_later(left, self._ring)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._clock.drop(self)

    def _ring(self) -> None:
        self._clock.drop(self)
        self._callback()
