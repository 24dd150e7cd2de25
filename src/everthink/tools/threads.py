"""Threads for tools that are plain functions.

    run._in_thread --> start --> a thread that waits for work, or a new one

Not asyncio's pool: that one is small, shared with name lookups, and waited for when the process ends. A
tool that never returns would take a place in it for good and then keep the process alive. Here it keeps
a thread of its own, and the next tool gets another.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

__all__ = ["start"]

_MOST_IDLE = 16
_IDLE_SECONDS = 10.0


def start(name: str, work: Callable[[], None]) -> None:
    """Run `work`, which must not raise, in a thread that bears this name meanwhile."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
        worker.start()
    worker.orders.put((name, work))


class _Worker(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.orders: queue.SimpleQueue[tuple[str, Callable[[], None]]] = queue.SimpleQueue()

    def run(self) -> None:
        while self._work() and len(_idle) < _MOST_IDLE:
            _idle.append(self)

    def _work(self) -> bool:
        try:
            self.name, work = self.orders.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            try:
                _idle.remove(self)
            except ValueError:  # somebody took it in this very moment: the order is on its way
                self.name, work = self.orders.get()
            else:
                return False
        work()
        self.name = "idle tool"
        return True


_idle: list[_Worker] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads do not live on in a child
