"""Where a server under test listens, and the ways to reach it: a tab, a request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..address import in_address, kebab
from .client import Client

__all__ = ["Answer", "Place"]


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Place:
    """A port of this machine with agents behind it."""

    def __init__(self) -> None:
        self.port = 0
        """The port, once it listens."""
        self.clients: list[Client] = []
        """The clients made by `connect`; they are closed at the end."""

    @property
    def host(self) -> str:
        """Where it listens: `127.0.0.1:49152`."""
        return f"127.0.0.1:{self.port}"

    def address(self, agent: type | str, name: str = "default") -> str:
        """The address of an agent's socket. `agent` is a class, or a whole path."""
        path = agent if isinstance(agent, str) else f"/agents/{kebab(agent.__name__)}/{in_address(name)}"
        return f"ws://{self.host}{path}"

    async def connect(self, agent: type | str, name: str = "default", **options: Any) -> Client:
        """A new tab. `agent` is a class, or a whole path; `options` are those of `Client.connect`."""
        client = await Client.connect(self.address(agent, name), **options)
        self.clients.append(client)
        return client

    async def http(
        self, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
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
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            told, end, content = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if not end:
            raise ConnectionResetError(f"{self.host} hung up before it answered {method} {path}.")
        status, *lines = told.decode("latin-1").split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        received = {name.lower(): value for name, value in pairs}
        if received.get("transfer-encoding") == "chunked":
            content = _unchunked(content)
        return Answer(int(status.split(" ")[1]), received, content)

    async def leave(self) -> None:
        """Close every tab."""
        for client in self.clients:
            with contextlib.suppress(Exception):
                await client.close()


def _unchunked(content: bytes) -> bytes:
    """What a streamed answer says, its pieces put together."""
    whole = b""
    while content:
        size, _, content = content.partition(b"\r\n")
        length = int(size, 16)
        whole, content = whole + content[:length], content[length + 2 :]
    return whole
