"""Where a conversation is: the address of its socket, and of what it holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from ..address import canonical, child_in_address, in_address, kebab
from ..errors import AgentError
from ..messages import Message
from ..settings import shown

__all__ = ["is_of_child", "misled", "socket_address", "stored_messages"]

log = logging.getLogger("everthink.client")

SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
TIMEOUT = 10.0
_messages = msgspec.json.Decoder(list[Message]).decode


def socket_address(
    server: str,
    agent: str | type | None,
    name: str,
    token: str | None,
    sub: Sequence[tuple[str | type, str]] = (),
) -> str:
    """The address of an agent's socket, or of a child's below it: class and name of each step in `sub`.

    Without an `agent`, `server` is the whole of it, or the part above `sub`.
    """
    parts = urlsplit(server)
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise AgentError(f"{server!r} is not an address.", next_step="Write http://host:port.")
    path = parts.path.rstrip("/")
    if agent is not None:
        path += f"/agents/{_called(agent)}/{in_address(name)}"
    elif not path:
        raise AgentError(f"{server!r} names no agent.", next_step='Name one: connect(server, "assistant").')
    for step in sub:
        cls, child = _step(step)
        path += f"/sub/{_called(cls)}/{child_in_address(child)}"
    query = parts.query
    if token:
        query = f"{query}&token={quote(token, safe='')}".lstrip("&")
    return urlunsplit((scheme, parts.netloc, path, query, ""))


def _called(agent: str | type) -> str:
    """What a class is called in an address."""
    called = agent if isinstance(agent, str) else agent.__name__
    return kebab(called) if called != called.lower() else called


def _step(step: Any) -> tuple[str | type, str]:
    match step:
        case (str() | type() as cls, str() as name):
            return cls, name
        case _:
            raise AgentError(
                f"connect(sub=…) is given {shown(step)}, in the place of a child.",
                next_step='Write class and name of each child on the way: sub=[("researcher", "notes")].',
            )


def is_of_child(url: str, name: str) -> bool:
    """True for the address of a child of this name. Children are told their names as they are."""
    *_, sub, _, written = ["", "", "", *urlsplit(url).path.split("/")]
    return sub == "sub" and canonical(unquote(written)) == name


def misled(url: str, agent: str, name: str) -> tuple[str, str] | None:
    """Class and name of the child that an address names, when another agent answers there: a server takes a
    class that it does not know for a word of the path, and lets the parent answer.

    A child may be called otherwise than its class: so it is known by its name, unless its parent has that.
    """
    *_, above, upper, sub, kind, written = ["", "", "", "", "", *urlsplit(url).path.split("/")]
    if sub != "sub":
        return None
    child = canonical(unquote(written))
    is_child = name == child and (agent == kind or canonical(unquote(upper)) != child or agent != above)
    return None if is_child else (kind, child)


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
