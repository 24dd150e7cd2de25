"""One request to a platform's API: what came back, or which `DeliveryError` it is.

    adapter --ask(method, path, json)--> Rest --httpx2--> the platform
                                          |
                     a connection that was never made: Unreachable; one that broke, or fell silent: Uncertain

What an answer means is the adapter's to say: platforms tell errors in ways of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ..errors import MissingExtra
from .port import Refused, Uncertain, Unreachable

if TYPE_CHECKING:
    import httpx2

__all__ = ["Answer", "Rest", "fetched", "read"]

_TIMEOUT = 20.0
"""Seconds that a platform may take for an answer."""
_CONNECTING = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a platform has answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object; an empty one when it is none."""
        try:
            value = msgspec.json.decode(self.body) if self.body else None
        except msgspec.DecodeError:
            return {}
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Rest:
    """The API of one platform, at `base`."""

    def __init__(
        self, base: str, *, headers: Mapping[str, str] | None = None, timeout: float = _TIMEOUT
    ) -> None:
        self.base = base.rstrip("/")
        self._headers, self._timeout = dict(headers or {}), timeout
        self._client: httpx2.AsyncClient | None = None

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
        import httpx2

        content = None if json is None else msgspec.json.encode(json)
        given = dict(headers or {})
        if content is not None:
            given["content-type"] = "application/json; charset=utf-8"
        times = httpx2.Timeout(timeout or self._timeout, connect=_CONNECTING)
        try:
            response = await self._http().request(
                method, f"{self.base}{path}", content=content, headers=given, timeout=times
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise Unreachable(f"The platform cannot be reached: {type(error).__name__}.") from error
        except httpx2.TransportError as error:
            raise Uncertain(f"The platform has not answered: {type(error).__name__}.") from error
        return Answer(response.status_code, dict(response.headers), response.content)

    def _http(self) -> httpx2.AsyncClient:
        client = self._client
        if client is None:
            httpx2 = _httpx2()
            client = self._client = httpx2.AsyncClient(
                headers=self._headers,
                trust_env=False,
                limits=httpx2.Limits(max_connections=50, max_keepalive_connections=10),
            )
        return client

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


async def fetched(url: str, *, most: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes at an address that somebody else chose, through the guarded transport, at most so many."""
    httpx2 = _httpx2()
    from ..guard.transport import GuardedTransport

    async with httpx2.AsyncClient(transport=GuardedTransport(), timeout=_TIMEOUT) as http:
        return await read(http, url, most=most, headers=headers)


async def read(
    http: httpx2.AsyncClient, url: str, *, most: int, headers: Mapping[str, str] | None = None
) -> bytes:
    """The bytes at an address, at most so many. Raises `Refused` and `Unreachable`."""
    import httpx2

    got = bytearray()
    try:
        async with http.stream("GET", url, headers=dict(headers or {})) as response:
            if response.status_code != 200:
                raise Refused(f"The file could not be loaded: the platform says {response.status_code}.")
            async for piece in response.aiter_bytes():
                got += piece
                if len(got) > most:
                    raise Refused(f"The file is larger than {most} bytes.")
    except httpx2.TransportError as error:
        raise Unreachable(f"The file could not be loaded: {type(error).__name__}.") from error
    return bytes(got)


def _httpx2() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise MissingExtra(
            "Messengers are reached with the package httpx2, which is not installed.",
            kept="Nothing was sent.",
            next_step='Run: pip install "everthink[messengers]"',
        ) from error
    return httpx2
