"""A method that a client calls: run it, and answer whoever called.

    CallMethod --> Calls.begin --> answer_call --> CallResult, or several of a streaming method

A connection has so many calls at once, and each is asked about first (`authorize`). Only methods marked with
`@exposed` are reached, and nothing runs to find out which those are. What they raise is told to the caller
in its own words, so that one may raise what is meant to be read; what the database said is not.
Where it was raised is in the log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..access.access import Access
from ..calling import awaited
from ..current import current_connection
from ..errors import UNTOLD, StoreError
from ..json_values import check_sent
from ..masking import mask
from ..observe.events import Rpc, RpcError
from ..runtime.actor import Actor
from ..runtime.rpc import (
    StreamingResponse,
    exposed_method,
    fitting,
    has_method,
)
from ..wire import frames as wire
from .audience import AgentAuditor
from .connections import Connection

__all__ = ["Calls", "answer_call"]


class Calls:
    """The calls of one agent's connections."""

    def __init__(self, actor: Actor, access: Access, audit: AgentAuditor) -> None:
        self._actor, self._access, self._audit = actor, access, audit

    def begin(self, connection: Connection, frame: wire.CallMethod) -> None:
        """Answer a call, in the background."""
        most = self._actor.limits.calls_at_once
        if connection.calls >= most:
            why = f"{most} calls of this connection run already; wait for one of them"
            connection.send(wire.CallResult(frame.id, success=False, error=why))
            self._audit.tell(connection, "call", frame.method, f"{most} calls at once")
            return
        connection.calls += 1
        self._actor.background(self._call(connection, frame))

    async def _call(self, connection: Connection, frame: wire.CallMethod) -> None:
        try:
            await self._answer(connection, frame)
        finally:
            connection.calls -= 1

    async def _answer(self, connection: Connection, frame: wire.CallMethod) -> None:
        actor = self._actor
        why = await self._access.may_call(connection.identity, *actor.outermost)
        is_offered = exposed_method(actor.cls, frame.method) is not None
        reason = "not authorized" if why is not None else None if is_offered else "not callable"
        self._audit.tell(connection, "call", frame.method, reason)
        if why is not None:
            connection.send(wire.CallResult(frame.id, success=False, error=why))
        else:
            await answer_call(actor, connection, frame)


log = logging.getLogger("everthink.server")


async def answer_call(actor: Actor, connection: Connection, call: wire.CallMethod) -> None:
    """Call the method for this connection. Raises nothing but being cancelled."""
    agent = actor.agent

    def answer(fields: dict[str, Any]) -> None:
        check_sent(fields.get("result"), "result", f"@exposed {call.method}")
        connection.send(wire.CallResult(call.id, **fields))

    info = exposed_method(actor.cls, call.method)
    if info is None:
        exists = not call.method.startswith("_") and has_method(actor.cls, call.method)
        what = "is not callable" if exists else "does not exist"
        answer({"success": False, "error": f"Method {call.method} {what}"})
        return
    actor.emit(Rpc(method=call.method, streaming=info.streaming or None))
    current_connection.set(connection)
    stream = StreamingResponse(answer)
    try:
        method = getattr(agent, call.method)
        result = await awaited(method(stream, *call.args) if info.streaming else method(*call.args))
        if info.streaming:
            stream.end(result)  # unless it did so itself: nobody else will, and the caller has no time limit
        else:
            answer({"success": True, "done": True} | ({} if result is None else {"result": result}))
    except (Exception, asyncio.CancelledError) as error:
        if _is_cut(error):
            raise
        text = told = mask(str(error)) or "Unknown error occurred"
        if isinstance(error, asyncio.CancelledError):
            text = told = f"Something that {call.method} waited for was cancelled"
        if _is_our_call(error):
            text = f"Method {call.method} takes other arguments than these {len(call.args)}"
            fits = fitting(getattr(agent, call.method), info)
            # How many is for whoever calls; what they are called, for whoever wrote it.
            text, told = f"{text}: it takes {fits.how_many}", f"{text}: it takes {fits.names}"
        else:
            log.warning(
                "%s: @exposed %s, which a client called, raised", actor.id, call.method, exc_info=error
            )
        actor.emit(RpcError(method=call.method, error=told if str(error) else type(error).__name__))
        if not stream.is_closed:
            answer({"success": False, "error": UNTOLD if isinstance(error, StoreError) else text})


def _is_cut(error: BaseException) -> bool:
    """True when we are being stopped, and not something that the method waited for."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling() > 0)


def _is_our_call(error: BaseException) -> bool:
    """True when the method was not reached: what was sent does not fit its parameters."""
    return (
        isinstance(error, TypeError) and error.__traceback__ is not None and not error.__traceback__.tb_next
    )
