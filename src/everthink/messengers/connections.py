"""Connections to one place that speaks HTTP/1.1: a request goes out whole, its answer comes back whole.

    Rest --bytes of a request--> Connections --one that is free, or a new one--> Connection --> the platform
                                                                                    |
                                             httptools reads the answer, up to a bound, while it keeps coming

A bot asks its platform something small for each message, and that is all these can do: no redirects, no
proxies, no requests in a row. What was sent on a connection that breaks may have arrived, so nothing is tried
again here.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, zip_longest
from typing import Any, cast

import httptools

from ..errors import MissingExtra
from .port import Uncertain, Unreachable

__all__ = ["Connections", "Reply", "TooLong"]

CONNECTING = 5.0
"""Seconds until a platform must have taken a connection, TLS included."""
STAGGERED = 0.25
"""Seconds after which the next address of a host is tried as well."""
MOST = 50
"""Connections to one place. Whoever asks when so many are in use waits for one."""
IDLE = 30.0
"""Seconds that one is kept open for the next request."""
LONGEST_HEAD = 64 * 1024
"""Bytes of an answer before its body."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer as it came."""

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class TooLong(Exception):
    """An answer has more bytes than was asked for."""


class Connection(asyncio.Protocol):
    """One connection: asked one thing at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reply: asyncio.Future[Reply] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heard = self._patience = 0.0
        self._most = 0
        self._look: Callable[[], bool] = lambda: True
        self._begin()
        self.idle_since = 0.0
        """When it became free, by the loop's clock."""
        self.is_open = False
        """True while another request may be sent on it."""

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._forget()

    def _forget(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._head_left, self._size = LONGEST_HEAD, 0
        self._has_head = self._has_length = False

    # --- asking

    async def ask(self, request: bytes, *, patience: float, most: int) -> Reply:
        """Send a request, and return its answer. Raises `Uncertain` and `TooLong`; it is closed then."""
        assert self._transport is not None
        self._most, self._patience, self._heard = most, patience, self._loop.time()
        self._timer = self._loop.call_later(patience, self._is_silent)
        reply = self._reply = self._loop.create_future()
        try:
            self._transport.write(request)
            return await reply
        finally:
            self._timer.cancel()
            self._reply = self._timer = None
            if not reply.done() or reply.cancelled() or reply.exception() is not None:
                self.abort()  # what comes on it now would be the answer to something else

    def _is_silent(self) -> None:
        """The time is over, unless something has been heard meanwhile."""
        left = self._heard + self._patience - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._is_silent)
        else:
            self._fail(Uncertain(f"The platform has not answered for {self._patience:g} s."))

    def has_news(self) -> bool:
        """True when something waits to be read, though nothing was asked: usually its end."""
        return self._look()

    def abort(self) -> None:
        """Close it at once."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        self.abort()
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)

    # --- what the event loop tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport, self.is_open = cast("asyncio.Transport", transport), True
        self._look = _looker(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        if self._reply is None or self._reply.done():
            self.abort()  # nobody has asked
            return
        self._heard = self._loop.time()
        if not self._has_head:
            self._head_left -= len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            said = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
            self._fail(
                said
                if isinstance(said, TooLong)
                else Uncertain(f"The platform's answer cannot be read: {error}.")
            )
            return
        if not self._has_head and self._head_left < 0:
            self._fail(Uncertain(f"The head of the platform's answer has more than {LONGEST_HEAD} bytes."))

    def eof_received(self) -> None:
        """Nothing more comes."""
        self._has_ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._has_ended(exc)

    def _has_ended(self, error: Exception | None) -> None:
        self.is_open = False
        reply = self._reply
        if reply is None or reply.done():
            return
        if error is None and self._has_head and not self._has_length:
            self._answer()  # its end is the end of the connection
        else:
            what = "hung up" if error is None else f"broke off: {type(error).__name__}"
            self._fail(Uncertain(f"The platform {what} before it had answered."))

    # --- what httptools reads

    def on_message_begin(self) -> None:
        """An answer begins."""
        if self._reply is None or self._reply.done():
            self.is_open = False  # nobody has asked for a second one

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head."""
        self._headers.append((name, value))
        self._has_length = self._has_length or name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._size += len(body)
        if self._size > self._most:
            raise TooLong
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole, or was only a word on the way: "continue", "early hints"."""
        if self._parser.get_status_code() >= 200:
            self.is_open = self.is_open and self._parser.should_keep_alive()
            self._answer()
        else:
            self._forget()

    def _answer(self) -> None:
        assert self._reply is not None
        if not self._reply.done():
            self._reply.set_result(Reply(self._parser.get_status_code(), self._headers, b"".join(self._body)))
        self._forget()
        if not self.is_open:
            self.abort()


class Connections:
    """The connections to one place. They are made when they are needed."""

    def __init__(self, host: str, port: int, *, is_secure: bool) -> None:
        self._host, self._port, self._is_secure = host, port, is_secure
        self._places = asyncio.Semaphore(MOST)
        # The one that became free last is at the end.
        self._free: deque[Connection] = deque()
        self._used: set[Connection] = set()
        self._is_closed = False

    async def ask(self, request: bytes, *, patience: float, most: int) -> Reply:
        """Send a request, and return its answer, of at most so many bytes. `patience`: seconds of silence.

        Raises `Unreachable` when nothing was sent, `Uncertain` when nobody knows, `TooLong`.
        """
        if self._places.locked():
            try:
                async with asyncio.timeout(patience):
                    await self._places.acquire()
            except TimeoutError:
                raise Unreachable(f"{MOST} requests wait for the platform's answers already.") from None
        else:
            await self._places.acquire()
        try:
            connection = self._taken() or await self._opened()
            self._used.add(connection)
            try:
                return await connection.ask(request, patience=patience, most=most)
            finally:
                self._used.discard(connection)
                self._keep(connection)
        finally:
            self._places.release()

    def _taken(self) -> Connection | None:
        """One that is free, and still open at the other end, as far as anybody knows."""
        oldest = asyncio.get_running_loop().time() - IDLE
        while self._free:
            connection = self._free.pop()
            if connection.is_open and connection.idle_since > oldest and not connection.has_news():
                return connection
            connection.abort()
        return None

    def _keep(self, connection: Connection) -> None:
        if self._is_closed or not connection.is_open:
            connection.abort()
            return
        connection.idle_since = now = asyncio.get_running_loop().time()
        self._free.append(connection)
        while self._free[0].idle_since <= now - IDLE or not self._free[0].is_open:
            self._free.popleft().abort()

    async def _opened(self) -> Connection:
        loop = asyncio.get_running_loop()
        trusted = _trusted() if self._is_secure else None
        try:
            async with asyncio.timeout(CONNECTING):
                reached = await _reached(self._host, self._port)
                try:
                    _, connection = await loop.create_connection(
                        Connection,
                        sock=reached,
                        ssl=trusted,
                        server_hostname=self._host if trusted is not None else None,
                    )
                except BaseException:
                    reached.close()
                    raise
        except TimeoutError as error:
            raise Unreachable("The platform cannot be reached: it takes too long to connect.") from error
        except OSError as error:
            raise Unreachable(f"The platform cannot be reached: {type(error).__name__}.") from error
        return connection

    def close(self) -> None:
        """Close them all. Who waits for an answer gets none."""
        self._is_closed = True
        for connection in (*self._free, *self._used):
            connection.abort()
        self._free.clear()


def _looker(found: socket.socket | None) -> Callable[[], bool]:
    """What tells whether something waits to be read on a socket."""
    number = -1 if found is None else found.fileno()
    if number < 0:
        return lambda: True
    if not hasattr(select, "poll"):
        return lambda: bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return lambda: bool(poll.poll(0))


async def _reached(host: str, port: int) -> socket.socket:
    """A socket that is connected to a host: to whichever of its addresses answers first. Each gets a start
    before the next, so that one that swallows what is sent to it keeps nobody waiting. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    attempts: dict[asyncio.Future[None], socket.socket] = {}
    failed: OSError | None = None
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    places = [*_by_turns(found)]
    try:
        while places or attempts:
            if places:
                family, kind, protocol, _, address = places.pop(0)
                one = socket.socket(family, kind, protocol)
                one.setblocking(False)
                attempts[asyncio.ensure_future(loop.sock_connect(one, address))] = one
            done, _ = await asyncio.wait(
                attempts, timeout=STAGGERED if places else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                error = attempt.exception()
                if error is None:
                    return attempts.pop(attempt)
                attempts.pop(attempt).close()
                failed = error if isinstance(error, OSError) else OSError(str(error))
        raise failed or OSError(f"{host} has no address")
    finally:
        for attempt, one in attempts.items():
            attempt.cancel()
            attempt.add_done_callback(partial(_left, one))


def _left(one: socket.socket, attempt: asyncio.Future[None]) -> None:
    """Nobody needs this attempt any more, whatever has become of it."""
    one.close()
    if not attempt.cancelled():
        attempt.exception()


_Address = tuple[int, int, int, str, Any]


def _by_turns(found: Iterable[_Address]) -> Iterable[_Address]:
    """Addresses of both families, by turns, beginning with the one that the system would take."""
    families: dict[int, list[_Address]] = {}
    for place in found:
        families.setdefault(place[0], []).append(place)
    return (place for place in chain.from_iterable(zip_longest(*families.values())) if place is not None)


@cache
def _trusted() -> ssl.SSLContext:
    """The authorities that everybody trusts. Reading them takes longer than a request: it is done once."""
    try:
        import httpcore2
    except ImportError as error:
        raise MissingExtra(
            "Messengers are reached with the package httpx2, which is not installed.",
            kept="Nothing was sent.",
            next_step='Run: pip install "everthink[messengers]"',
        ) from error
    trusted = httpcore2.default_ssl_context()
    trusted.set_alpn_protocols(["http/1.1"])
    return trusted
