"""What a stranger answers over HTTP, bounded before anybody reads it as JSON.

    response --bounded--> the same, read to its end; or, of a stream of events, each looked at as it comes

A few MiB of `{},{},…` become hundreds in memory and hold everybody up while they are made: values are counted
in the text. What is over a bound raises an `AgentError` in whoever reads.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx2

from ..errors import AgentError
from ..limits import Limits
from ..wire.bounds import check

__all__ = ["bounded"]

_RECODED = ("content-encoding", "content-length", "transfer-encoding")
_END_OF_EVENT = re.compile(rb"\r\n\r\n|\n\n|\r\r")


async def bounded(response: httpx2.Response, limits: Limits) -> httpx2.Response:
    """The answer with no more in it than may be."""
    is_json = response.headers.get("content-type", "").lower().startswith("application/json")
    if not is_json and response.status_code < 400:
        return _again(response, stream=_Events(response, limits))
    found = bytearray()
    try:
        async for part in response.aiter_bytes():
            found += part
            if len(found) > limits.frame_bytes:
                raise AgentError(f"Its answer has more than {limits.frame_bytes:,} bytes.")
    finally:
        await response.aclose()
    return _again(response, content=_fitting(bytes(found), limits))


def _again(response: httpx2.Response, **body: object) -> httpx2.Response:
    headers = [
        (name, value) for name, value in response.headers.multi_items() if name.lower() not in _RECODED
    ]
    return httpx2.Response(response.status_code, headers=headers, request=response.request, **body)  # pyright: ignore[reportArgumentType]


def _fitting(data: bytes, limits: Limits) -> bytes:
    if (why := check(data, limits)) is not None:
        raise AgentError(f"Its answer {why}.", next_step="Ask the server for less at a time.")
    return data


class _Events(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, limits: Limits) -> None:
        self._response, self._limits = response, limits

    async def __aiter__(self) -> AsyncIterator[bytes]:
        held = bytearray()
        async for part in self._response.aiter_bytes():
            seen = max(len(held) - 3, 0)
            held += part
            if ends := [match.end() for match in _END_OF_EVENT.finditer(held, seen)]:
                for event in _END_OF_EVENT.split(bytes(held[: ends[-1]])):
                    _fitting(event, self._limits)
                yield bytes(held[: ends[-1]])
                del held[: ends[-1]]
            elif len(held) > self._limits.frame_bytes:
                raise AgentError(f"An event of it has more than {self._limits.frame_bytes:,} bytes.")
        yield _fitting(bytes(held), self._limits)

    async def aclose(self) -> None:
        await self._response.aclose()
