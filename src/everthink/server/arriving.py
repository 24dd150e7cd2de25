"""What has begun to arrive and has no end yet: frames of sockets, bodies of requests.

    GuardedProtocol, bodies --bytes so far--> Arriving --too much in all--> let_go, of one of them

Honest ones come to an end. When there is no more room, one goes: of the address that holds most, who has
taken longest. There is one account for the process, because there is one memory.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import ClassVar, Protocol

__all__ = ["Arriving", "Begun"]

log = logging.getLogger("everthink.server")

LIGHT = 4 * 1024
"""Whoever holds no more makes no room by going."""


class Begun(Protocol):
    """Somebody who has begun to say something."""

    @property
    def address(self) -> str:
        """Where they are."""
        ...

    def let_go(self) -> None:
        """Drop what has arrived, and refuse the rest."""
        ...


class Arriving:
    """Everything that has begun to arrive, oldest first."""

    in_all: ClassVar[int] = 0
    _held: ClassVar[dict[Begun, int]] = {}

    @classmethod
    def hold(cls, one: Begun, size: int) -> None:
        """So many bytes of this one are here now; 0: it has come to its end."""
        cls.in_all += size - cls._held.get(one, 0)
        if size:
            cls._held[one] = size
        else:
            cls._held.pop(one, None)

    @classmethod
    def keep_within(cls, most: int) -> None:
        """Let one go when there is too much."""
        if cls.in_all <= most:
            return
        by_address: Counter[str] = Counter()
        for one, held in cls._held.items():
            by_address[one.address] += held
        [(heaviest, _)] = by_address.most_common(1)
        for one, held in cls._held.items():
            if held > LIGHT and one.address == heaviest:
                log.warning("what does not end is refused: %d bytes have begun to arrive in all", cls.in_all)
                cls.hold(one, 0)
                one.let_go()
                return
