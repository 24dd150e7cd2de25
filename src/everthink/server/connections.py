"""One socket: what goes out through it, and what the application keeps about it.

    ChatSockets --Parcel--> Connection --at once--> socket
                          └--bounded buffer--pump--> socket, when it is not ready for more

Sending never waits. A reader that falls behind fills its own buffer only; when that is full, or nothing of
it is taken for a while, the connection is closed with a code clients come back from, and they resume by
sequence. One that does not even read that is cut off. A long text goes out in fragments, each when the one
before is taken: what the server beneath has been given is out of our hands.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from struct import pack
from typing import Any, Protocol, cast

from ..errors import InvalidSettings
from ..identity import PERMISSIONS, Permission
from ..settings import nearest, shown
from ..wire.codec import encode
from ..wire.frames import ServerFrame
from ..wire.offers import Offers
from .waiting import Buffers, Long

__all__ = ["Connection", "Parcel", "Socket"]

log = logging.getLogger("everthink.server")

MAX_BUFFERED = 8 * 1024 * 1024
MAX_FRAMES = 4
"""So many frames as large as the largest that waits may wait: a conversation can be longer than a buffer."""
AT_ONCE = 256 * 1024
"""Parcels that are longer go through the buffer: the socket's own has no bound."""
PIECE = 64 * 1024
"""Bytes of a fragment of a long text."""
TRY_AGAIN_LATER = 1013
UNBOUNDED = 1 << 62
STALL = 30.0
"""Seconds in which a reader takes something; an app has its own."""
PATIENCE = 10.0
"""Seconds a client gets to read what was sent before the connection was closed."""
SENDABLE = frozenset({1000, 1001, 1002, 1003, *range(1007, 1015)})
"""The codes below 3000 that may be sent (RFC 6455, 7.4; 1005, 1006 and 1015 are none)."""
POLICY_VIOLATION = 1008
LONGEST_REASON = 123
"""Bytes: a frame of this kind has 125, and the code takes two."""


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

    __slots__ = ("_framed", "_waiting", "size", "texts")

    def __init__(self, texts: Sequence[str | Long]) -> None:
        self.texts = texts
        self.size = sum(map(len, texts))
        self._framed: bytes | None = None
        self._waiting: Sequence[str | Long] | None = None

    @property
    def framed(self) -> bytes:
        """The texts as WebSocket frames."""
        if self._framed is None:
            parts: list[bytes] = []
            for text in self.texts:
                data = text.data if isinstance(text, Long) else text.encode(errors="replace")
                parts += (_head(FINAL | TEXT, len(data)), data)
            self._framed = b"".join(parts)
        return self._framed

    @property
    def waiting(self) -> Sequence[str | Long]:
        """The texts as they wait: of long ones there is one copy, whoever waits for it."""
        if self._waiting is None:
            self._waiting = [
                Long(text.encode(errors="replace")) if isinstance(text, str) and len(text) > AT_ONCE else text
                for text in self.texts
            ]
        return self._waiting


FINAL, TEXT, CONTINUED = 0x80, 1, 0


def _head(first: int, size: int) -> bytes:
    """The head of a frame (RFC 6455, 5.2: without a mask)."""
    if size < 126:
        return bytes((first, size))
    return pack("!BBH", first, 126, size) if size < 65536 else pack("!BBQ", first, 127, size)


def _fragment(data: bytes, at: int) -> bytes:
    """The fragment of a text that begins at this byte."""
    piece = data[at : at + PIECE]
    first = (FINAL if at + PIECE >= len(data) else 0) | (CONTINUED if at else TEXT)
    return _head(first, len(piece)) + piece


