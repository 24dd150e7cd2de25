"""Calls that run, and how each is stopped when its client cancels it.

    Service --listed--> InFlight <--stop-- http.py, stdio.py: a client says `notifications/cancelled`

A client that is gone has said nothing: then the turn goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

__all__ = ["Begun", "InFlight", "Key"]

Key = tuple[str, str]
"""What a client and its request are known by."""
Begun = Callable[[Callable[[], object]], None]
"""Told what stops a call, once there is something to stop."""


class _Call:
    """A call that runs."""

    def __init__(self) -> None:
        self._stop: Callable[[], object] | None = None
        self._is_stopped = False

    def begun(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        if self._is_stopped:
            stop()

    def stop(self) -> None:
        self._is_stopped = True
        if self._stop is not None:
            self._stop()


class InFlight:
    """The calls that run in this process."""

    def __init__(self) -> None:
        self._calls: dict[Key, _Call] = {}

    @contextlib.contextmanager
    def listed(self, key: Key) -> Generator[Begun]:
        """List a call while the block runs. A client that uses an id twice can cancel the last of them."""
        call = self._calls[key] = _Call()
        try:
            yield call.begun
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]

    def stop(self, key: Key) -> bool:
        """Stop a call, or what it is about to begin. False when there is none of that name."""
        call = self._calls.get(key)
        if call is not None:
            call.stop()
        return call is not None
