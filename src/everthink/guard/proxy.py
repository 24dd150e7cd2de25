"""A proxy that opens only what may be opened: for programs whose requests others write, such as a browser.

    the program --CONNECT, GET http://…--> FilterProxy --Rules--> Finder --> one checked address
                                              |--> refused: what was not opened, and why (bounded)

The program looks nothing up itself: the name is looked up here, every answer is checked, and one of the
addresses that were checked is dialled. A connection carries one request, or one tunnel; when either end is
over, so is the other. It listens on this machine alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from ..errors import BlockedAddress
from .finding import Finder, Resolve, look_up
from .rules import Rules

__all__ = ["FilterProxy", "Refused"]

_HEAD = 65_536
_READ = 65_536
_MOST_CONNECTIONS = 256
_MOST_REFUSED = 200
_ASKING, _CONNECTING, _SILENT = 10.0, 10.0, 120.0
"""Seconds to say what is wanted, to be connected, and in which nothing is said in either direction."""
_FLUSHING = 5.0
_OWN = (b"proxy-", b"connection:", b"keep-alive:")
"""Headers that are between two ends of one connection, and go no further."""
_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Refused:
    """Something that was not opened."""

    host: str
    port: int
    why: str
    is_blocked: bool = True
    """False when it may be opened, and nobody answered there."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a connection wants: a tunnel when there is no `head` to send on."""

    host: str
    port: int
    head: bytes | None = None


class FilterProxy:
    """An HTTP proxy on 127.0.0.1 that keeps `rules`.

        async with FilterProxy(Rules()) as proxy:
            …  # http://127.0.0.1:{proxy.port}

    `silent` is how many seconds nothing may be said on a connection before it is ended.
    """

    def __init__(
        self,
        rules: Rules,
        *,
        resolve: Resolve = look_up,
        silent: float = _SILENT,
        asking: float = _ASKING,
        most_connections: int = _MOST_CONNECTIONS,
    ) -> None:
        self._rules, self._silent, self._asking = rules, silent, asking
        self._finder = Finder(loopback=False, allow=rules.allow, resolve=resolve)
        self._most = most_connections
        self._talks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.refused: deque[Refused] = deque(maxlen=_MOST_REFUSED)
        """What was not opened, the latest last."""
        self.refusals = 0
        """How many there were; `refused` keeps the latest."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None, "the proxy is not open"
        return self._server.sockets[0].getsockname()[1]

    @property
    def connections(self) -> int:
        """How many connections there are now."""
        return len(self._talks)

    def refused_since(self, count: int) -> list[Refused]:
        """What was refused after `refusals` was `count`, as far as it is kept."""
        new = min(self.refusals - count, len(self.refused))
        return list(self.refused)[-new:] if new > 0 else []

    async def close(self) -> None:
        """End every connection."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)

    # --- one connection

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.create_task(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._asking):
                head = await reader.readuntil(b"\r\n\r\n")
            if len(self._talks) > self._most or self._server is None:
                await _answer(writer, b"503 Service Unavailable", "Too many connections at once.")
                return
            asked = _asked(head)
            if asked is None:
                await _answer(writer, b"400 Bad Request", "This proxy opens http: addresses and tunnels.")
                return
            async with self._dialled(asked) as (far_reader, far_writer):
                if asked.head is None:
                    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                else:
                    far_writer.write(asked.head)
                await self._carry(reader, writer, far_reader, far_writer, is_tunnel=asked.head is None)
        except BlockedAddress as error:
            await _answer(writer, b"403 Forbidden", str(error))
        except _Unreachable as error:
            await _answer(writer, b"502 Bad Gateway", str(error))
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # an end has gone, or never said what it wanted
        finally:
            await self._ended(writer)

    @contextlib.asynccontextmanager
    async def _dialled(
        self, asked: _Asked
    ) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        try:
            self._rules.check(asked.host, asked.port)
            reader, writer = await self._connect(asked.host, asked.port)
        except BlockedAddress as error:
            self._note(Refused(asked.host[:255], asked.port, error.what))
            raise
        except _Unreachable as error:
            self._note(Refused(asked.host[:255], asked.port, str(error), is_blocked=False))
            raise
        try:
            yield reader, writer
        finally:
            await self._ended(writer)

    def _note(self, refused: Refused) -> None:
        self.refusals += 1
        self.refused.append(refused)

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        clock = asyncio.get_running_loop().time
        until = clock() + _CONNECTING
        try:
            addresses = await self._finder.find(host, port, within=_CONNECTING)
        except OSError as error:
            raise _Unreachable(f"{host} was not found.") from error
        for tried, address in enumerate(addresses):
            share = max(0.0, until - clock()) / (len(addresses) - tried)
            with contextlib.suppress(OSError):  # the next address may answer
                async with asyncio.timeout(share):
                    return await asyncio.open_connection(address, port, limit=_HEAD)
        raise _Unreachable(f"{host} does not answer on port {port}.")

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
        *,
        is_tunnel: bool,
    ) -> None:
        """Carry bytes both ways until either end is over, or neither says anything for too long."""
        clock = asyncio.get_running_loop().time
        heard = clock()

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal heard
            while data := await source.read(_READ):
                heard = clock()
                sink.write(data)
                await sink.drain()
                heard = clock()

        async def back() -> None:
            if not is_tunnel:
                await _answer_head(far_reader, writer)
            await pump(far_reader, writer)

        ways = {asyncio.create_task(pump(reader, far_writer)), asyncio.create_task(back())}
        try:
            while (left := heard + self._silent - clock()) > 0:
                done, _ = await asyncio.wait(ways, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    break
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _ended(self, writer: asyncio.StreamWriter) -> None:
        """Close one end: what was said to it may still arrive, for a while."""
        writer.close()
        try:
            async with asyncio.timeout(0 if self._server is None else _FLUSHING):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()


class _Unreachable(Exception):
    """Nobody answers there."""


def _asked(head: bytes) -> _Asked | None:
    """What a request wants; `None` when it is none that we serve."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    try:
        method, target, version = first.decode("ascii").split(" ")
    except ValueError:
        return None
    if not version.startswith("HTTP/1."):
        return None
    if method == "CONNECT":
        found = _TARGET.fullmatch(target)
        port = int(found[2]) if found is not None else 0
        return _Asked(found[1].strip("[]"), port) if found is not None and 0 < port < 65_536 else None
    try:
        url = urlsplit(target)
        host, port = url.hostname, url.port or 80
    except ValueError:
        return None
    if url.scheme != "http" or not host or "@" in url.netloc:
        return None
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    kept = [line for line in lines if not line.lower().startswith(_OWN)]
    request = [f"{method} {path} HTTP/1.1".encode("ascii"), *kept, b"Connection: close", b"", b""]
    return _Asked(host, port, b"\r\n".join(request))


async def _answer_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass the head of an answer on, saying that the connection ends with it: no second request may follow
    on a connection that leads to the place of the first."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) > 1 and words[1][:1] == b"1" and words[1] != b"101":
            continue  # "go on", "early hints": the real answer follows
        kept = [line for line in lines if not line.lower().startswith(_OWN)]
        writer.write(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]))
        return


async def _answer(writer: asyncio.StreamWriter, status: bytes, words: str) -> None:
    body = words.encode()
    lines = [
        b"HTTP/1.1 " + status,
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: %d" % len(body),
        b"Connection: close",
    ]
    writer.write(b"\r\n".join([*lines, b"", body]))
    with contextlib.suppress(OSError):
        await writer.drain()