class Connection:
    """A connected client: a tab, a script. `id` is what it calls itself, `request` what it came with.

    An id that another person uses is not given twice: then it has one of our own. `is_readonly`: it may do
    nothing but read. `wants_protocol`: it gets identity, state and MCP frames.
    """

    # There is one for each connection, and without a dict it weighs a kilobyte less.
    # fmt: off
    __slots__ = (
        "__dict__", "__weakref__", "_at", "_buffered", "_buffers", "_closing", "_cut", "_idle",
        "_largest", "_longs", "_now", "_out", "_own", "_readonly", "_socket", "_stall", "_taken", "address",
        "agent_id", "called", "calls", "client_tools", "id", "identity", "is_open", "key",
        "mark", "offers", "permissions", "request", "since", "state", "until", "wants_protocol", "who",
    )
    # fmt: on

    def __init__(
        self,
        id: str,
        socket: Socket,
        request: Any,
        *,
        agent_id: str = "",
        cut: Callable[[], None] | None = None,
        now: Callable[[bytes], bool] | None = None,
        taken: Callable[[float], Awaitable[bool]] | None = None,
        buffers: Buffers | None = None,
        stall: float = STALL,
    ) -> None:
        self.id, self._socket, self.request = id, socket, request
        # `now` writes frames without waiting; it returns False and writes nothing when that cannot be.
        # `taken` waits until the reader has taken what was written; False: not within so many seconds.
        self._cut, self._now, self._taken = cut, now, taken
        self._buffers, self._stall = buffers or Buffers(UNBOUNDED), stall
        self.agent_id = agent_id
        """The agent it talks to."""
        self.called: str | None = None
        """What it calls the agent, as it stands in the address."""
        self.state: Any = None
        """Yours to keep something about this connection."""
        self._readonly = False
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
        self.since = 0
        """When it came, in milliseconds since 1970."""
        self.wants_protocol = True
        self.client_tools: list[dict[str, Any]] = []
        """The tools it declared: for the turns it asks for, and for nobody else's."""
        self.offers = Offers()
        """The streams it was offered."""
        self.calls = 0
        """How many of its method calls run."""
        # What waits to be written; there while something does.
        self._out: deque[str | Long] | None = None
        # Those of them that others may wait for as well.
        self._longs: list[Long] = []
        # What waits: all of it, the texts that are nobody else's, and the largest parcel.
        self._buffered = self._own = self._largest = 0
        # How much of the first, when that is a long one, is written.
        self._at = 0
        # The pump waits for something to write. With nothing in the buffer, all that was sent is out.
        self._idle: asyncio.Future[None] | None = None
        self._closing: tuple[int, str] | None = None
        self.is_open = True

    def __repr__(self) -> str:
        return f"<Connection {self.id}>"

    def may(self, permission: Permission) -> bool:
        """Whether it may do that now. Raises for what is no permission."""
        if permission not in PERMISSIONS:
            near = nearest(str(permission), PERMISSIONS)
            hint = f"Did you mean {near!r}?" if near else f"There are: {', '.join(sorted(PERMISSIONS))}."
            raise InvalidSettings(f"connection.may: {permission!r} is no permission.", next_step=hint)
        return not self._readonly and permission in self.permissions

    @property
    def is_readonly(self) -> bool:
        """True when it may do nothing but read. Yours to set."""
        return self._readonly

    @is_readonly.setter
    def is_readonly(self, reads: bool) -> None:
        if not isinstance(cast("Any", reads), bool):
            raise InvalidSettings(
                f"connection.is_readonly is {shown(reads)}.", next_step="It takes True or False."
            )
        self._readonly = reads

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
        now = self._now if self._idle is not None and not self._out and parcel.size <= AT_ONCE else None
        if now is not None and now(parcel.framed):
            return
        size, self._out = 0, self._out or deque()
        for text in parcel.waiting:
            size += len(text)
            if isinstance(text, Long):
                self._buffers.share(text)
                self._longs.append(text)
            else:
                self._own += len(text)
            self._out.append(text)
        self._buffered += size
        self._largest = max(self._largest, size)
        self._wake_writer()
        if self._buffered > max(MAX_BUFFERED, MAX_FRAMES * self._largest):
            self._give_up()
        else:
            self._buffers.hold(self._give_up, self._own, self._longs)

    def _give_up(self) -> None:
        """Close a connection that does not read. What waits is dropped; it may come back and resume."""
        log.warning("connection %s does not read: %d bytes wait; it is closed", self.id, self._buffered)
        self._drop()
        self.close(TRY_AGAIN_LATER, "Reading too slowly")

    def _drop(self) -> None:
        for long in self._longs:
            self._buffers.unshare(long)
        self._longs.clear()
        self._out = None
        self._buffered = self._own = self._at = 0
        self._buffers.forget(self._give_up)

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Close the connection after what was sent so far.

        `code` is one that may be sent (1000, or 3000 to 4999 for your own meanings); `reason` has at most 123
        bytes. Another code is told in the log, and 1008 is sent; a longer reason is cut.
        """
        if self._closing is None:
            self._closing = _goodbye(code, reason)
            self._wake_writer()
            self.cut_later()

    def _wake_writer(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def cut_later(self) -> None:
        """Drop the connection if it is still there in a while: whoever does not read sees no goodbye."""
        if self._cut is not None:
            asyncio.get_running_loop().call_later(PATIENCE, self._cut)

    async def _write(self) -> None:
        """Write some of what waits, once what was written is taken."""
        if self._taken is not None and not await self._taken(self._stall):
            self._give_up()
        if not self._out:
            return
        text = self._out[0]
        if isinstance(text, Long):
            await self._write_long(text)
            return
        self._out.popleft()
        self._buffered -= len(text)
        self._own -= len(text)
        self._settle()
        await self._socket.send_text(text)

    def _settle(self) -> None:
        if self._out:
            self._buffers.hold(self._give_up, self._own, self._longs)
        else:
            self._buffers.forget(self._give_up)

    async def _write_long(self, long: Long) -> None:
        """One fragment: all that the socket has to keep. Or all of it, where that cannot be."""
        is_written = self._now is not None and self._now(_fragment(long.data, self._at))
        if not is_written and self._at:
            raise OSError("it is gone in the middle of a text")
        written = min(PIECE, len(long) - self._at) if is_written else len(long)
        self._at += written
        self._buffered -= written
        if self._at == len(long) and self._out:
            self._out.popleft()
            del self._longs[0]
            self._at = 0
            self._buffers.unshare(long)
            self._settle()
        if not is_written:
            await self._socket.send_text(long.data.decode())

    async def pump(self) -> None:
        """Write what is sent until the connection closes."""
        try:
            while True:
                while self._out:
                    await self._write()
                self._out, self._largest = None, 0
                if self._closing is not None:
                    await self._socket.close(*self._closing)
                    return
                self._idle = asyncio.get_running_loop().create_future()
                await self._idle
                self._idle = None
        except (RuntimeError, OSError) as error:
            log.debug("connection %s is gone: %s", self.id, error)
        finally:
            self.is_open = False
            self._drop()


def _goodbye(code: Any, reason: Any) -> tuple[int, str]:
    """The code and reason that are sent. What cannot be is replaced, and told in the log."""
    is_whole = isinstance(code, int) and not isinstance(code, bool)
    if not is_whole or not (code in SENDABLE or 3000 <= code <= 4999):
        log.error(
            "connection.close(%r) is no code that may be sent; %d is. Use 1000, or one of your own from 3000"
            " to 4999.",
            code,
            POLICY_VIOLATION,
        )
        code = POLICY_VIOLATION
    text = reason if isinstance(reason, str) else "" if reason is None else str(reason)
    data = text.encode(errors="replace")
    if len(data) > LONGEST_REASON:
        log.warning(
            "the reason of connection.close(%d, …) has %d bytes; %d are sent.",
            code,
            len(data),
            LONGEST_REASON,
        )
        text = data[:LONGEST_REASON].decode(errors="ignore")
    return code, text
