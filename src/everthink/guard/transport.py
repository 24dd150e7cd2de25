"""Connect to what was checked, and to nothing else.

    httpx2.AsyncClient --request--> GuardedTransport --check_url--> a pool of connections, by name
                                                                        | a new one is needed
                                    look up once, check every answer, connect to one of them

A name is looked up where its connection is made, and nobody looks it up again: an answer that changes a
moment later (DNS rebinding) changes nothing. The pool and TLS know the name alone, so certificates are those
of the name, and a connection that was made for one name carries no request for another that leads to the
same machine. Redirects are requests of the client like any other. The environment's proxies are not asked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from ..errors import MissingExtra
from .addresses import check_url, named_places
from .finding import Finder, NotFound, Resolve, look_up

try:
    import httpcore2
    import httpx2
except ImportError as error:
    raise MissingExtra(
        "Addresses that others choose are opened with the package httpx2, which is not installed.",
        kept="Nothing was opened.",
        next_step='Run: pip install "everthink[providers]"',
    ) from error

__all__ = ["GuardedTransport"]

_CONNECTIONS, _IDLE_CONNECTIONS, _IDLE_SECONDS = 100, 20, 5.0


class GuardedTransport(httpx2.AsyncBaseTransport):
    """How a client opens addresses that a model, a client of ours or a remote server chose.

        httpx2.AsyncClient(transport=GuardedTransport(allow=["mcp.lan:8080"]))

    Raises `BlockedAddress` for what does not lead to the public web. `loopback` lets this machine pass.
    `allow` names hosts that may lead anywhere, each with its port (without one: 80 and 443); a redirect
    from there to another host or port is checked like any. `verify` is for certificates of an authority of
    your own.
    """

    def __init__(
        self,
        *,
        loopback: bool = False,
        allow: Sequence[str] = (),
        verify: ssl.SSLContext | None = None,
        resolve: Resolve = look_up,
    ) -> None:
        self._loopback = loopback
        self._allow = named_places(allow)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=verify or _trusted(),
            max_connections=_CONNECTIONS,
            max_keepalive_connections=_IDLE_CONNECTIONS,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=_CheckedNetwork(Finder(loopback=loopback, allow=self._allow, resolve=resolve)),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request, if its URL and every address of its host may be opened."""
        check_url(str(request.url), loopback=self._loopback, allow=self._allow)
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=request.headers.raw,
            content=cast("AsyncIterable[bytes]", request.stream),
            extensions=request.extensions,
        )
        with _told_by_httpx2():
            answer: Any = await self._pool.handle_async_request(asked)  # its extensions have half a type
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


@cache
def _trusted() -> ssl.SSLContext:
    """The authorities that everybody trusts. Reading them takes longer than a request: it is done once."""
    return httpx2.create_ssl_context()


class _CheckedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to a host by addresses that were checked. However a URL is read, sockets are opened here."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._network = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Look up, check, connect: all of it within `timeout` seconds."""
        clock = asyncio.get_running_loop().time
        until = None if timeout is None else clock() + timeout
        addresses = await self._checked(host, port, timeout)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for tried, address in enumerate(addresses):
            share = None if until is None else max(0.0, until - clock()) / (len(addresses) - tried)
            try:
                return await self._network.connect_tcp(
                    address, port, timeout=share, local_address=local_address, socket_options=socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _checked(self, host: str, port: int, timeout: float | None) -> Sequence[str]:
        try:
            return await self._finder.find(host, port, within=timeout)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except NotFound as error:
            raise httpcore2.ConnectError(str(error)) from error


class _Body(httpx2.AsyncByteStream):
    """The body of an answer, as it arrives."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _told_by_httpx2():
            async for part in cast("AsyncIterable[bytes]", self._answer.stream):
                yield part

    async def aclose(self) -> None:
        with _told_by_httpx2():
            await self._answer.aclose()


@contextmanager
def _told_by_httpx2() -> Generator[None]:
    """The layers below have their own errors, of the same names."""
    try:
        yield
    except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
        told: type[httpx2.TransportError] = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise told(str(error)) from error
