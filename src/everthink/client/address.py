"""Where a conversation is: the address of its socket, and of what it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from ..address import in_address, kebab
from ..errors import AgentError
from ..messages import Message

__all__ = ["socket_address", "stored_messages"]

log = logging.getLogger("everthink.client")

SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
TIMEOUT = 10.0
_messages = msgspec.json.Decoder(list[Message]).decode


def socket_address(server: str, agent: str | type | None, name: str, token: str | None) -> str:
    """The address of an agent's socket. Without an `agent`, `server` is the whole of it."""
    parts = urlsplit(server)
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise AgentError(f"{server!r} is not an address.", next_step="Write http://host:port.")
    path = parts.path.rstrip("/")
    if agent is not None:
        called = agent if isinstance(agent, str) else agent.__name__
        called = kebab(called) if called != called.lower() else called
        path += f"/agents/{called}/{in_address(name)}"
    elif not path:
        raise AgentError(f"{server!r} names no agent.", next_step='Name one: connect(server, "assistant").')
    query = parts.query
    if token:
        query = f"{query}&token={quote(token, safe='')}".lstrip("&")
    return urlunsplit((scheme, parts.netloc, path, query, ""))


async def stored_messages(url: str, headers: Mapping[str, str] | None) -> list[Message] | None:
    """The conversation at a socket's address, as it is stored. `None` when the server does not tell."""
    from urllib.request import Request, urlopen

    parts = urlsplit(url)
    scheme = parts.scheme.replace("ws", "http", 1)
    place = urlunsplit((scheme, parts.netloc, f"{parts.path}/get-messages", parts.query, ""))

    def read() -> list[Message]:
        with urlopen(Request(place, headers=dict(headers or {})), timeout=TIMEOUT) as answer:
            return _messages(answer.read())

    try:
        return await asyncio.to_thread(read)
    except (OSError, msgspec.MsgspecError) as error:
        # What streams is shown all the same, and the rest comes with its end.
        log.info("the conversation so far cannot be read: %s", error)
        return None
