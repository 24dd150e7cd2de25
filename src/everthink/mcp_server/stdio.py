"""MCP over standard input and output: an app as a program that a desktop client starts.

    a client's process <--lines--> Pipes <--messages--> the library --> Service

Whoever starts the process owns it and its database, so nobody asks who they are. The end of the input is the
end of the process; a turn that runs then has its grace and goes on at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, JSONRPCNotification, jsonrpc_message_adapter
from pydantic import ValidationError

from ..limits import Limits
from ..messages import encode_json
from ..wire.bounds import check, mend
from .pipes import Pipes
from .service import Service

__all__ = ["serve"]


async def serve(service: Service, pipes: Pipes) -> None:
    """Answer one client until its input ends, or a signal says so."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, ended.set)
    incoming, reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    writes, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    pipes.begin_writing()
    async with anyio.create_task_group() as writing:
        writing.start_soon(_write, pipes, outgoing)  # until the library closes its end
        async with anyio.create_task_group() as reading:
            reading.start_soon(_read, service, pipes, incoming, ended)
            reading.start_soon(_end, ended, incoming)
            server = service.server
            await server.run(reads, writes, server.create_initialization_options())
            reading.cancel_scope.cancel()
    pipes.close()


async def _end(ended: asyncio.Event, incoming: MemoryObjectSendStream[Any]) -> None:
    """Let no more in: the library takes that for the end of the input."""
    await ended.wait()
    await incoming.aclose()


async def _read(
    service: Service,
    pipes: Pipes,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ended: asyncio.Event,
) -> None:
    lines = pipes.read(service.offering.limits.frame_bytes)
    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        while (line := await lines.get()) is not None:
            message = _message_in(line, service.offering.limits)
            if isinstance(message, bytes):
                pipes.write(message)
                continue
            _stop_cancelled(service, message)
            await incoming.send(SessionMessage(message))
    ended.set()


def _stop_cancelled(service: Service, message: Any) -> None:
    """Stop what a client cancels, before the library forgets whose it was."""
    if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
        service.in_flight.stop(("", str((message.params or {}).get("requestId"))))


def _message_in(line: bytes, limits: Limits) -> Any:
    """The message in a line; or the line that answers one that is none."""
    if not line:
        return _error(INVALID_REQUEST, f"A message has at most {limits.frame_bytes} bytes.")
    if (why := check(line, limits)) is not None:
        return _error(INVALID_REQUEST, f"The message {why}.")
    try:
        return jsonrpc_message_adapter.validate_json(mend(line), by_name=False)
    except ValidationError:
        return _error(PARSE_ERROR, "This is no message of JSON-RPC.")


def _error(code: int, text: str) -> bytes:
    return encode_json({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}})


async def _write(pipes: Pipes, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with outgoing:
        async for one in outgoing:
            pipes.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode())
