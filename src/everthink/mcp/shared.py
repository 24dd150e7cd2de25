"""The MCP servers of an app, which every agent of it may use: one connection, or one process, for all.

    App(mcp_servers={…}) --> SharedServers --Server--> McpServers of each agent

They are connected when the first agent asks for its tools, and what they offer is kept in the table, so that
the next process offers it before they have answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from ..clock import Clock
from ..observe.events import McpChanged
from ..store.port import Store
from ..tasks import begin
from . import queries
from .catalogue import decode, encode
from .discovering import wires_of
from .naming import prefix_for, server_id
from .places import HttpServer, Network, Place
from .queries import SharedRow
from .server import Server

__all__ = ["SharedServers"]

log = logging.getLogger("everthink.mcp")


class SharedServers:
    """The servers of an app."""

    def __init__(
        self,
        places: Mapping[str, Place],
        network: Network,
        *,
        store: Store,
        clock: Clock,
        tell: Callable[[Any], object],
    ) -> None:
        self._network, self._store, self._clock, self._tell = network, store, clock, tell
        self._servers: dict[str, Server] = {}
        self._places = dict(places)
        self._opening: asyncio.Task[None] | None = None
        self._readers: dict[int, Callable[[], None]] = {}
        self._kept: dict[str, SharedRow] = {}
        self._saving: set[asyncio.Future[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._places)

    @property
    def servers(self) -> list[Server]:
        """Them, once somebody has asked."""
        return list(self._servers.values())

    def watch(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Tell of each change from now on. Returns how to end that."""
        key = id(changed)
        self._readers[key] = changed
        return lambda: self._readers.pop(key, None) and None

    async def open(self) -> None:
        """Know what they offer, and begin to connect. Nothing is waited for but the database."""
        if self._places and (self._opening is None or _has_failed(self._opening)):
            self._opening = asyncio.create_task(self._open())
        if self._opening is not None:
            await asyncio.shield(self._opening)

    async def _open(self) -> None:
        self._kept = await queries.shared_servers(self._store)
        taken: set[str] = set()
        for name, place in self._places.items():
            prefix = prefix_for(name, taken)
            taken.add(prefix)
            # Whoever writes an address into the program may mean one near us.
            allow = [place.url] if isinstance(place, HttpServer) else []
            kept = self._kept.get(name, SharedRow("{}", None))
            server = Server(
                id if (id := server_id(name)) not in self._servers else prefix,
                name,
                prefix,
                place,
                wires=lambda server, allow=allow: wires_of(server, self._network, self._clock, written=allow),
                clock=self._clock,
                moved=self._moved,
                kept=None if kept.catalogue is None else decode(kept.catalogue),
                accepted=msgspec.json.decode(kept.options, type=dict[str, Any]).get("accepted"),
            )
            server.on_accept = self._keep
            self._servers[server.id] = server
            server.start()

    def _moved(self, server: Server) -> None:
        if server.state == "ready":
            if names := server.accept_new():
                self._tell(McpChanged(server_id=server.id, tools=names))
            self._save(self._keep(server))
        for changed in list(self._readers.values()):
            changed()

    def _save(self, work: Awaitable[Any]) -> None:
        task = begin(work, "keeping what an MCP server offers", tell=self._tell)
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)

    async def _keep(self, server: Server) -> None:
        """Keep what a server offers and what was accepted of it, if that is not kept already."""
        options = msgspec.json.encode({"accepted": server.accepted}).decode()
        row = SharedRow(options, None if server.catalogue is None else encode(server.catalogue))
        if row != self._kept.get(server.name):
            self._kept[server.name] = row
            await self._store.apply([queries.shared_offered(server.name, row, now=self._clock.now_ms())])

    async def close(self) -> None:
        """Hang up, and end the processes."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await asyncio.gather(*(server.stop() for server in self._servers.values()))
        if self._saving:
            await asyncio.wait(self._saving)


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
