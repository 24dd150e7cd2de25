"""The body of an HTTP request, up to a bound: also one that does not say how long it is, or never ends.

    request --bounded--> the same request, whose body ends in 413, 408 or 503

What has arrived of it counts with the messages of sockets that have begun to arrive: see `arriving.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive

from ..limits import Limits
from .arriving import Arriving

__all__ = ["bounded"]

STEP = 64 * 1024
"""So many bytes, or the rest, arrive within `stall_seconds`."""


@contextlib.contextmanager
def bounded(request: Request, limits: Limits) -> Generator[Request, None, None]:
    """`request`, of which no more is read than the limits allow. Raises `HTTPException`, now or later."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 15 or int(declared) > limits.frame_bytes):
        _refuse(limits.frame_bytes)
    body = _Body(request.receive, request.client.host if request.client else "", limits)
    try:
        yield Request(request.scope, body)
    finally:
        body.stop_counting()


class _Body:
    """`receive` of a request whose body is being read."""

    def __init__(self, receive: Receive, address: str, limits: Limits) -> None:
        self._receive, self._address, self._limits = receive, address, limits
        self._read = 0
        # What has arrived, and how long was waited, since the last step.
        self._step, self._waited = 0, 0.0
        self._patience: asyncio.Timeout | None = None
        self._counts = True
        self._is_let_go = self._has_ended = False

    async def __call__(self) -> Message:
        """The next piece."""
        if self._has_ended:
            return await self._receive()
        try:
            message = await self._in_time()
            self._count(message)
        except BaseException:
            self.stop_counting()
            raise
        return message

    def stop_counting(self) -> None:
        """Nobody waits for the rest."""
        self._counts = False
        Arriving.hold(self._let_go, 0)

    async def _in_time(self) -> Message:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        seconds = self._limits.stall_seconds
        message: Message = {}
        try:
            async with asyncio.timeout(seconds - self._waited) as self._patience:
                message = await self._receive()
        except TimeoutError:
            if not self._is_let_go:
                text = f"The body took too long: {STEP} bytes have {seconds:g} s."
                raise HTTPException(408, text) from None
        finally:
            self._patience = None
        if self._is_let_go:
            text = "Too much is being sent at once. Please try again later."
            raise HTTPException(503, text, {"Retry-After": "10"})
        self._waited += loop.time() - begun
        return message

    def _count(self, message: Message) -> None:
        size = len(message.get("body", b""))
        self._read += size
        if self._read > self._limits.frame_bytes:
            _refuse(self._limits.frame_bytes)
        self._step += size
        if self._step >= STEP:
            self._step, self._waited = 0, 0.0
        self._has_ended = not message.get("more_body", False)
        if self._counts:
            Arriving.hold(self._let_go, 0 if self._has_ended else self._read, self._address)
            Arriving.keep_within(self._limits.buffered_bytes)

    def _let_go(self) -> None:
        """Too much has begun to arrive: the request is refused, at the next piece at the latest."""
        self._is_let_go = True
        if self._patience is not None:
            self._patience.reschedule(0)


def _refuse(most: int) -> NoReturn:
    raise HTTPException(413, f"The body is longer than {most} bytes.")
