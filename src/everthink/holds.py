"""Hold an agent in memory while something is going on that no row tells of.

    keep_alive(), a running timer, job or fiber --> Holds.take() --> count > 0: the agent stays

A count in memory and nothing else: it does not survive a restart. What must survive one is a row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

from .calling import awaited

__all__ = ["Hold", "Holds", "while_held"]

T = TypeVar("T")


class Holds:
    """How many reasons there are for an agent to stay in memory."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> Hold:
        """One more reason, until it is released."""
        return Hold(self)


class Hold:
    """One reason to stay in memory; it counts from the moment it is made.

        async with self.keep_alive():
            ...

        hold = self.keep_alive()
        ...
        hold.release()

    Releasing twice is harmless.
    """

    def __init__(self, holds: Holds) -> None:
        self._holds = holds
        self.is_released = False
        holds.count += 1

    def release(self) -> None:
        """Let go."""
        if not self.is_released:
            self.is_released = True
            self._holds.count -= 1

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    async def __aenter__(self) -> Hold:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.release()

    def __await__(self) -> Generator[Any, None, Hold]:
        return self.__aenter__().__await__()


async def while_held(hold: Hold, fn: Callable[[], T | Awaitable[T]]) -> T:
    """Call `fn` and let go afterwards, however it ends."""
    with hold:
        return await awaited(fn())
