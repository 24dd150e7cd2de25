"""What arrives from clients: counted while it has no end yet, and read once it is whole.

    GuardedProtocol, bodies --bytes so far--> Arriving --too much in all--> let_go, of one of them
    socket --text, RawText--> decoded --> ClientFrame | Refused | None

Honest ones come to an end. When there is no more room, one goes: of the address that holds most, who has
taken longest. There is one account for the process, because there is one memory.
Short frames are read at once. A long one takes a while, and one thread reads them all: whoever sends many
waits for their own, and nobody waits who sends short ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, ClassVar, NamedTuple

from ..limits import Limits
from ..wire.codec import Refused, decode
from ..wire.frames import ClientFrame

__all__ = ["RAW", "Arriving", "LetGo", "RawText", "arrived", "decoded"]

log = logging.getLogger("everthink.server")

# --- what has no end yet

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


# --- what is whole

RAW = 64 * 1024
"""Text that is longer stays bytes where the server lets us: see `guarded.py`."""
LONG = 256 * 1024
"""Text that is longer is read beside the event loop."""


class RawText(NamedTuple):
    """A text that has not been decoded: one emoji would make it four times as large."""

    data: bytes

    def text(self) -> str | None:
        """The text; `None` when it is none."""
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            return None


def arrived(event: Any) -> str | bytes | RawText:
    """What an event of the server brought."""
    if (raw := event.get("raw_text")) is not None:
        return RawText(raw)
    text = event.get("text")
    return text if text is not None else event.get("bytes") or b""


async def decoded(message: str | RawText, limits: Limits) -> ClientFrame | Refused | None:
    """The frame in a text, a refusal, or `None` when it is not ours."""
    text = message if isinstance(message, str) else message.data
    if len(text) <= LONG:
        return decode(text, limits)
    return await asyncio.get_running_loop().run_in_executor(_reader(), decode, text, limits)


@cache
def _reader() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "everthink-reader")
