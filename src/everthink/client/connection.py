"""One socket to an agent: frames out, texts in, and how it was closed.

It neither comes back nor understands what it carries: `line.py` does the first, `transcript.py` the second.
The library for sockets is loaded when the first one is opened.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from ..errors import NotConnected
from ..messages import Message, encode_json
from ..wire import frames as wire
from ..wire.codec import encode

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["Connection", "chat_request"]

CONNECT_TIMEOUT = 10.0
TOO_LONG = 1009
GONE = 1006
"""The code of a connection that ended without a goodbye."""


class Connection:
    """A socket that is open, until it is not."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        id: str | None = None,
        query: Mapping[str, str] | None = None,
        origin: str | None = None,
        headers: Mapping[str, str] | None = None,
        compression: str | None = "deflate",
    ) -> Self:
        """Connect. `id` is the connection's id (`_pk`). What goes wrong is raised as the library has it."""
        from .received import LONGEST_FRAME, Direct

        asked = {**({"_pk": id} if id is not None else {}), **(query or {})}
        if asked:
            url += f"{'&' if '?' in url else '?'}{urlencode(asked)}"
        given: Any = origin
        socket = await Direct(
            url,
            origin=given,
            additional_headers=dict(headers or {}),
            max_size=LONGEST_FRAME,
            max_queue=None,  # Whoever reads takes all that comes at once.
            compression=compression,
            open_timeout=CONNECT_TIMEOUT,
        )
        return cls(socket)

    async def send(self, frame: wire.ClientFrame | dict[str, Any] | str | bytes) -> None:
        """Send a frame, or anything else."""
        if isinstance(frame, dict):
            await self._socket.send(json.dumps(frame))
        else:
            await self._socket.send(frame if isinstance(frame, str | bytes) else encode(frame))

    async def texts(self) -> AsyncGenerator[str | bytes]:
        """What arrives, until the socket is closed, however that happens."""
        from websockets.exceptions import ConnectionClosed

        try:
            async for text in self._socket:
                yield text
        except ConnectionClosed as ended:
            if ended.rcvd is None and ended.sent is not None and ended.sent.code == TOO_LONG:
                most = self._socket.protocol.max_message_size
                what = f"The server sent a frame of more than {most} bytes."
                raise NotConnected(what, code=TOO_LONG) from None

    @property
    def closed(self) -> tuple[int, str]:
        """Code and reason, once it is closed."""
        return self._socket.close_code or GONE, self._socket.close_reason or ""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Leave."""
        await self._socket.close(code, reason)

    def drop(self) -> None:
        """Lose the network: no goodbye."""
        self._socket.transport.abort()


def chat_request(
    id: str, messages: Sequence[Message], trigger: str = "submit-message", **body: Any
) -> wire.UseChat:
    """The frame that sends this list as the conversation. `body` is what else the request says."""
    asked = {"messages": list(messages), "trigger": trigger, **body}
    return wire.UseChat(id, wire.RequestInit("POST", encode_json(asked).decode()))
