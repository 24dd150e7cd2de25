"""People at the doors of an agent: how each way in answers them."""

from __future__ import annotations

from typing import Any

from websockets.exceptions import InvalidStatus

from everthink.cli.page import WithPage
from everthink.cli.target import Loaded
from everthink.observe import Event

from ..support.server import Served, open_app

__all__ = ["EVENTS", "INSPECT", "READ", "REQUEST", "ROOM", "WAYS", "audits", "develop", "knock", "socket"]

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


async def knock(server: Served, way: str, token: str | None = None, **headers: str) -> tuple[int, str]:
    """Try one way in, with a token in a header."""
    given = {**({} if token is None else {"X-Token": token}), **headers}
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
