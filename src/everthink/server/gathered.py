"""uvicorn's WebSocket protocol, with fewer system calls: frames of one breath go out together.

    Connection --frames--> uvicorn --bytes--> _Gathered --> socket

A burst of a model is hundreds of frames at once, and a system call for each is most of what a frame costs.
The first frame of a breath of the event loop is written at once, so a slow stream is as quick as
without us; what follows in the same breath is joined and written at its end. Order is kept.

`everthink serve` and `dev` use it. With your own uvicorn: `--ws everthink.server.gathered:GatheredProtocol`.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast
from weakref import WeakKeyDictionary

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

__all__ = ["GatheredProtocol"]

LARGEST = 16 * 1024
"""So many bytes are not kept waiting."""


class _Breath:
    """One round of the event loop, the same for all its sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.number = 0
        self._is_running = False
        self._waiting: list[_Gathered] = []

    def begin(self) -> None:
        """Something was written: this breath has an end."""
        if not self._is_running:
            self._is_running = True
            self._loop.call_soon(self._end)

    def wait(self, socket: _Gathered) -> None:
        """Flush `socket` at the end."""
        self._waiting.append(socket)

    def _end(self) -> None:
        self._is_running = False
        self.number += 1
        waiting, self._waiting = self._waiting, []
        for socket in waiting:
            socket.flush()


_breaths: WeakKeyDictionary[asyncio.AbstractEventLoop, _Breath] = WeakKeyDictionary()


class _Gathered:
    """A transport that joins what is written within one breath."""

    __slots__ = ("_breath", "_out", "_seen", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, breath: _Breath) -> None:
        self._transport, self._breath = transport, breath
        self._out: list[bytes] = []
        self._size = 0
        self._seen = -1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write soon: at once when it is the first in this breath."""
        breath = self._breath
        if self._seen != breath.number:
            self._seen = breath.number
            breath.begin()
            self._transport.write(data)
            return
        if not self._out:
            breath.wait(self)
        self._out.append(data)
        self._size += len(data)
        if self._size >= LARGEST:
            self.flush()

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
        self._transport.close()


class GatheredProtocol(WebSocketsSansIOProtocol):
    """uvicorn's own, on a transport that gathers."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put ours around the transport."""
        breath = _breaths.get(self.loop)
        if breath is None:
            breath = _breaths[self.loop] = _Breath(self.loop)
        super().connection_made(cast("Any", _Gathered(cast("asyncio.Transport", transport), breath)))
