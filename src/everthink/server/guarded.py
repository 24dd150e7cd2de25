"""uvicorn's two protocols, so that nobody's bytes cost anybody else.

    socket --bytes--> PatientProtocol: the head of a request      in time, and not longer than a head is
                      GuardedProtocol: frames of a WebSocket      a little at a time, and not without end
    either --bytes--> socket                                      as long as they are taken; then it is cut

Bytes are read in small portions with the event loop's turn between them: a quarter of a MiB of empty frames
is more work than it looks. Fragments become one text as they arrive; whoever sends pings and never reads gets
no more pongs. A socket that is closed is gone soon after, whether its end is read or not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from ..limits import Limits
from .arriving import RAW, Arriving

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as HttpProtocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as HttpProtocol  # or h11's, when that is all

__all__ = ["GuardedProtocol", "PatientProtocol", "Reins"]

log = logging.getLogger("everthink.server")

PORTION = 4 * 1024
AT_A_STRETCH = 0.005
"""After so many seconds of reading others have their turn."""
UNREAD_PONGS = 256 * 1024
TRY_AGAIN_LATER = 1013
GOODBYE = 2.0
"""Seconds that what is being sent has to be read when the server stops."""
PATIENCE = 10.0
"""The same, when a connection is closed."""
NO_HANDSHAKE = b"This is no handshake of a WebSocket: it has a body, or a head that cannot be read."
REFUSED = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s"
)


class Reins:
    """A transport whose reading goes on only when what has arrived is read."""

    __slots__ = ("_is_paused", "_transport", "on_resume")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_paused = False
        self.on_resume: Callable[[], bool] | None = None
        """Asked before reading goes on; False keeps it from that."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def pause_reading(self) -> None:
        """Read no more for now."""
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again, once what is here is read."""
        if self._is_paused and (self.on_resume is None or self.on_resume()):
            self._is_paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Close after what was written, if that is read."""
        self._transport.close()
        cut_later(self._transport, PATIENCE)


def cut_later(transport: asyncio.Transport, seconds: float) -> None:
    """Drop what is being closed and still there in a while: nobody waits for ever for a reader."""
    with contextlib.suppress(RuntimeError):  # uvloop's, once it is closed
        if transport.get_write_buffer_size() > 0:
            asyncio.get_running_loop().call_later(seconds, transport.abort)


class Arrived:
    """The events that have arrived and nobody has taken. An `asyncio.Queue` does the same, and weighs three
    kilobytes; here few wait, because reading stops until a message is taken."""

    __slots__ = ("_events", "_takers")

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._takers: list[asyncio.Future[None]] = []

    def put_nowait(self, event: Any) -> None:
        """One more."""
        self._events.append(event)
        for taker in self._takers:
            if not taker.done():
                taker.set_result(None)

    def empty(self) -> bool:
        """True when nothing waits."""
        return not self._events

    async def get(self) -> Any:
        """The first, once there is one."""
        while not self._events:
            taker = asyncio.get_running_loop().create_future()
            self._takers.append(taker)
            try:
                await taker
            finally:
                self._takers.remove(taker)
        return self._events.pop(0)


class GuardedProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with bounds."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.queue = cast("Any", Arrived())
        self._unread = b""
        self._at = 0
        self._goes_on = False
        self.wants_raw = False
        """True when long texts are to arrive as bytes, under `raw_text`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the reins."""
        reins = transport if isinstance(transport, Reins) else Reins(cast("asyncio.Transport", transport))
        reins.on_resume = self._resumes
        reins.set_write_buffer_limits()  # the HTTP protocol before had none
        super().connection_made(cast("Any", reins))

    def connection_lost(self, exc: Exception | None) -> None:
        """What has not been read never will be."""
        self._unread, self._at = b"", 0
        self.frames = []
        Arriving.hold(self._let_go, 0)
        super().connection_lost(exc)

    # --- beginning and end

    def handle_events(self) -> None:
        """What has arrived; of a handshake that is none, nothing has, and nothing ever would."""
        super().handle_events()
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            said = b"".join(self.conn.data_to_send())  # there are some that the library answers itself
            self.transport.write(said or REFUSED % (len(NO_HANDSHAKE), NO_HANDSHAKE))
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            self.transport.close()

    def shutdown(self) -> None:
        """The server stops: no socket keeps it from that, whatever it is in the middle of."""
        try:
            super().shutdown()
        except Exception:
            log.exception("a socket could not be closed in order and is cut")
            self.transport.abort()
        else:
            cut_later(self.transport, GOODBYE)

    # --- a little at a time

    def data_received(self, data: bytes) -> None:
        """Read what arrived, or as much as others can wait for."""
        if not self._unread and len(data) <= PORTION:
            super().data_received(data)
            self._weigh()
            return
        self._unread = self._unread[self._at :] + data
        self._at = 0
        self._read_on()

    def _read_on(self) -> None:
        self._goes_on = False
        until = time.perf_counter() + AT_A_STRETCH
        while self._at < len(self._unread) and not self.read_paused and not self.transport.is_closing():
            portion = self._unread[self._at : self._at + PORTION]
            self._at += len(portion)
            super().data_received(portion)
            if time.perf_counter() > until:
                break
        self._weigh()
        if self._at >= len(self._unread) or self.transport.is_closing():
            self._unread, self._at = b"", 0
            if not self.read_paused and not self.transport.is_closing():
                self.transport.resume_reading()
            return
        self.transport.pause_reading()
        if not self.read_paused:  # otherwise it goes on when what has been read is taken
            self._later()

    def _later(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self.loop.call_soon(self._read_on)

    def _resumes(self) -> bool:
        """Whether the socket is to be read again: not while something is here."""
        if self._unread:
            self._later()
        return not self._unread

    # --- messages

    def handle_text(self, event: Frame) -> None:
        """A text. The parser keeps the last frame that it read, which must not hold the text as well."""
        super().handle_text(event)
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        """The same for bytes."""
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """A fragment: it becomes part of its message at once, and leaves nothing else behind."""
        if not self.frames:
            self.frames = [cast("Any", bytearray())]
        elif not isinstance(self.frames[0], bytearray):
            self.frames = [cast("Any", bytearray(self.frames[0]))]
        whole = cast("bytearray", self.frames[0])
        whole += event.data
        event.data = b""
        if event.fin:
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """A message is complete."""
        self.frames = [bytes(self.frames[0])] if self.frames else [b""]
        is_raw = self.wants_raw and self.curr_msg_data_type == "text" and len(self.frames[0]) > RAW
        if not is_raw or self.close_sent:
            super().send_receive_event_to_app()
            return
        # As text it would be up to four times as long, and it is about to be read as JSON.
        [data], self.frames = self.frames, []
        event: Any = {"type": "websocket.receive", "raw_text": data}
        self.queue.put_nowait(event)
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def handle_ping(self) -> None:
        """Answer, unless the answers are not read."""
        if self.transport.get_write_buffer_size() > UNREAD_PONGS:
            self.conn.data_to_send()
            return
        super().handle_ping()

    # --- what waits for its end

    def _weigh(self) -> None:
        size = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        Arriving.hold(self._let_go, size, self._address)
        Arriving.keep_within(self.limits.buffered_bytes)

    @property
    def _address(self) -> str:
        """Who is at the other end: of a proxy, itself."""
        return self.client[0] if self.client else ""

    def _let_go(self) -> None:
        """Close it: too much has begun to arrive."""
        self._unread, self._at, self.frames = b"", 0, []
        self.conn.reader.buffer.clear()
        if not self.transport.is_closing() and not self.close_sent:
            self.conn.fail(TRY_AGAIN_LATER, "Too much is being sent at once")
            self.handle_parser_exception()


class PatientProtocol(HttpProtocol):
    """uvicorn's HTTP protocol, which does not wait for ever: for the head of a request, or for a reader."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._head = 0
        # A head has begun while the answer to the request before is still being made.
        self._is_ahead = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(cast("Any", transport))
        # Whatever a reader leaves in here is noticed: see `pause_writing`.
        self.transport.set_write_buffer_limits(high=0)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Part of a head, or of a body."""
        self._head += len(data)
        super().data_received(data)
        if self not in self.connections:  # it has become a WebSocket, or is gone
            self._forget()
            self._take()
            return
        if self._has_head():
            self._forget()
            return
        if self._head > self.limits.header_bytes:
            self.transport.abort()
        elif self._deadline is None:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is waited for."""
        self._forget()
        self._take()
        super().connection_lost(exc)

    # --- heads

    def on_message_begin(self) -> None:
        """The first byte of a head (of httptools; h11 has a bound of its own)."""
        self._is_ahead = True
        if self._is_answering():
            self._head = 0  # what came before was a body
        cast("Any", super()).on_message_begin()

    def on_headers_complete(self) -> None:
        """The last one."""
        self._is_ahead = False
        cast("Any", super()).on_headers_complete()

    def _has_head(self) -> bool:
        return self not in self.connections or (self._is_answering() and not self._is_ahead)

    def _is_answering(self) -> bool:
        return bool(self.cycle and not self.cycle.response_complete)

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(self.limits.handshake_seconds, self._too_late)

    def _too_late(self) -> None:
        self._deadline = None
        if not self._has_head() and not self.transport.is_closing():
            self.transport.abort()

    def _forget(self) -> None:
        self._head = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- readers

    def pause_writing(self) -> None:
        """Something waits for the reader, who has some time to take it."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.limits.stall_seconds, self._cut)

    def resume_writing(self) -> None:
        """It is taken."""
        super().resume_writing()
        self._take()

    def _take(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _cut(self) -> None:
        self._unread = None
        seconds = self.limits.stall_seconds
        log.warning("an answer is not read: nothing was taken for %g s; it is cut off", seconds)
        self.transport.abort()

    def shutdown(self) -> None:
        """The server stops. Who reads has a moment to read on."""
        super().shutdown()
        cut_later(self.transport, GOODBYE)
