"""Web sites on this machine: one that pages come from, one that nobody may reach; and a browser's tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from everthink.browser import Browsers, create_browser_tools
from everthink.guard.finding import Resolve
from everthink.tools.context import ToolContext
from everthink.workspace import Workspace
from everthink.workspace.memory import MemoryFiles

__all__ = ["Agent", "Hand", "Web", "hand", "web"]


@dataclass
class Web:
    """A site. What it has is in `pages`; what it was asked for in `asked`."""

    port: int = 0
    pages: dict[str, str] = field(default_factory=dict[str, str])
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Headers of an answer, by path: all of them in one text."""
    redirects: dict[str, str] = field(default_factory=dict[str, str])
    statuses: dict[str, str] = field(default_factory=dict[str, str])
    """What it says of a path in the place of 200."""
    held: dict[str, asyncio.Event] = field(default_factory=dict[str, "asyncio.Event"])
    """Paths that are not answered before this."""
    asked: list[str] = field(default_factory=list[str])
    heads: list[str] = field(default_factory=list[str])
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a path that is held was asked for."""
    connections: int = 0
    _talks: dict[asyncio.Task[None], asyncio.StreamWriter] = field(
        default_factory=dict["asyncio.Task[None]", asyncio.StreamWriter]
    )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._talks[cast("asyncio.Task[None]", asyncio.current_task())] = writer
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            self.asked.append(path)
            self.heads.append(head)
            plain = path.partition("?")[0]
            if plain in self.held:
                self.arrived.set()
                await self.held[plain].wait()
            writer.write(self._answer(plain))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, path: str) -> bytes:
        body = self.pages.get(path, "").encode()
        status, more = "200 OK" if path in self.pages else "404 Not Found", self.headers.get(path, "")
        status = self.statuses.get(path, status)
        if path in self.redirects:
            status, more = "302 Found", f"location: {self.redirects[path]}\r\n"
        head = f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\n{more}"
        return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body

    async def close(self) -> None:
        for event in self.held.values():
            event.set()
        for writer in self._talks.values():
            writer.close()
        await asyncio.gather(*self._talks)


@asynccontextmanager
async def web(pages: Mapping[str, str] | None = None, *, host: str = "127.0.0.1") -> AsyncGenerator[Web]:
    site = Web(pages=dict(pages or {}))
    server = await asyncio.start_server(site.talk, host, 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await site.close()


class Agent:
    """As much of an agent as the tools look at."""

    def __init__(self, id: str = "one") -> None:
        self.id = id
        self.workspace = Workspace(MemoryFiles())
        self.asked: list[str] = []
        self.says = "{}"

    async def generate_text(self, prompt: str, *, system: str = "") -> str:
        self.asked.append(prompt)
        return self.says


class Hand:
    """Calls the tools of a browser."""

    def __init__(self, browsers: Browsers, **options: Any) -> None:
        self.browsers = browsers
        self.tools = create_browser_tools(browsers=browsers, **options)
        self.agent = Agent()

    async def call(self, name: str, /, *, by: Agent | None = None, turn: str = "", **input: Any) -> Any:
        ctx = ToolContext(agent=by or self.agent, turn_id=turn)
        return await self.tools[f"browser_{name}"].call(input, ctx)

    async def ref(self, words: str) -> str:
        """The ref of the line of a snapshot that has these words."""
        snapshot = (await self.call("snapshot"))["snapshot"]
        [line] = [line for line in snapshot.splitlines() if words in line and "[ref=" in line]
        return line.partition("[ref=")[2].partition("]")[0]


@asynccontextmanager
async def hand(
    *sites: Web, browsers: Browsers | None = None, allow: Sequence[str] = (), **options: Any
) -> AsyncGenerator[Hand]:
    """Tools that may reach these sites, and a browser that ends with the block."""
    browsers = browsers or Browsers()
    places = [*allow, *(f"127.0.0.1:{site.port}" for site in sites)]
    try:
        yield Hand(browsers, allow_addresses=places, **options)
    finally:
        await browsers.close()


def names(**addresses: Sequence[str]) -> Resolve:
    """A resolver that knows these names, written with `_` for the dots."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = addresses.get(host.replace(".", "_").replace("-", "_"))
        if found is None:
            raise OSError(f"{host} is not known here")
        return found

    return resolve
