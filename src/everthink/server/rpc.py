"""A method that a client calls: run it, and answer whoever called.

    CallMethod --> answer_call --> CallResult, or several of a streaming method

Only methods marked with `@callable` are reached, and nothing runs to find out which those are. What they
raise is told to the caller in its own words, so that one may raise what is meant to be read; what the
database said is not.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ..current import current_connection
from ..errors import UNTOLD, StoreError
from ..masking import mask
from ..observe.events import Rpc, RpcError
from ..runtime.actor import Actor
from ..runtime.rpc import (
    StreamingResponse,
    callable_of,
    has_method,
)
from ..wire import frames as wire
from .connections import Connection

__all__ = ["answer_call"]


async def answer_call(actor: Actor, connection: Connection, call: wire.CallMethod) -> None:
    """Call the method for this connection. Raises nothing but being cancelled."""
    agent = actor.agent

    def answer(fields: dict[str, Any]) -> None:
        connection.send(wire.CallResult(call.id, **fields))

    info = callable_of(type(agent), call.method)
    if info is None:
        exists = not call.method.startswith("_") and has_method(type(agent), call.method)
        what = "is not callable" if exists else "does not exist"
        answer({"success": False, "error": f"Method {call.method} {what}"})
        return
    actor.emit(Rpc(method=call.method, streaming=info.streaming or None))
    current_connection.set(connection)
    stream = StreamingResponse(answer)
    try:
        method = getattr(agent, call.method)
        result = method(stream, *call.args) if info.streaming else method(*call.args)
        result = await result if inspect.isawaitable(result) else result
        if info.streaming:
            stream.end(result)  # unless it did so itself: nobody else will, and the caller has no time limit
        else:
            answer({"success": True, "done": True} | ({} if result is None else {"result": result}))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - the caller is told, the agent goes on
        text = mask(str(error)) or "Unknown error occurred"
        if _is_our_call(error):
            text = f"Method {call.method} takes other arguments than these {len(call.args)}"
        actor.emit(RpcError(method=call.method, error=text))
        if not stream.is_closed:
            answer({"success": False, "error": UNTOLD if isinstance(error, StoreError) else text})


def _is_our_call(error: Exception) -> bool:
    """True when the method was not reached: what was sent does not fit its parameters."""
    return (
        isinstance(error, TypeError) and error.__traceback__ is not None and not error.__traceback__.tb_next
    )
