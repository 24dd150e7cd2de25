"""Whoever calls a tool, as an agent knows callers: a connection that nothing is sent through.

    Visit --caller_of--> Caller --> should_connection_be_readonly, may(…), current_connection

So the hook that makes somebody read-only is asked as for a socket, and a turn or an approval that a method
begins has the identity of who called it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from ..access.access import address_of
from ..messages import decode_json
from ..runtime.actor import Actor
from ..server.connections import Connection
from ..wire.codec import encode
from ..wire.frames import CallResult, ServerFrame
from .visits import Visit

__all__ = ["Caller", "caller_of"]


class _Nowhere:
    """The socket of a connection that has none."""

    async def send_text(self, data: str) -> None:
        pass

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        pass


class Caller(Connection):
    """Somebody who called a tool. What a method answers is given to `hear`; everything else goes nowhere."""

    def __init__(self, id: str, request: Any, *, agent_id: str) -> None:
        super().__init__(id, _Nowhere(), request, agent_id=agent_id)
        self.is_open = False
        self.hear: Callable[[dict[str, Any]], None] | None = None

    def send(self, message: str | ServerFrame) -> None:
        """Take the answer of a method, as JSON: what cannot be told raises here, as it does on a socket."""
        if self.hear is not None and isinstance(message, CallResult):
            self.hear(decode_json(encode(message)))


async def caller_of(visit: Visit, actor: Actor) -> Caller:
    """The caller of a visit to this agent."""
    caller = Caller(f"mcp-{secrets.token_hex(8)}", visit.request, agent_id=actor.id)
    entered = visit.entered
    caller.identity, caller.who, caller.mark = entered.identity, entered.who, entered.mark
    caller.permissions, caller.until = entered.permissions, entered.until
    reads = False
    if visit.request is not None:
        caller.address = address_of(visit.request)
        reads = await actor.hooks.should_connection_be_readonly(caller, visit.request)
    caller.is_readonly = reads or not caller.permissions
    return caller
