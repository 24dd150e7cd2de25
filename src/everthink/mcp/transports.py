"""How a client reaches a server: over HTTP (streamable or server-sent events), a process, or in this one.

    Link --connect--> Connector.connect --> the SDK's transport, guarded and watched --> Client

Imported when the first server is connected: it loads the `mcp` package. Every HTTP request goes through the
guard for outgoing addresses, those of OAuth too. What is read from a server is watched, so that the end of a
connection is known when it comes and not at the next call.
"""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx2
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation, JSONRPCRequest, JSONRPCResponse

from mcp import Client

from ..errors import AgentError
from ..programs import leashed, logged
from .failures import failure_of
from .http import MAX_ANSWER, READING, Requests, Watch
from .link import Lost
from .mending import mend
from .pipes import ANSWERS, Printed, printing
from .places import HttpServer, LocalServer, Place, StdioServer

__all__ = ["Connector"]

log = logging.getLogger("everthink.mcp")

for _sdk in map(logging.getLogger, ("mcp.client", "mcp.shared")):
    if _sdk.level == logging.NOTSET:
        # It names no server. What it would say is in our own lines, which do.
        _sdk.setLevel(logging.CRITICAL)

MOST_ASKED, ASKS_WITHIN = 100, 10.0
"""Requests of a server to us that are answered in so many seconds."""
_ELSEWHERE = frozenset({404, 405, 501})
"""Answers to a streamable request by a server that only knows server-sent events."""


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
    said: Callable[[str], object] = lambda line: None
    """Given each line that a process says beside its answers."""

    @asynccontextmanager
    async def connect(self, lost: Lost) -> AsyncGenerator[Client]:
        """A connected client. `lost` is called when the connection ends by itself."""
        watch = Watch(lost)
        async with AsyncExitStack() as stack:
            match self.place:
                case LocalServer(server=server):
                    client = await stack.enter_async_context(self._client(server))
                case StdioServer():
                    client = await self._process(self.place, watch, stack)
                case HttpServer():
                    client = await self._http(self.place, watch, stack)
            watch.is_standing = True
            # A stranger's schema is not run on a stranger's answer: a pattern in it may take for ever.
            cast("Any", client.session).validate_tool_result = _unchecked
            yield client

    def _client(self, server: Any) -> Client:
        us = Implementation(name="everthink", version=self.version)
        return Client(server, read_timeout_seconds=READING, client_info=us, cache=None, **self.options)

    # --- over HTTP

    async def _http(self, place: HttpServer, watch: Watch, stack: AsyncExitStack) -> Client:
        if place.transport != "sse":
            http = self._requests(place, watch)
            try:
                return await stack.enter_async_context(self._streamable(place, watch, http))
            except Exception as error:
                if place.transport != "auto" or http.status not in _ELSEWHERE:
                    raise self._plainly(error, http.status) from error
        http = self._requests(place, watch, has_one_way_back=True)
        try:
            return await stack.enter_async_context(self._events(place, watch, http))
        except Exception as error:
            raise self._plainly(error, http.status) from error

    def _requests(self, place: HttpServer, watch: Watch, *, has_one_way_back: bool = False) -> Requests:
        return Requests(
            headers=dict(place.headers),
            auth=self.auth(),
            loopback=self.loopback,
            allow=self.allow,
            watch=watch,
            silence=place.timeout,
            has_one_way_back=has_one_way_back,
        )

    @asynccontextmanager
    async def _streamable(self, place: HttpServer, watch: Watch, http: Requests) -> AsyncGenerator[Client]:
        transport = streamable_http_client(place.url, http_client=http, max_sse_event_size=MAX_ANSWER)
        async with http, self._client(_watched(transport, watch, self.name)) as client:
            yield client

    def _events(self, place: HttpServer, watch: Watch, http: Requests) -> Client:
        def made(headers: Any = None, timeout: Any = None, auth: Any = None) -> Requests:
            return http

        events = sse_client(place.url, httpx_client_factory=made)
        return self._client(_watched(events, watch, self.name))

    def _plainly(self, error: Exception, status: int | None) -> Exception:
        """Why nobody could be reached, in words, if it was more than that."""
        cause = failure_of(error).error
        if isinstance(cause, AgentError):
            return cause
        if isinstance(cause, httpx2.HTTPStatusError):
            status = cause.response.status_code
        if status == 401 and self.auth() is None:
            return AgentError(
                "It wants to know who we are (401): give headers={'Authorization': '…'}.",
                kept="The server is kept.",
                next_step="Where a person has to allow access, an agent adds it: add_mcp_server().",
            )
        if status in _ELSEWHERE:
            return AgentError(
                f"No MCP server is there: it answered {status}.",
                kept="The server is kept.",
                next_step="Check its address: it often ends in /mcp or /sse.",
            )
        if status is not None and status >= 400:
            return AgentError(f"It answered {status}.", kept="The server is kept, and tried again.")
        return error

    # --- a process

    async def _process(self, place: StdioServer, watch: Watch, stack: AsyncExitStack) -> Client:
        env = {**{name: os.environ[name] for name in place.inherit if name in os.environ}, **place.env}
        command, args = stack.enter_context(leashed(place.command, place.args, env.get("PATH")))
        server = StdioServerParameters(
            command=command,
            args=args,
            env=env,
            cwd=place.cwd,
            encoding=ANSWERS,
        )
        errlog = stack.enter_context(logged(log, self.name, self.said))
        printing.set(Printed(self.name, self.said))
        client = self._client(_watched(stdio_client(server, errlog=errlog), watch, self.name))
        try:
            return await stack.enter_async_context(client)
        except OSError as error:
            raise _not_started(place, error) from error
        except Exception as error:
            if not failure_of(error).is_over:
                raise
            raise AgentError(
                "The process ended before it had answered; what it said is in the log.",
                kept="The server is kept, and tried again.",
                next_step=f"Run it by hand: {shlex.join((place.command, *place.args))}",
            ) from error


