"""What has begun to arrive and has no end yet: frames of sockets, bodies of requests.

    GuardedProtocol, bodies --bytes so far--> Arriving --too much in all--> let_go, of one of them

Honest ones come to an end. When there is no more room, one goes: of the address that holds most, who has
taken longest. There is one account for the process, because there is one memory.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

__all__ = ["Arriving", "LetGo"]

log = logging.getLogger("everthink.server")

LIGHT = 4 * 1024
"""Whoever holds no more makes no room by going."""


LetGo = Callable[[], None]
"""Drops what has arrived of somebody, and refuses the rest. It is what they are known by."""


class Arriving:
    """Everything that has begun to arrive, oldest first."""

    in_all: ClassVar[int] = 0
    # From which address, and how many bytes.
    _held: ClassVar[dict[LetGo, tuple[str, int]]] = {}

    @classmethod
    def hold(cls, let_go: LetGo, size: int, address: str = "") -> None:
        """So many bytes of this one are here now; 0: it has come to its end."""
        _, before = cls._held.get(let_go, ("", 0))
        cls.in_all += size - before
        if size:
            cls._held[let_go] = address, size
        else:
            cls._held.pop(let_go, None)

    @classmethod
    def keep_within(cls, most: int) -> None:
        """Let one go when there is too much."""
        if cls.in_all <= most:
            return
        by_address: Counter[str] = Counter()
        for address, held in cls._held.values():
            by_address[address] += held
        [(heaviest, _)] = by_address.most_common(1)
        for let_go, (address, held) in cls._held.items():
            if held > LIGHT and address == heaviest:
                log.warning("what does not end is refused: %d bytes have begun to arrive in all", cls.in_all)
                cls.hold(let_go, 0)
                let_go()
                return
