"""uvicorn's WebSocket protocol, cheaper: frames of one tick of the loop go out together, some at once.

    Connection --frames--> _BatchedWebSocket --> socket
         └--text--> Starlette, uvicorn, websockets --bytes--┘

A burst of a model is hundreds of frames, and a system call for each is most of what a frame costs. The
first write in a tick of the event loop is done at once, so a slow stream is as quick as without us; what
follows in the same tick is joined and written at its end. Order is kept.

`everthink serve` and `dev` use it. With your own uvicorn:
`--ws everthink.server.batched_websocket:BatchedProtocol`.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast
from weakref import WeakKeyDictionary

from websockets.protocol import State

from ..limits import Limits
from .guarded import GuardedProtocol, PatientProtocol, Reins

__all__ = ["BatchedProtocol", "options"]

LARGEST = 16 * 1024
"""So many bytes are not kept waiting."""


class _LoopTick:
    """One round of the event loop, the same for all its sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.number = 0
        self._is_running = False
        self._waiting: list[_BatchedWebSocket] = []

    def begin(self) -> None:
        """Something was written: this tick has an end."""
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._end)

    def wait(self, socket: _BatchedWebSocket) -> None:
        """Flush `socket` at the end."""
        self._waiting.append(socket)

    def _end(self) -> None:
        self._is_running = False
        self.number += 1
        waiting, self._waiting = self._waiting, []
        for socket in waiting:
            socket.flush()


_ticks: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopTick] = WeakKeyDictionary()


class _BatchedWebSocket(Reins):
    """A transport that joins what is written within one tick."""

    __slots__ = ("_out", "_protocol", "_seen", "_size", "_tick")

    def __init__(
        self, transport: asyncio.Transport, tick: _LoopTick, protocol: GuardedProtocol | None = None
    ) -> None:
        super().__init__(transport)
        self._tick, self._protocol = tick, protocol
        self._out: list[bytes] = []
        self._size = 0
        self._seen = -1

    def write(self, data: bytes) -> None:
        """Write soon: at once when it is the first in this tick."""
        tick = self._tick
        if self._seen != tick.number:
            self._seen = tick.number
            tick.begin()
            self._transport.write(data)
            return
        if not self._out:
            tick.wait(self)
        self._out.append(data)
        self._size += len(data)
        if self._size >= LARGEST:
            self.flush()

    def send_frames(self, frames: bytes) -> bool:
        """Write frames that are ready-made. False when they cannot be taken now, or not as they are."""
        uvicorn = self._protocol
        if (
            uvicorn is None
            or not uvicorn.handshake_complete
            or not uvicorn.writable.is_set()
            or uvicorn.close_sent
            or uvicorn.conn.extensions
            or uvicorn.conn.state is not State.OPEN
            or self._transport.is_closing()
        ):
            return False
        self.write(frames)
        return True

    async def until_taken(self, seconds: float) -> bool:
        """Wait until the reader has taken enough for more. False when it took nothing for so long."""
        if self._protocol is None or self._protocol.writable.is_set():
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._protocol.writable.wait()
        except TimeoutError:
            return False
        return True

    def wants_raw(self) -> None:
        """Whoever is served here takes long texts as bytes."""
        if self._protocol is not None:
            self._protocol.wants_raw = True

    def forget(self) -> None:
        """The connection is lost: let go of its protocol."""
        self._protocol = None

    def flush(self) -> None:
        """Write what waits."""
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            self._size = 0
            if not self._transport.is_closing():
                self._transport.write(data)

    def close(self) -> None:
        """Close after what was written."""
        self.flush()
        super().close()


class BatchedProtocol(GuardedProtocol):
    """uvicorn's own, guarded, on a transport that gathers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put ours around the transport."""
        tick = _ticks.get(self.loop)
        if tick is None:
            tick = _ticks[self.loop] = _LoopTick(self.loop)
        # Another version of uvicorn may write in ways that we do not know: then nothing is joined.
        known = all(hasattr(self, name) for name in ("handshake_complete", "writable", "close_sent", "conn"))
        ours = _BatchedWebSocket(cast("asyncio.Transport", transport), tick, self if known else None)
        super().connection_made(cast("Any", ours))

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing can be written any more."""
        super().connection_lost(exc)
        cast("_BatchedWebSocket", self.transport).forget()


def options(limits: Limits) -> dict[str, Any]:
    """What uvicorn is told so that it keeps the bounds of an app."""
    given = {"limits": limits}
    return {
        "http": type("PatientProtocol", (PatientProtocol,), given),
        "ws": type("BatchedProtocol", (BatchedProtocol,), given),
        "ws_max_size": limits.frame_bytes,
        "ws_per_message_deflate": False,  # costs CPU for each frame and 70 KB for each socket
    }
