"""The body of an HTTP request, up to a bound: also one that does not say how long it is.

request --bounded--> the same request, whose body ends in 413 when it is too long
"""

from __future__ import annotations

from typing import NoReturn

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message

__all__ = ["bounded"]


def bounded(request: Request, most: int) -> Request:
    """`request`, of which no more than `most` bytes are read. Raises `HTTPException`, now or later."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 15 or int(declared) > most):
        _refuse(most)
    receive, read = request.receive, 0

    async def counted() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > most:
            _refuse(most)
        return message

    return Request(request.scope, counted)


def _refuse(most: int) -> NoReturn:
    raise HTTPException(413, f"The body is longer than {most} bytes.")
