"""What waits for those who do not read: kept once, counted in all, and dropped when it is too much.

    Connection, Answer --Long, texts--> Buffers --too much in all--> give_up, of whoever costs most

A conversation can be twenty megabytes, and sixty windows may open it at once. It is encoded once, as long as
somebody waits for it, and counts once; whoever waits for something that nobody else does costs all of it.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Sequence

from ..messages import Message

__all__ = ["Buffers", "GiveUp", "Latest", "Long"]


class Long:
    """A text as bytes, one for all who wait for it."""

    __slots__ = ("__weakref__", "data", "holders", "source")

    def __init__(self, data: bytes, source: Sequence[Message] = ()) -> None:
        self.data = data
        self.source = source
        """The messages it tells."""
        self.holders = 0
        """How many wait for it."""

    def __len__(self) -> int:
        return len(self.data)


class Latest:
    """A conversation as it was encoded last, while somebody still waits for that."""

    def __init__(self) -> None:
        self._last: weakref.ref[Long] | None = None

    def of(self, messages: Sequence[Message], encode: Callable[[Sequence[Message]], bytes]) -> Long:
        """These messages as text. Messages are not changed but replaced, so the same ones say the same."""
        known = self._last() if self._last is not None else None
        if known is None or not _are_same(known.source, messages):
            known = Long(encode(messages), messages)
            self._last = weakref.ref(known)
        return known


def _are_same(some: Sequence[Message], others: Sequence[Message]) -> bool:
    return len(some) == len(others) and all(map(operator.is_, some, others))


GiveUp = Callable[[], None]
"""Drops all that waits for somebody, and closes. It is what they are known by."""


class Buffers:
    """What waits for those who do not read, of all connections of an app: at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._in_all = most, 0
        # The bytes that are for nobody else, and, in the list of whoever waits, the texts that may be.
        self._waiting: dict[GiveUp, tuple[int, Sequence[Long]]] = {}

    def hold(self, give_up: GiveUp, size: int, longs: Sequence[Long]) -> None:
        """So much waits for this one now, besides what it shares. Too much in all: who costs most goes."""
        before, _ = self._waiting.get(give_up, (0, ()))
        self._in_all += size - before
        self._waiting[give_up] = size, longs
        while self._in_all > self._most and self._waiting:
            slowest = max(self._waiting, key=self._cost)
            slowest()
            self.forget(slowest)

    def _cost(self, give_up: GiveUp) -> float:
        """The bytes that are kept for this one; of what others wait for as well, its part."""
        size, longs = self._waiting[give_up]
        return size + sum(len(long) / max(long.holders, 1) for long in longs)

    def forget(self, give_up: GiveUp) -> None:
        """Nothing waits for this one."""
        size, _ = self._waiting.pop(give_up, (0, ()))
        self._in_all -= size

    def share(self, long: Long) -> None:
        """One more waits for it, who is held next."""
        long.holders += 1
        if long.holders == 1:
            self._in_all += len(long)

    def unshare(self, long: Long) -> None:
        """One waits for it no more."""
        long.holders -= 1
        if not long.holders:
            self._in_all -= len(long)
