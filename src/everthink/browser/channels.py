"""The two ways to a browser: the pipes of one that we started, the WebSocket of one that runs elsewhere.

A pipe has no address: nobody else on the machine can talk to the browser, and it ends with us. Messages in it
end with a zero byte.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import urlsplit

from ..errors import AgentError
from ..masking import mask

__all__ = ["LARGEST", "NoBrowser", "Pipe", "Socket", "connect"]

LARGEST = 64 << 20
"""Bytes of one message of a browser; a longer one is not read."""
_CONNECTING = 10.0
_LARGEST_ANSWER = 65_536


class NoBrowser(AgentError):
    """There is no browser that can be started, or reached."""


class Pipe:
    """The standard input and output of a process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None, "its input is a pipe"
        assert process.stdout is not None, "so is its output"
        self._writer, self._reader = process.stdin, process.stdout

    async def write(self, message: bytes) -> None:
        """Send one message."""
        self._writer.write(message + b"\0")
        await self._writer.drain()

    async def read(self) -> bytes:
        """The next message, `b""` at the end."""
        is_whole = True
        while True:
            try:
                message = await self._reader.readuntil(b"\0")
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
                is_whole = False  # a page said more than is read: whoever asked it gets no answer
            else:
                if is_whole:
                    return message[:-1]
                is_whole = True

    async def close(self) -> None:
        """Close our end: the browser ends then."""
        self._writer.close()


class Socket:
    """A WebSocket."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket

    async def write(self, message: bytes) -> None:
        """Send one message."""
        from websockets.exceptions import ConnectionClosed

        try:
            await self._socket.send(message.decode())
        except ConnectionClosed as error:
            raise EOFError(str(error)) from error

    async def read(self) -> bytes:
        """The next message, `b""` at the end."""
        from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, PayloadTooBig

        try:
            said = await self._socket.recv()
        except ConnectionClosedOK:
            return b""
        except PayloadTooBig as error:
            raise ValueError("a message is too long") from error
        except ConnectionClosed as error:
            raise EOFError(str(error)) from error
        return said.encode() if isinstance(said, str) else bytes(said)

    async def close(self) -> None:
        """Say goodbye. The browser goes on: others may use it."""
        await self._socket.close()


async def connect(cdp_url: str) -> Socket:
    """Connect to a browser that runs elsewhere. With http(s) it is asked for the address of its socket."""
    from websockets.asyncio.client import connect as open_socket
    from websockets.exceptions import WebSocketException

    try:
        async with asyncio.timeout(_CONNECTING):
            url = cdp_url
            if urlsplit(url).scheme in ("http", "https"):
                url = await asyncio.to_thread(_socket_of, url)
            return Socket(await open_socket(url, max_size=LARGEST, compression=None, proxy=None))
    except (OSError, TimeoutError, ValueError, LookupError, WebSocketException) as error:
        raise NoBrowser(
            f"The browser at {mask(urlsplit(cdp_url).netloc.rpartition('@')[2])} does not answer.",
            kept="Nothing was opened.",
            next_step="Whoever runs the server can look at cdp_url=…. Until then do without the browser.",
        ) from error


def _socket_of(url: str) -> str:
    """Where the socket of a browser is, as it says itself; the host is the one that was named."""
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url.rstrip('/')}/json/version", timeout=_CONNECTING) as answer:
        told: Any = json.loads(answer.read(_LARGEST_ANSWER))
    said = urlsplit(str(cast("dict[str, Any]", told)["webSocketDebuggerUrl"]))
    asked = urlsplit(url)
    scheme = "wss" if asked.scheme == "https" else "ws"
    return said._replace(scheme=scheme, netloc=asked.netloc).geturl()
