"""People at the doors of an agent: how each way in answers them."""

from __future__ import annotations

import asyncio
from typing import Any

from websockets.exceptions import InvalidStatus

from everthink.observe import Event
from everthink.serving.page import WithPage
from everthink.serving.target import Loaded

from ..support.server import Served, open_app

ROOM = "/agents/assistant/room"
READ, REQUEST = f"{ROOM}/get-messages", f"{ROOM}/anything"
INSPECT, EVENTS = "/everthink/inspect/assistant/room", "/everthink/events/assistant/room"
WAYS = {"connect": ROOM, "read": READ, "request": REQUEST, "inspect": INSPECT, "events": EVENTS}
"""Every way to an agent; the last two only in development."""


async def socket(server: Served, path: str, **options: Any) -> tuple[int, str]:
    """How a socket is answered: 101 when it is let in, else the refusal."""
    try:
        await server.connect(path, **options)
    except InvalidStatus as refused:
        return refused.response.status_code, bytes(refused.response.body or b"").decode()
    return 101, ""


async def upgrade(server: Served, path: str, **headers: str) -> int:
    """How a socket is answered that asks for another host than it connects to, as after DNS rebinding."""
    fields = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    fields |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode())
        return int((await reader.readline()).split(b" ")[1])
    finally:
        writer.close()


async def knock(server: Served, way: str, token: str | None = None, **headers: str) -> tuple[int, str]:
    """Try one way in, with a token in a header."""
    given = {**({} if token is None else {"X-Token": token}), **headers}
    if way in ("connect", "events") and "Host" in given:
        return await upgrade(server, WAYS[way], **given), ""
    if way in ("connect", "events"):
        return await socket(server, WAYS[way], headers=given)
    answer = await server.http(WAYS[way], headers=given)
    return answer.status, answer.text


def by_header(connection: Any) -> Any:
    """`authenticate`: who it is stands in a header."""
    return connection.headers.get("x-token")


def develop(folder: Any, *agents: Any, **options: Any) -> WithPage:
    """An app as `everthink dev` serves it."""
    app = open_app(folder, *agents, **options)
    return WithPage(Loaded(app, "the tests", app))


def audits(events: list[Event]) -> list[tuple[Any, ...]]:
    """Of each audit event: what, whether it was allowed, why not, who, and where."""
    return [
        (
            e.payload["action"],
            e.payload["allowed"],
            e.payload.get("reason"),
            e.payload.get("identity"),
            e.name,
        )
        for e in events
        if e.type == "audit"
    ]
