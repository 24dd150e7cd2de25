"""A loop beside the main thread, which belongs to the person: conversations live on it.

main thread --Here.run, Here.start--> the other thread's loop --> Conversation
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["Here", "beside"]

T = TypeVar("T")


class Here:
    """Runs coroutines on the other thread's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, work: Coroutine[Any, Any, T]) -> Any:
        """Begin `work`; `result()` of what is returned waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` and wait for it."""
        return self.start(work).result()


@contextlib.contextmanager
def beside() -> Generator[Here]:
    """A loop in a thread of its own, until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="everthink chat", daemon=True)
    thread.start()
    try:
        yield Here(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(2)
        loop.close()
