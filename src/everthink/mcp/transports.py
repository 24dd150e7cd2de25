"""How a client reaches a server: over HTTP (streamable or server-sent events), a process, or in this one.

    Link --connect--> connected(place) --> the SDK's transport, guarded and watched --> Client

Imported when the first server is connected: it loads the `mcp` package. Every HTTP request goes through the guard
for outgoing addresses, those of OAuth too. What is read from a server is watched, so that the end of a connection
is known when it comes and not at the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation

from mcp import Client

from ..errors import AgentError, NeedsAuthorization
from ..guard.transport import GuardedTransport
from ..plain import cut, plain
from .failures import failure_of
from .places import HttpServer, LocalServer, Place, StdioServer

__all__ = ["Connector"]

log = logging.getLogger("everthink.mcp")

CONNECTING = 10.0
READING = 300.0
"""Seconds between two pieces of a stream of events; there may be nothing to say for long."""
MAX_EVENT = 32 * 1024 * 1024
"""So many bytes one event of a server may have."""
_ELSEWHERE = frozenset({404, 405, 501})
"""Answers to a streamable request by a server that only knows server-sent events."""
_LONGEST_LINE = 2_000


@dataclass(frozen=True, slots=True)
class Connector:
    """Makes clients for one server."""

    name: str
    place: Place
    version: str
    loopback: bool = False
    allow: Sequence[str] = ()
    """Hosts near us that may be reached all the same."""
    auth: Callable[[], httpx2.Auth | None] = lambda: None
    """Who lets us in, made for each connection."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """More for the SDK's client: its callbacks."""

    @asynccontextmanager
    async def connect(self, lost: Callable[[], None]) -> AsyncGenerator[Client]:
        """A connected client. `lost` is called when the connection ends by itself."""
        match self.place:
            case LocalServer(server=server):
                async with self._client(server) as client:
                    yield client
            case StdioServer():
                async with self._process(self.place, lost) as client:
                    yield client
            case HttpServer():
                async with self._http(self.place, lost) as client:
                    yield client

    def _client(self, server: Any) -> Client:
        us = Implementation(name="everthink", version=self.version)
        return Client(server, read_timeout_seconds=READING, client_info=us, cache=None, **self.options)

    # --- over HTTP

    @asynccontextmanager
    async def _http(self, place: HttpServer, lost: Callable[[], None]) -> AsyncGenerator[Client]:
        statuses: list[int] = []
        is_entered = False
        if place.transport in ("auto", "streamable-http"):
            try:
                async with self._streamable(place, lost, statuses) as client:
                    is_entered = True
                    yield client
                return
            except BaseException as error:
                if is_entered:
                    raise
                self._refuse(error, statuses)
                if place.transport != "auto" or not _ELSEWHERE & set(statuses):
                    raise
                first = error
            try:
                async with self._events(place, lost, statuses) as client:
                    is_entered = True
                    yield client
                return
            except BaseException as error:
                if is_entered or not isinstance(failure_of(error).error, httpx2.HTTPStatusError | MCPError):
                    raise
                raise first
        async with self._events(place, lost, statuses) as client:
            yield client

    @asynccontextmanager
    async def _streamable(
        self, place: HttpServer, lost: Callable[[], None], statuses: list[int]
    ) -> AsyncGenerator[Client]:
        async with self._requests(place, self.auth(), statuses) as http:
            transport = streamable_http_client(place.url, http_client=http, max_sse_event_size=MAX_EVENT)
            async with self._client(_watched(transport, lost)) as client:
                yield client

    @asynccontextmanager
    async def _events(
        self, place: HttpServer, lost: Callable[[], None], statuses: list[int]
    ) -> AsyncGenerator[Client]:
        def made(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return self._requests(place, auth, statuses)

        transport = sse_client(place.url, httpx_client_factory=made, auth=self.auth())
        async with self._client(_watched(transport, lost)) as client:
            yield client

    def _requests(
        self, place: HttpServer, auth: httpx2.Auth | None, statuses: list[int]
    ) -> httpx2.AsyncClient:
        async def note(response: httpx2.Response) -> None:
            statuses.append(response.status_code)

        return httpx2.AsyncClient(
            transport=GuardedTransport(loopback=self.loopback, allow=self.allow),
            headers=dict(place.headers),
            auth=auth,
            timeout=httpx2.Timeout(CONNECTING, read=READING),
            event_hooks={"response": [note]},
            trust_env=False,
        )

    def _refuse(self, error: BaseException, statuses: Sequence[int]) -> None:
        """Tell somebody who cannot be let in why."""
        if isinstance(failure_of(error).error, NeedsAuthorization):
            return
        if 401 in statuses and self.auth() is None:
            raise AgentError(
                f"The MCP server {self.name!r} wants to know who we are (401).",
                kept="The server is kept.",
                next_step="Give headers={'Authorization': '…'}, or callback_host= so that a person can authorise it.",
            ) from error

    # --- a process

    @asynccontextmanager
    async def _process(self, place: StdioServer, lost: Callable[[], None]) -> AsyncGenerator[Client]:
        server = StdioServerParameters(
            command=place.command,
            args=list(place.args),
            env={**{name: os.environ[name] for name in place.inherit if name in os.environ}, **place.env},
            cwd=place.cwd,
        )
        with _log_of(self.name) as errlog:
            async with self._client(_watched(stdio_client(server, errlog=errlog), lost)) as client:
                yield client


@asynccontextmanager
async def _watched(transport: Any, lost: Callable[[], None]) -> AsyncGenerator[Any]:
    """The same transport, which tells when nothing more comes from the server."""
    async with transport as (read, write):
        yield _Watched(read, lost), write


class _Watched:
    """A stream that is read from."""

    def __init__(self, stream: Any, lost: Callable[[], None]) -> None:
        self._stream, self._lost = stream, lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        try:
            return await self._stream.receive()
        except BaseException:
            self._lost()
            raise

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._lost()
            raise

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


@contextlib.contextmanager
def _log_of(name: str) -> Any:
    """A file for what a process says on its standard error: it goes to our log, line by line."""
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    pending = b""

    def heard() -> None:
        nonlocal pending
        try:
            said = os.read(reading, 65_536)
        except OSError:
            said = b""
        if not said:
            loop.remove_reader(reading)
            return
        *lines, pending = (pending + said).split(b"\n")
        pending = pending[-_LONGEST_LINE:]
        for line in lines:
            log.info("%s: %s", name, cut(plain(line.decode(errors="replace")), _LONGEST_LINE))

    os.set_blocking(reading, False)
    loop.add_reader(reading, heard)
    file = os.fdopen(writing, "w")
    try:
        yield file
    finally:
        loop.remove_reader(reading)
        file.close()
        os.close(reading)
