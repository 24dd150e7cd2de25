"""Stopping turns: at once in memory, and durably, so that a crash does not bring back what was stopped.

    cancel_chat, a stop from a page --> abort + `turns.stop` --> the turn ends, with what it said

Whoever awaits the answer knows that it is durable. If the process dies before the turn has ended, the next
start ends it where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from ..journal import queries
from ..observe.events import MessageCancel
from ..turn.host import TurnHost

__all__ = ["Stop", "cancel", "cancel_all"]


class Stop:
    """Whether there was something to stop: true or false at once, durable once awaited."""

    __slots__ = ("_found", "_written")

    def __init__(self, found: bool, written: asyncio.Future[Any] | None = None) -> None:
        self._found, self._written = found, written

    def __bool__(self) -> bool:
        return self._found

    def __repr__(self) -> str:
        return f"Stop({self._found})"

    def __await__(self) -> Generator[Any, None, bool]:
        if self._written is not None:
            yield from asyncio.shield(self._written).__await__()
        return self._found


def cancel(host: TurnHost, request_id: str, reason: object = None) -> Stop:
    """Stop one turn, queued or running."""
    if host.aborts.peek(request_id) is None:
        return Stop(False)
    text = None if reason is None else str(reason)
    written = host.store.apply([queries.stopped(request_id, reason=text)])
    host.background(written)
    host.aborts.cancel(request_id, reason)
    host.emit(MessageCancel(request_id=request_id))
    return Stop(True, written)


def cancel_all(host: TurnHost, reason: object = None) -> Stop:
    """Stop every turn of the agent."""
    text = None if reason is None else str(reason)
    written = host.store.apply([queries.all_stopped(reason=text)])
    host.background(written)
    host.aborts.abort_all(reason)
    return Stop(True, written)
