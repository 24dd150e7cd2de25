"""Which streams a connection was offered, and how often it has got them.

    ChatSockets --offer--> Offers <--ack-- client        an ack without a new offer gets nothing a second time

A replay is as long as an answer and an ack is sixty bytes, so nobody gets a stream by asking twice.
"""

from __future__ import annotations

__all__ = ["Offers"]

MOST_STREAMS = 32
"""So many streams are remembered, the latest."""


class Offers:
    """The streams that one connection has to do with."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        # By request: how often it was told, and whether it has been offered since.
        self._streams: dict[str, tuple[int, bool]] = {}

    def offer(self, id: str) -> None:
        """The stream was offered: the next ack gets it."""
        told, _ = self._streams.pop(id, (0, True))
        self._streams[id] = (told, True)
        while len(self._streams) > MOST_STREAMS:
            del self._streams[next(iter(self._streams))]

    def take(self, id: str, most: int) -> bool:
        """True when an ack gets the stream now. `most` is how often it may."""
        told, is_open = self._streams.get(id, (0, True))
        if not is_open:
            return False
        self.offer(id)
        self._streams[id] = (told + 1, False)
        return told < most
