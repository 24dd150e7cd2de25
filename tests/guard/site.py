"""A small web site on this machine: it answers what it is told to, and remembers who asked for what."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast


@dataclass
class Site:
    port: int = 0
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    closes: bool = False
    """Ends each connection after its answer."""
    cuts: bool = False
    """Ends it in the middle of the body."""
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The host and the path of each request."""
    bodies: list[bytes] = field(default_factory=list[bytes])
    connections: int = 0
    talks: dict[asyncio.Task[None], asyncio.StreamWriter] = field(
        default_factory=dict["asyncio.Task[None]", asyncio.StreamWriter]
    )

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.talks[cast("asyncio.Task[None]", asyncio.current_task())] = writer
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().rstrip().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines)
                path = first.split()[1]
                self.asked.append((headers["host"], path))
                if length := int(headers.get("content-length", 0)):
                    self.bodies.append(await reader.readexactly(length))
                writer.write(self._answer(path))
                await writer.drain()
                if self.closes or self.cuts or headers.get("connection") == "close":
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, path: str) -> bytes:
        if path in self.redirects:
            location = self.redirects[path]
            return f"HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()
        length = 50 if self.cuts else 5
        ending = "connection: close\r\n" if self.closes else ""
        return f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{ending}\r\nhello".encode()


@asynccontextmanager
async def served(
    site: Site, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Site]:
    server = await asyncio.start_server(site.talk, host, 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for writer in site.talks.values():
            writer.close()
        await asyncio.gather(*site.talks)


class Names:
    """A resolver that gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
