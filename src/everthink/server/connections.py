"""One socket: what goes out through it, and what the application keeps about it.

    Hall --Parcel--> Connection --at once--> socket
                          └--bounded buffer--pump--> socket, when it is not ready for more

Sending never waits. A reader that falls behind fills its own buffer only; when that is full the
connection is closed with a code clients come back from, and they resume by sequence. One that does
not even read that is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any, Protocol

from ..identity import PERMISSIONS, Permission
from ..wire.codec import encode
from ..wire.frames import ServerFrame
from .offers import Offers

__all__ = ["Buffers", "Connection", "Parcel", "Socket"]

log = logging.getLogger("everthink.server")

MAX_BUFFERED = 8 * 1024 * 1024
MAX_FRAMES = 4
"""So many frames as large as the largest that waits may wait: a conversation can be longer than a buffer."""
AT_ONCE = 256 * 1024
"""Parcels that are longer go through the buffer: the socket's own has no bound."""
TRY_AGAIN_LATER = 1013
PATIENCE = 10.0
"""Seconds a client gets to read what was sent before the connection was closed."""


class Socket(Protocol):
    """What a connection needs of the server's socket. Starlette's `WebSocket` is one."""

    async def send_text(self, data: str) -> None:
        """Send a text frame."""
        ...

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Close it."""
        ...


class Parcel:
    """Texts that belong together, made ready once for all who read. For the bound they are one."""

    __slots__ = ("_framed", "size", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.size = sum(map(len, texts))
        self._framed: bytes | None = None

    @property
    def framed(self) -> bytes:
        """The texts as WebSocket frames (RFC 6455, 5.2: final, text, without a mask)."""
        if self._framed is None:
            parts: list[bytes] = []
            for text in self.texts:
                data = text.encode(errors="replace")
                size = len(data)
                if size < 126:
                    parts.append(bytes((0x81, size)))
                else:
                    parts.append(
                        pack("!BBH", 0x81, 126, size) if size < 65536 else pack("!BBQ", 0x81, 127, size)
                    )
                parts.append(data)
            self._framed = b"".join(parts)
        return self._framed


class Buffers:
    """What waits for those who do not read, of all connections of an app: at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._in_all = most, 0
        self._waiting: dict[Connection, int] = {}

    def hold(self, connection: Connection, size: int) -> None:
        """So much waits for this connection now. When it is too much in all, the slowest is let go."""
        before = self._waiting.pop(connection, 0)
        self._in_all += size - before
        if size:
            self._waiting[connection] = size
        if size > before and self._in_all > self._most:
            slowest = max(self._waiting, key=self._waiting.__getitem__)
            slowest.give_up()


class Connection:
    """A connected client: a tab, a script. `id` is what it calls itself, `request` what it came with.

    An id that another person uses is not given twice: then it has one of our own. `is_readonly`: it may do
    nothing but read. `wants_protocol`: it gets identity, state and MCP frames.
    """

    def __init__(
        self,
        id: str,
        socket: Socket,
        request: Any,
        *,
        agent_id: str = "",
        cut: Callable[[], None] | None = None,
        now: Callable[[bytes], bool] | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        self.id, self._socket, self.request = id, socket, request
        # `now` writes frames without waiting; it returns False and writes nothing when that cannot be.
        self._cut, self._now, self._buffers = cut, now, buffers
        self.agent_id = agent_id
        """The agent it talks to."""
        self.called: str | None = None
        """What it calls the agent, as it stands in the address."""
        self.state: Any = None
        """Yours to keep something about this connection."""
        self.is_readonly = False
        self.identity: Any = None
        """Who it is, as `authenticate` said."""
        self.who: Any = None
        """The same as JSON, as it is kept with turns and told to hooks and events."""
        self.mark: str | None = None
        """The same made short: two connections are of one person when their marks are equal."""
        self.key = id
        """What its turns and answers are known by: nobody else has it, whatever they call themselves."""
        self.address: str | None = None
        """Where it comes from, as far as the server knows."""
        self.permissions: frozenset[Permission] = PERMISSIONS
        """What it may do besides reading."""
        self.until: float | None = None
        """When it ends by itself, in seconds since 1970."""
        self.wants_protocol = True
        self.client_tools: list[dict[str, Any]] = []
        """The tools it declared: for the turns it asks for, and for nobody else's."""
        self.offers = Offers()
        """The streams it was offered."""
        self.calls = 0
        """How many of its method calls run."""
        self._out: deque[str] = deque()
        self._buffered = self._largest = 0
        self._wake = asyncio.Event()
        # The pump waits for something to write. With nothing in the buffer, all that was sent is out.
        self._is_idle = False
        self._closing: tuple[int, str] | None = None
        self.is_open = True

    def __repr__(self) -> str:
        return f"<Connection {self.id}>"

    def may(self, permission: Permission) -> bool:
        """Whether it may do that now."""
        return not self.is_readonly and permission in self.permissions

    @property
    def is_closing(self) -> bool:
        """True once it was closed from here. What it still sends is not heard."""
        return self._closing is not None

    def send(self, message: str | ServerFrame) -> None:
        """Send text or a frame, soon. Without effect once the connection is closing."""
        self.send_all(Parcel((message if isinstance(message, str) else encode(message),)))

    def send_all(self, parcel: Parcel) -> None:
        """Send texts that belong together. They may be longer than a buffer."""
        if self._closing is not None or not self.is_open:
            return
        now = self._now if self._is_idle and not self._out and parcel.size <= AT_ONCE else None
        if now is not None and now(parcel.framed):
            return
        self._out.extend(parcel.texts)
        self._buffered += parcel.size
        self._largest = max(self._largest, parcel.size)
        self._wake.set()
        if self._buffered > max(MAX_BUFFERED, MAX_FRAMES * self._largest):
            self.give_up()
        elif self._buffers is not None:
            self._buffers.hold(self, self._buffered)

    def give_up(self) -> None:
        """Close a connection that does not read. What waits is dropped; it may come back and resume."""
        log.warning("connection %s does not read: %d bytes wait; it is closed", self.id, self._buffered)
        self._drop()
        self.close(TRY_AGAIN_LATER, "Reading too slowly")

    def _drop(self) -> None:
        self._out.clear()
        self._buffered = 0
        if self._buffers is not None:
            self._buffers.hold(self, 0)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection after what was sent so far."""
        if self._closing is None:
            self._closing = (code, reason)
            self._wake.set()
            self.cut_later()

    def cut_later(self) -> None:
        """Drop the connection if it is still there in a while: whoever does not read sees no goodbye."""
        if self._cut is not None:
            asyncio.get_running_loop().call_later(PATIENCE, self._cut)

    def _write_long(self, text: str) -> bool:
        """A frame of our own is one copy of a long text; the server's would be four."""
        return len(text) > AT_ONCE and self._now is not None and self._now(Parcel((text,)).framed)

    async def pump(self) -> None:
        """Write what is sent until the connection closes."""
        try:
            while True:
                while self._out:
                    text = self._out.popleft()
                    self._buffered -= len(text)
                    if self._buffers is not None:
                        self._buffers.hold(self, self._buffered)
                    if not self._write_long(text):
                        await self._socket.send_text(text)
                self._largest = 0
                if self._closing is not None:
                    await self._socket.close(*self._closing)
                    return
                self._wake.clear()
                self._is_idle = True
                await self._wake.wait()
                self._is_idle = False
        except (RuntimeError, OSError) as error:
            log.debug("connection %s is gone: %s", self.id, error)
        finally:
            self.is_open = False
            self._drop()
