"""Large work that Python's collector of circles leaves alone.

The collector looks at all objects there are whenever those that last have grown by a quarter, and nobody has
a turn meanwhile: 300 ms for what a folder of fifty thousand files comes to. Work that makes so many objects,
and no circles of them, keeps it still until it is over; what it made is freed by then.
"""

from __future__ import annotations

import gc
from threading import Lock
from types import TracebackType

__all__ = ["Uncollected"]


class Uncollected:
    """From `begin` to the end of the block the collector is still. Blocks may overlap, in all threads."""

    __slots__ = ("_is_held",)

    def __init__(self) -> None:
        self._is_held = False

    def __enter__(self) -> Uncollected:
        return self

    def begin(self) -> None:
        """There is much to do. Saying it again changes nothing."""
        if not self._is_held:
            self._is_held = True
            _hold(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_held:
            self._is_held = False
            _hold(-1)


def _hold(change: int) -> None:
    global _holders, _was_on
    with _lock:
        if _holders == 0:
            _was_on = gc.isenabled()
            gc.disable()
        _holders += change
        if _holders == 0 and _was_on:
            if not gc.get_freeze_count():
                # What is left counts as old at once. Looked at now, as new, it would hold everybody.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


_lock = Lock()
_holders = 0
_was_on = True
"""Whoever runs without the collector goes on without it."""
