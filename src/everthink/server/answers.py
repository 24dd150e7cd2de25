"""The answer to an HTTP request, on its way to somebody who may not read it.

    Response --body--> Answer --a piece at a time--> the server

A body that is handed over whole is the server's to keep for as long as the client likes. In pieces it stays
ours: it is counted with what waits for sockets, and who costs most is cut off when there is too much.

Every answer has headers that tell a browser not to guess, not to keep, not to frame. An application that says
something else in the same header knows better: nothing is overwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast
from weakref import WeakSet

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Send

from ..settings import shown
from .routes import path_of
from .waiting import Buffers, Long

__all__ = ["HEADERS", "Answer", "Told", "as_response", "refused", "with_headers", "with_headers_on"]

log = logging.getLogger("everthink.server")

PIECE = 64 * 1024


class Told(Response):
    """A text that others may be waiting for as well."""

    media_type = "application/json"

    def __init__(self, long: Long) -> None:
        super().__init__(long.data)
        self.long = long


class Answer:
    """`send` of a request, that keeps what is not read within bounds."""

    def __init__(
        self, send: Send, buffers: Buffers, cut: Callable[[], None] | None, long: Long | None = None
    ) -> None:
        self._send, self._buffers, self._cut = send, buffers, cut
        self._longs = [] if long is None else [long]
        self._left = 0
        self._is_held = self._is_over = False

    async def __call__(self, message: Any) -> None:
        """Send it on, a long body in pieces."""
        if self._is_over:
            return
        body: bytes = message.get("body", b"")
        if len(body) <= PIECE:
            await self._send(message)
            return
        self._left, more = len(body), message.get("more_body", False)
        self._hold()
        try:
            while self._left and not self._is_over:
                at = len(body) - self._left
                piece = body[at : at + PIECE]
                self._left -= len(piece)
                await self._send({**message, "body": piece, "more_body": more or self._left > 0})
        finally:
            self._left = 0
            self._let_loose()

    def _give_up(self) -> None:
        """Cut off a client that does not read."""
        log.warning("an answer is not read: %d bytes wait; it is cut off", self._left)
        self._is_over = True
        self._let_loose()
        if self._cut is not None:
            self._cut()

    def _hold(self) -> None:
        self._is_held = True
        for long in self._longs:
            self._buffers.share(long)
        self._buffers.hold(self._give_up, 0 if self._longs else self._left, self._longs)

    def _let_loose(self) -> None:
        if not self._is_held:
            return
        self._is_held = False
        self._buffers.forget(self._give_up)
        for long in self._longs:
            self._buffers.unshare(long)


def refused(connection: HTTPConnection, status: int, text: str, why: str) -> Response:
    """Our own refusal. The client gets the text, the log the reason; queries may hold secrets."""
    log.warning("%s is refused with %d: %s.", path_of(connection.scope), status, why)
    return PlainTextResponse(text, status)


# --- what a hook answered

_TOLD: WeakSet[type] = WeakSet()


def as_response(answer: Any, cls: type) -> Response:
    """What `on_request` of an agent answered. A status that is not sent as one is told once for its class."""
    if isinstance(answer, Response):
        return answer
    if (status := _status_in(answer)) is not None and cls not in _TOLD:
        _TOLD.add(cls)
        log.warning(
            "%s.on_request returned %s, which is sent as JSON, with the status 200. If %d is meant as the"
            " status, return starlette.responses.JSONResponse(…, status_code=%d).",
            cls.__name__,
            shown(answer),
            status,
            status,
        )
    return JSONResponse(answer)


def _status_in(answer: Any) -> int | None:
    """The status that other frameworks would read from this: `(body, 404)`, or `404`."""
    if isinstance(answer, tuple) and answer:
        return _status_in(cast("tuple[Any, ...]", answer)[-1])
    if isinstance(answer, int) and not isinstance(answer, bool) and 100 <= answer <= 599:
        return answer
    return None


# --- headers

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # Conversations are private: not in a cache on the way, not on a disk that others use.
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    # Addresses hold the names of conversations.
    "Referrer-Policy": "no-referrer",
}


def with_headers(send: Send) -> Send:
    """`send` for an HTTP request, with `HEADERS` where the answer has none of its own."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message.setdefault("headers", [])  # they may be left out
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


def with_headers_on(response: Response) -> Response:
    """The same for the response that refuses a socket."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response