def _not_started(place: StdioServer, error: OSError) -> AgentError:
    if place.cwd is not None and not os.path.isdir(place.cwd):
        what = f"The folder {place.cwd!r} is not there."
    elif isinstance(error, FileNotFoundError):
        what = f"There is no command {place.command!r} on this machine."
    else:
        what = f"The command {place.command!r} cannot be run: {error.strerror or error}."
    return AgentError(
        what,
        kept="The server is kept, and tried again.",
        next_step="Give the whole path of a program that can be run here.",
    )


@asynccontextmanager
async def _watched(transport: Any, watch: Watch, name: str) -> AsyncGenerator[Any]:
    """The same transport, which tells when nothing more comes from the server."""
    async with transport as (read, write):
        yield _Watched(read, watch, name), write


class _Watched:
    """A stream that is read from."""

    def __init__(self, stream: Any, watch: Watch, name: str) -> None:
        self._stream, self._watch, self._name = stream, watch, name
        self._since, self._asked = 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        while True:
            try:
                item = await self._stream.__anext__()
            except Exception:  # also its end
                self._watch.ended()
                raise
            message = getattr(item, "message", None)
            if isinstance(message, JSONRPCResponse):
                mend(message.result, self._name)
            if not isinstance(message, JSONRPCRequest) or self._may_ask():
                return item

    def _may_ask(self) -> bool:
        """False when the server has asked us so often that the rest is not answered for a while."""
        now = time.monotonic()
        if now - self._since > ASKS_WITHIN:
            self._since, self._asked = now, 0
        self._asked += 1
        if self._asked == MOST_ASKED + 1:
            log.warning("the MCP server %s asks too much: not all of it is answered", self._name)
        return self._asked <= MOST_ASKED

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


async def _unchecked(name: str, result: Any) -> None:
    return None
