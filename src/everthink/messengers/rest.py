"""One request to a platform's API: what came back, or which `DeliveryError` it is.

    adapter --ask(method, path, json)--> Rest --httpcore2--> the platform
                                          |
                     a connection that was never made: Unreachable; one that broke, or fell silent: Uncertain

What an answer means is the adapter's to say: platforms tell errors in ways of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from ..errors import MissingExtra
from .port import Refused, Uncertain, Unreachable

if TYPE_CHECKING:
    import httpcore2

__all__ = ["Answer", "Rest", "fetched", "origin_of"]

_TIMEOUT = 20.0
"""Seconds that a platform may take for an answer."""
_CONNECTING = 5.0
_CONNECTIONS, _IDLE_CONNECTIONS, _IDLE_SECONDS = 50, 10, 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a platform has answered."""

    status: int
    headers: Mapping[str, str]
    """Their names are in small letters."""
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object; an empty one when it is none."""
        try:
            value = msgspec.json.decode(self.body) if self.body else None
        except msgspec.DecodeError:
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Rest:
    """The API of one platform, at `base`. Nothing of it is logged: addresses have tokens in them."""

    def __init__(
        self, base: str, *, headers: Mapping[str, str] | None = None, timeout: float = _TIMEOUT
    ) -> None:
        self.base = base.rstrip("/")
        self._headers, self._timeout = dict(headers or {}), timeout
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def ask(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """One request. `Unreachable`: nothing was sent. `Uncertain`: nobody knows what came of it."""
        content = None if json is None else msgspec.json.encode(json)
        given = self._headers | dict(headers or {})
        if content is not None:
            given["content-type"] = "application/json; charset=utf-8"
        httpcore2 = _httpcore2()
        try:
            async with self._connections().stream(
                method,
                self.base + path,
                headers=[*given.items()],
                content=content,
                extensions={"timeout": _times(timeout or self._timeout)},
            ) as response:
                body = await response.aread()
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout, httpcore2.PoolTimeout) as error:
            raise Unreachable(f"The platform cannot be reached: {type(error).__name__}.") from error
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            raise Uncertain(f"The platform has not answered: {type(error).__name__}.") from error
        return Answer(response.status, _texts(response.headers), body)

    async def load(self, path: str, *, most: int) -> bytes:
        """The bytes of a file, at most so many. Raises `Refused` and `Unreachable`."""
        httpcore2 = _httpcore2()
        got = bytearray()
        try:
            async with self._connections().stream(
                "GET",
                self.base + path,
                headers=[*self._headers.items()],
                extensions={"timeout": _times(self._timeout)},
            ) as response:
                _check_loads(response.status)
                async for piece in response.aiter_stream():
                    _take(got, piece, most)
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            raise Unreachable(f"The file could not be loaded: {type(error).__name__}.") from error
        return bytes(got)

    def _connections(self) -> httpcore2.AsyncConnectionPool:
        pool = self._pool
        if pool is None:
            pool = self._pool = _httpcore2().AsyncConnectionPool(
                max_connections=_CONNECTIONS,
                max_keepalive_connections=_IDLE_CONNECTIONS,
                keepalive_expiry=_IDLE_SECONDS,
            )
        return pool

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()


def origin_of(url: str) -> str:
    """The scheme and host of an address: `https://slack.com`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


async def fetched(url: str, *, most: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes at an address that somebody else chose, through the guarded transport, at most so many."""
    _httpcore2()
    import httpx2

    from ..guard.transport import GuardedTransport

    got = bytearray()
    try:
        async with (
            httpx2.AsyncClient(transport=GuardedTransport(), timeout=_TIMEOUT) as http,
            http.stream("GET", url, headers=dict(headers or {})) as response,
        ):
            _check_loads(response.status_code)
            async for piece in response.aiter_bytes():
                _take(got, piece, most)
    except httpx2.TransportError as error:
        raise Unreachable(f"The file could not be loaded: {type(error).__name__}.") from error
    return bytes(got)


def _check_loads(status: int) -> None:
    if status != 200:
        raise Refused(f"The file could not be loaded: the platform says {status}.")


def _take(got: bytearray, piece: bytes, most: int) -> None:
    got += piece
    if len(got) > most:
        raise Refused(f"The file is larger than {most} bytes.")


def _times(seconds: float) -> dict[str, float]:
    return {"connect": _CONNECTING, "read": seconds, "write": seconds, "pool": seconds}


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}


def _httpcore2() -> Any:
    try:
        import httpcore2
    except ImportError as error:
        raise MissingExtra(
            "Messengers are reached with the package httpx2, which is not installed.",
            kept="Nothing was sent.",
            next_step='Run: pip install "everthink[messengers]"',
        ) from error
    return httpcore2
