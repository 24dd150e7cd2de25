"""Wait for a server that is away for a moment: it restarts, or a new one takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...errors import StoreUnavailable
from .failures import failures, from_server

__all__ = ["patiently"]

_T = TypeVar("_T")


async def patiently(attempt: Callable[[], Awaitable[_T]], where: str, patience: float, *, kept: str) -> _T:
    """Return what `attempt` returns. While the server is away, try again for `patience` seconds.

    Only for what may be done twice: connecting and reading.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience
    pause = 0.05
    while True:
        try:
            return await attempt()
        except failures() as error:
            letter = from_server(error, where, kept=kept)
            if not isinstance(letter, StoreUnavailable) or clock() + pause > deadline:
                raise letter from error
        await asyncio.sleep(pause)
        pause = min(2 * pause, 1.0)
