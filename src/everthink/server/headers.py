"""Headers that every answer has: a browser is told not to guess, not to keep, not to frame.

    Gate, devtools --send--> with_headers --> the server

An application that says something else in the same header knows better: nothing is overwritten.
"""

from __future__ import annotations

from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Send

__all__ = ["HEADERS", "with_headers", "with_headers_on"]

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
