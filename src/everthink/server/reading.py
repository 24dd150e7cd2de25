"""Reading what a socket sent: short frames at once, long ones beside the event loop.

    socket --text, RawText--> decoded --> ClientFrame | Refused | None

A long frame takes a while to read, and one thread reads them all: whoever sends many waits for their own,
and nobody waits who sends short ones.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

from ..limits import Limits
from ..wire.codec import Refused, decode
from ..wire.frames import ClientFrame

__all__ = ["RAW", "RawText", "arrived", "decoded"]

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
