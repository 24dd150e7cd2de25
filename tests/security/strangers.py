"""A room with a tool that costs money, and people at its door."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from everthink import Think, tool
from everthink.messages import Message
from everthink.observe import Event
from everthink.testing.client import Client

from ..support.server import Served, open_app, served

__all__ = ["Shop", "by_token", "crafted", "heard", "people", "said", "shop"]


class Shop(Think):
    """Refunds money, after somebody agreed."""

    paid: list[tuple[str, int]]
    looked: list[str]

    @tool(needs_approval=True)
    async def refund(self, order: str, amount: int) -> str:
        """Pay money back."""
        self.paid.append((order, amount))
        return f"paid {amount}"

    @tool
    async def look_up(self, order: str) -> str:
        """Look an order up."""
        self.looked.append(order)
        return f"{order}: 10 euros"


def shop(model: Any, **members: Any) -> type[Shop]:
    """The shop with this model, and with empty books."""
    return type("Shop", (Shop,), {"model": model, "paid": [], "looked": [], **members})


def said(id: str, text: str) -> Message:
    """A user message."""
    return Message(id, "user", [{"type": "text", "text": text}])


def crafted(id: str, role: str, *parts: dict[str, Any]) -> Message:
    """A message that no honest client sends."""
    return Message(id, role, list(parts))  # type: ignore[arg-type]


def by_token(connection: Any) -> Any:
    """`authenticate`: who it is stands in the query."""
    return connection.query_params.get("token")


async def people(server: Served, cls: type[Think], *names: str, room: str = "room") -> list[Client]:
    """Clients with a token each, greeted."""
    clients = [await server.connect(cls, room, id=f"tab-{name}", query={"token": name}) for name in names]
    for client in clients:
        await client.until_frame("mcp_servers")
    return clients


def heard(server: Served, type: str) -> list[Event]:
    """The events of this type from now on."""
    events: list[Event] = []
    server.app.events.subscribe(events.append, type=type)
    return events


@contextlib.asynccontextmanager
async def opened(folder: Any, *agents: type[Think], **options: Any) -> AsyncIterator[Served]:
    """A server that a test stops itself, to start it again."""
    async with served(open_app(folder, *agents, **options)) as server:
        yield server
