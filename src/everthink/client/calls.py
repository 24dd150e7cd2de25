"""Methods of an agent, called from afar: what was sent, and who waits for which answer."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from ..errors import CallFailed, NotConnected
from ..wire import frames as wire
from .line import Line

__all__ = ["Calls"]


class Calls:
    """The calls that are under way over a line. One that is cut off is not made again: it may have run."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._waiting: dict[str, asyncio.Queue[wire.CallResult | Exception]] = {}

    async def stream(self, method: str, *args: Any) -> AsyncGenerator[Any]:
        """Call a method: each piece that it sends, and last what it returned, if anything."""
        id = secrets.token_hex(8)
        answers = self._waiting[id] = asyncio.Queue()
        try:
            await self._line.send(wire.CallMethod(id, method, list(args)))
            while True:
                answer = await answers.get()
                if isinstance(answer, Exception):
                    raise _cut_off(method, answer)
                if not answer.success:
                    raise CallFailed(method, answer.error or "Unknown error occurred")
                if answer.result is not msgspec.UNSET:
                    yield answer.result
                if answer.done is not False:
                    return
        finally:
            del self._waiting[id]

    def hear(self, answer: wire.CallResult) -> None:
        """An answer arrived."""
        if answer.id in self._waiting:
            self._waiting[answer.id].put_nowait(answer)

    def fail(self, error: Exception) -> None:
        """Nothing more comes for the calls that wait."""
        for answers in self._waiting.values():
            answers.put_nowait(error)


def _cut_off(method: str, error: Exception) -> NotConnected:
    lost = NotConnected(
        f"The connection was lost while {method!r} was called.",
        kept="Whether it ran is not known.",
        next_step="Look at the agent's state before you call again.",
    )
    lost.__cause__ = error
    return lost
