"""A real server in the test's own event loop, and ways to reach it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from everthink import App, Think
from everthink.server.names import kebab
from everthink.testing.client import Client


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its signal handlers, which stops when told and not at the next tick."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready, self.stopping = asyncio.Event(), asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self.stopping.wait()


@dataclass
class Answer:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """An app that listens."""

    app: Any
    port: int
    _server: _Uvicorn
    _task: asyncio.Task[None]
    clients: list[Client] = field(default_factory=list)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def connect(self, agent: type[Think] | str, name: str = "room", **options: Any) -> Client:
        """A new tab. `agent` is a class, or a whole path."""
        path = agent if isinstance(agent, str) else f"/agents/{kebab(agent.__name__)}/{name}"
        client = await Client.connect(f"ws://{self.host}{path}", **options)
        self.clients.append(client)
        return client

    async def http(
        self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """One request, its path sent exactly as given."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        fields = {
            "Host": self.host,
            "Connection": "close",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        head_bytes, _, content = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        status, *lines = head_bytes.decode().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return Answer(int(status.split(" ")[1]), {name.lower(): value for name, value in pairs}, content)

    async def stop(self) -> None:
        """Shut down as on SIGTERM."""
        self._server.stopping.set()
        await self._task

    async def leave(self) -> None:
        """Close every tab."""
        for client in self.clients:
            with contextlib.suppress(Exception):
                await client.close()


@asynccontextmanager
async def served(app: Any, **config: Any) -> AsyncIterator[Served]:
    """Serve `app` on a free port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    server = _Uvicorn(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=2, **config))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if task.done():
        task.result()
        raise RuntimeError("the server did not start")
    running = Served(app, listener.getsockname()[1], server, task)
    try:
        yield running
    finally:
        await running.leave()
        await running.stop()
        listener.close()


def open_app(folder: Any, *agents: type[Think], **options: Any) -> App:
    """An app on the SQLite file of `folder`, not yet open."""
    options.setdefault("store", f"sqlite:///{folder}/everthink.db")
    options.setdefault("grace", 0.0)
    return App(*agents, **options)


def kinds(client: Client, *, since: int = 0) -> list[str]:
    """The types of what arrived, runs of chunks as one."""
    found: list[str] = []
    for frame in client.frames[since:]:
        kind = frame["type"].removeprefix("cf_agent_")
        if kind == "use_chat_response":
            kind = "done" if frame["done"] else "error" if frame.get("error") else "chunks"
        if kind != "chunks" or found[-1:] != ["chunks"]:
            found.append(kind)
    return found
