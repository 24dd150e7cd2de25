"""The answer to an HTTP request, on its way to somebody who may not read it.

    Response --body--> Answer --a piece at a time--> the server

A body that is handed over whole is the server's to keep for as long as the client likes. In pieces it stays
ours: it is counted with what waits for sockets, and who costs most is cut off when there is too much.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Send

from .waiting import Buffers, Long

__all__ = ["Answer", "Told"]

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
        self._send, self._buffers, self._cut, self._long = send, buffers, cut, long
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

    @property
    def cost(self) -> float:
        """The bytes that wait here; of a shared text, its part."""
        long = self._long
        return self._left if long is None else len(long) / max(long.holders, 1)

    def give_up(self) -> None:
        """Cut off a client that does not read."""
        log.warning("an answer is not read: %d bytes wait; it is cut off", self._left)
        self._is_over = True
        self._let_loose()
        if self._cut is not None:
            self._cut()

    def _hold(self) -> None:
        self._is_held = True
        if self._long is not None:
            self._buffers.share(self._long)
        self._buffers.hold(self, self._left if self._long is None else 0)

    def _let_loose(self) -> None:
        if not self._is_held:
            return
        self._is_held = False
        self._buffers.forget(self)
        if self._long is not None:
            self._buffers.unshare(self._long)
