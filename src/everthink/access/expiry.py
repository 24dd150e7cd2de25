"""A connection that was let in for a while is closed when that is over.

    Granted(until=…) --> Connection.until --timer--> close 4401

One timer for each such connection, on the app's clock; nothing is polled.
"""

from __future__ import annotations

from collections.abc import Callable

from ..clock import Clock, Timer

__all__ = ["EXPIRED", "close_when_expired", "is_expired"]

EXPIRED = (4401, "Session expired")
"""How it is closed: clients stay away after a code of this kind."""
LONGEST = 24 * 60 * 60.0
"""Seconds that one timer runs at most: a machine that slept wakes to a later time than it counted."""


def is_expired(until: float | None, clock: Clock) -> bool:
    """True when a time, in seconds since 1970, is over. `None` never is."""
    return until is not None and until * 1000 <= clock.now_ms()


def close_when_expired(
    until: float | None, close: Callable[[int, str], None], clock: Clock
) -> Callable[[], None]:
    """Close a connection when its time is over. Returns how to call that off."""
    timer: Timer | None = None

    def look() -> None:
        nonlocal timer
        timer = None
        if is_expired(until, clock):
            close(*EXPIRED)
        elif until is not None:
            left = until - clock.now_ms() / 1000
            timer = clock.call_later(min(left, LONGEST), look, housekeeping=True)

    def call_off() -> None:
        if timer is not None:
            timer.cancel()

    look()
    return call_off
