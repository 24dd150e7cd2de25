"""Call an `@exposed` method for an MCP client: as a call over a socket, with arguments by name.

Visit --CallMethod--> server/rpc.py --CallResult, or several of a streaming method--> Called

A caller has so many calls of one agent at once, as a socket has: a request stands alone, so they are counted
by who calls, or by the address of whoever is nobody in particular.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from ..messages import encode_json
from ..runtime.actor import Actor
from ..server.rpc import answer_call
from ..tasks import begin
from ..wire.frames import CallMethod
from .asking import Progress
from .callers import Caller
from .in_flight import Begun

__all__ = ["Called", "Running", "call_method"]

STOPPED = "The call was stopped."


@dataclass(slots=True)
class Called:
    """What a method returned, or why it did not."""

    result: Any = None
    pieces: list[Any] = field(default_factory=list[Any])
    """What a streaming method sent before its end."""
    error: str | None = None


class Running:
    """The methods that run: how many of each caller, at each agent."""

    def __init__(self) -> None:
        self._calls = Counter[tuple[str, str]]()

    def is_full(self, actor: Actor, caller: Caller) -> bool:
        """True when a caller has as many as one may have."""
        return self._calls[_whose(actor, caller)] >= actor.limits.calls_at_once

    def note(self, actor: Actor, caller: Caller, call: asyncio.Future[Any]) -> None:
        """Count a call until it has ended, whether its caller waits for that or not."""
        whose = _whose(actor, caller)
        self._calls[whose] += 1
        call.add_done_callback(lambda _: self._forget(whose))

    def _forget(self, whose: tuple[str, str]) -> None:
        self._calls[whose] -= 1
        if not self._calls[whose]:
            del self._calls[whose]


def _whose(actor: Actor, caller: Caller) -> tuple[str, str]:
    return actor.id, caller.mark or caller.address or ""


async def call_method(
    actor: Actor,
    caller: Caller,
    method: str,
    arguments: tuple[Any, ...],
    *,
    tell: Progress,
    begun: Begun,
    among: Running,
) -> Called:
    """Call it, and wait for its end. What it sends on the way is progress. `begun` is given what stops it.

    A call goes on when its caller has left, as it does on a socket.
    """
    called, heard, more = Called(), deque[dict[str, Any]](), asyncio.Event()

    def hear(answer: dict[str, Any]) -> None:
        heard.append(answer)
        more.set()

    caller.hear = hear
    frame = CallMethod(caller.id, method, list(arguments))
    running = begin(answer_call(actor, caller, frame), f"{method} for an MCP client", tell=actor.emit)
    among.note(actor, caller, running)
    running.add_done_callback(lambda _: more.set())
    actor.background(running)
    begun(running.cancel)
    while heard or not running.done():
        while heard:
            await _take(called, heard.popleft(), tell)
        if not running.done():
            more.clear()
            await more.wait()
    return Called(error=STOPPED) if running.cancelled() else called


async def _take(called: Called, answer: dict[str, Any], tell: Progress) -> None:
    if not answer["success"]:
        called.error = answer.get("error") or "Unknown error occurred"
    elif answer.get("done"):
        called.result = answer.get("result")
    else:
        piece = answer.get("result")
        called.pieces.append(piece)
        await tell(len(called.pieces), piece if isinstance(piece, str) else encode_json(piece).decode())
