"""Wait for a server that is away for a moment: it restarts, or a new one takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..backoff import backoff
from ..errors import StoreUnavailable
from .failures import failures, from_server

__all__ = ["patiently"]

_T = TypeVar("_T")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two attempts."""


async def patiently(attempt: Callable[[], Awaitable[_T]], where: str, patience: float, *, kept: str) -> _T:
    """Return what `attempt` returns. While the server is away, try again for `patience` seconds.

    Only for what may be done twice: connecting and reading.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience
    failed = 0
    while True:
        try:
            return await attempt()
        except failures() as error:
            failed += 1
            pause = backoff(failed, first=FIRST_PAUSE, most=LONGEST_PAUSE)
            translated = from_server(error, where, kept=kept)
            if not isinstance(translated, StoreUnavailable) or clock() + pause > deadline:
                raise translated from error
        await asyncio.sleep(pause)
