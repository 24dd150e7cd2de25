"""The MCP servers of one agent: added, kept over restarts, listed, removed; and those of its app beside them.

    Agent.add_mcp_server --> McpServers --Server--> tools of its turns, frames for its clients
                                 |--> mcp_servers: address, options, secrets, what it offers

A server that was added stays, whether it answers or not, until it is removed. One that fails affects no
other, and no start of the agent waits for any.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import Clock
from ..errors import AgentError, InvalidSettings, SecretsUnreadable
from ..guard.addresses import check_url
from ..observe.events import EventBody, McpChanged, McpConnected, McpRemoved
from ..store.port import AgentStore, Statement
from ..tools.tool import Tool
from . import queries
from .callback import Callback
from .catalogue import decode, encode
from .discovering import wires_of
from .keep import Keep
from .link import Link
from .naming import callback_url, normal_url, prefix_for, random_id, server_id
from .network import Network
from .places import HttpServer, McpServer
from .queries import ServerRow
from .server import Server
from .shared import SharedServers
from .words import said

if TYPE_CHECKING:
    from .oauth import DurableOAuth

__all__ = ["FLAG", "McpServers", "Parts"]

log = logging.getLogger("everthink.mcp")

FLAG = "mcp"
"""The small value that says that an agent has servers of its own."""
FIRST = 30.0
"""Seconds that adding a server waits for its first connection."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What the servers of one agent work with."""

    id: str
    cls_name: str
    name: str
    store: AgentStore
    clock: Clock
    emit: Callable[[EventBody], None]
    save_value: Callable[[str, Any], Statement]
    background: Callable[[Awaitable[Any]], None]
    changed: Callable[[], None]
    """Tells those who watch that the list is another one."""
    network: Network
    shared: SharedServers


class McpServers:
    """The servers of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._own: dict[str, Server] = {}
        self._keeps: dict[str, Keep] = {}
        self._callbacks: dict[str, str | None] = {}
        self._hidden: set[str] = set()
        self._adding = asyncio.Lock()
        self._leave: Callable[[], None] | None = None
        self._is_closed = False

    # --- its life

    async def restore(self) -> None:
        """Know the servers that were added before, and begin to connect. No network is waited for."""
        for row in await queries.servers_of(self._parts.store):
            server = await self._restored(row)
            if server is not None and not server.waits_at:
                server.start()

    async def _restored(self, row: ServerRow) -> Server | None:
        try:
            options = msgspec.json.decode(row.options, type=dict[str, Any])
            accepted: dict[str, str] = options.pop("accepted", {})
            keep = self._keep(row.id)
            kept = await keep.read() if row.secrets is not None else {}
            place = HttpServer(row.address, headers=kept.get("headers") or {}, **options)
        except (SecretsUnreadable, InvalidSettings, msgspec.DecodeError, TypeError) as error:
            # It stays in the table: with the right key it is there again.
            log.warning("%s: the MCP server %s is left out: %s", self._parts.id, row.name, error)
            return None
        return self._made(row, place, accepted, is_given="Authorization" in place.headers)

    def _made(
        self, row: ServerRow, place: HttpServer, accepted: Mapping[str, str], *, is_given: bool
    ) -> Server:
        """A server from its row. `is_given`: we are let in by a header, and OAuth is not asked."""
        self._callbacks[row.id] = row.callback_url

        def auth() -> DurableOAuth | None:
            return None if is_given or self._callbacks.get(row.id) is None else self._oauth(row.id, place)

        server = Server(
            row.id,
            row.name,
            row.prefix,
            place,
            wires=lambda server: wires_of(server, self._parts.network, self._parts.clock, auth=auth),
            clock=self._parts.clock,
            moved=self._moved,
            kept=decode(row.catalogue) if row.catalogue is not None else None,
            accepted=accepted,
            auth_url=row.auth_url,
        )
        server.on_accept = self._keep_accepted
        self._own[row.id] = server
        return server

    def _keep(self, id: str) -> Keep:
        store = self._parts.store

        async def load() -> str | None:
            rows = [row for row in await queries.servers_of(store) if row.id == id]
            return rows[0].secrets if rows else None

        async def save(text: str) -> None:
            await store.apply([queries.changed(id, secrets=text)])

        return self._keeps.setdefault(id, Keep(self._parts.network.sealer, load, save))

    def _oauth(self, id: str, place: HttpServer) -> DurableOAuth:
        from .oauth import DurableOAuth, OAuthServer

        server = OAuthServer(id=id, url=place.url, callback_url=self._callbacks.get(id))
        return DurableOAuth(server, self._keep(id), self._parts.clock)

    async def close(self) -> None:
        """Hang up."""
        self._is_closed = True
        if self._leave is not None:
            self._leave()
        await asyncio.gather(*(server.stop() for server in self._own.values()))

    # --- adding and removing

    async def add(
        self,
        name: str,
        place: HttpServer,
        *,
        id: str | None = None,
        host: str | None = None,
        path: str | None = None,
    ) -> McpServer:
        """Keep a server and connect to it. Raises when it cannot be connected to; it is kept all the same."""
        network = self._parts.network
        url = normal_url(place.url)
        check_url(url, loopback=network.loopback, allow=network.allow)
        wanted = None if id is None else server_id(id)
        await self.open()  # names of theirs are taken
        async with self._adding:
            server = self._known(name, url, wanted)
            if server is None:
                server = await self._stored(name, place, url, wanted or random_id(), host, path)
            elif host is not None and self._callbacks.get(server.id) is None:
                await self._set_callback(
                    server, callback_url(host, *self._whose, prefix=network.prefix, path=path)
                )
        link = (
            server.start()
            if server.link is None or server.state in ("failed", "authenticating")
            else server.link
        )
        await self._settled([link], FIRST)
        self._check(server)
        return self._shown(server)

    @property
    def _whose(self) -> tuple[str, str]:
        return self._parts.cls_name, self._parts.name

    def _known(self, name: str, url: str, id: str | None) -> Server | None:
        """The server that is meant. Raises when its id is another's."""
        for server in self._own.values():
            if server.name == name and normal_url(server.address) == url:
                return server
        other = self._own.get(id or "") or next(
            (one for one in self._parts.shared.servers if one.id == id), None
        )
        if other is not None:
            raise AgentError(
                f'MCP server id "{id}" is already in use by server {other.name!r}.',
                kept="Nothing was added.",
                next_step="Give another id=, or remove the other one first.",
            )
        return None

    async def _stored(
        self, name: str, place: HttpServer, url: str, id: str, host: str | None, path: str | None
    ) -> Server:
        network, store = self._parts.network, self._parts.store
        taken = {server.prefix for server in (*self._own.values(), *self._parts.shared.servers)}
        place = dataclasses.replace(place, url=url)
        back = None if host is None else callback_url(host, *self._whose, prefix=network.prefix, path=path)
        secrets = network.sealer.seal({"headers": dict(place.headers)}) if place.headers else None
        row = ServerRow(id, name, prefix_for(name, taken), url, _options(place), secrets, back, None, None)
        now = self._parts.clock.now_ms()
        await store.apply([queries.added(row, now=now), self._parts.save_value(FLAG, True)])
        return self._made(row, place, {}, is_given="Authorization" in place.headers)

    async def _set_callback(self, server: Server, url: str) -> None:
        await self._parts.store.apply([queries.changed(server.id, callback_url=url)])
        self._callbacks[server.id] = url

    def _check(self, server: Server) -> None:
        """Raise when a server that was added cannot be used."""
        if server.state in ("ready", "authenticating"):
            return
        raise AgentError(
            f"Failed to connect to MCP server at {server.address}: {server.error or 'it does not answer.'}",
            kept=f"The server is kept as {server.id!r} and tried again.",
            next_step="Remove it with remove_mcp_server(), or wait: its tools are offered once it answers.",
        )

    async def remove(self, id: str) -> bool:
        """Forget a server, with its secrets. False when there is none of that id."""
        async with self._adding:
            server = self._own.pop(id, None)
            if server is None:
                return False
            last = [] if self._own else [self._parts.save_value(FLAG, None)]
            await self._parts.store.apply([queries.removed(id), *last])
            self._keeps.pop(id, None)
            self._callbacks.pop(id, None)
        await server.stop()
        self._parts.emit(McpRemoved(server_id=id))
        self._parts.changed()
        return True

    # --- coming back from an authorization server

    def callback_of(self, id: str) -> str | None:
        """The address that people come back to for a server."""
        return self._callbacks.get(id)

    async def finish(self, callback: Callback) -> None:
        """Redeem what a person brought back, and connect. Raises as `DurableOAuth.finish` does."""
        import httpx2

        from ..guard.transport import GuardedTransport

        server = self._own[callback.server_id]
        assert isinstance(server.place, HttpServer)
        network = self._parts.network
        transport = GuardedTransport(loopback=network.loopback, allow=network.allow)
        async with httpx2.AsyncClient(transport=transport, trust_env=False) as http:
            await self._oauth(server.id, server.place).finish(callback, http)
        await self._parts.store.apply([queries.changed(server.id, auth_url=None)])
        server.waits_at = None
        server.start()

    # --- what changed

    def _moved(self, server: Server) -> None:
        if self._is_closed or self._own.get(server.id) is not server:
            return
        self._parts.emit(
            McpConnected(server_id=server.id, url=server.address, state=server.state, error=server.error)
        )
        if server.state == "ready":
            self._parts.background(self._keep_offer(server))
        elif server.state == "authenticating" and server.auth_url != server.waits_at:
            server.waits_at = server.auth_url
            self._parts.background(self._keep_auth_url(server))
        self._parts.changed()

    async def _keep_offer(self, server: Server) -> None:
        catalogue = server.catalogue
        assert catalogue is not None
        if names := server.accept_new():
            self._parts.emit(McpChanged(server_id=server.id, tools=names))
        await self._parts.store.apply(
            [
                queries.offered(server.id, catalogue=encode(catalogue), now=self._parts.clock.now_ms()),
                queries.changed(server.id, options=_options(server.place, server.accepted), auth_url=None),
            ]
        )

    async def _keep_accepted(self, server: Server) -> None:
        options = _options(server.place, server.accepted)
        await self._parts.store.apply([queries.changed(server.id, options=options)])

    async def _keep_auth_url(self, server: Server) -> None:
        await self._parts.store.apply([queries.changed(server.id, auth_url=server.auth_url)])
        self._parts.changed()

    # --- what others ask of it

    @property
    def servers(self) -> list[Server]:
        """The agent's own, then those of the app."""
        return [*self._own.values(), *self._parts.shared.servers]

    async def open(self) -> None:
        """See that the app's servers are known, too."""
        shared = self._parts.shared
        if not shared:
            return
        if self._leave is None:
            self._leave = shared.watch(self._parts.changed)
        await shared.open()

    async def tools(self) -> Mapping[str, Tool]:
        """The tools of all servers. Of two of one name the first counts."""
        await self.open()
        tools: dict[str, Tool] = {}
        for server in reversed(self.servers):
            tools |= server.tools()
        return tools

    def hidden(self, names: Collection[str]) -> None:
        """Tools of these names are not offered: the agent has its own. Said once of each."""
        new = [name for name in names if name not in self._hidden]
        self._hidden.update(new)
        if new:
            log.warning(
                "%s: tools of MCP servers are left out, the agent has its own of that name: %s",
                self._parts.id,
                ", ".join(new),
            )

    async def wait(self, seconds: float | None) -> None:
        """Return when the connections that are under way now have been made or have failed, or in time."""
        await self.open()
        links = [server.link for server in self.servers if server.link is not None]
        await self._settled([link for link in links if not link.settled.is_set()], seconds)

    async def _settled(self, links: Sequence[Link], seconds: float | None) -> None:
        if not links or (seconds is not None and seconds <= 0):
            return
        waits = [asyncio.ensure_future(link.settled.wait()) for link in links]
        limit = [] if seconds is None else [asyncio.ensure_future(self._parts.clock.sleep(seconds))]
        everything = asyncio.ensure_future(asyncio.wait(waits))
        try:
            await asyncio.wait([everything, *limit], return_when=asyncio.FIRST_COMPLETED)
        finally:
            everything.cancel()
            for task in (*waits, *limit):
                task.cancel()

    def find(self, id: str) -> Server:
        """A server by its id or its name. Raises when there is none."""
        for server in self.servers:
            if id in (server.id, server.name):
                return server
        known = ", ".join(server.id for server in self.servers) or "none"
        raise AgentError(f"There is no MCP server {id!r}.", next_step=f"There are: {known}.")

    def list(self) -> list[McpServer]:
        """How they stand."""
        return [self._shown(server) for server in self.servers]

    def shown(self, id: str) -> McpServer:
        """How one of them stands."""
        return self._shown(self.find(id))

    def _shown(self, server: Server) -> McpServer:
        return McpServer(
            id=server.id,
            name=server.name,
            url=server.address,
            state=server.state,
            error=server.error,
            auth_url=server.auth_url,
            tools=tuple(server.tools()),
            is_shared=server.id not in self._own,
        )

    def listing(self) -> dict[str, Any]:
        """How they stand and what they offer, as clients are told."""
        told: dict[str, Any] = {"servers": {}, "tools": [], "prompts": [], "resources": []}
        for server in self.servers:
            offer = server.catalogue
            told["servers"][server.id] = {
                "name": server.name,
                "server_url": server.address,
                "auth_url": server.auth_url,
                "state": server.state,
                "error": None if server.error is None else said(server.error),
                "instructions": offer.instructions if offer is not None else None,
                "capabilities": offer.capabilities if offer is not None else None,
            }
            if offer is None:
                continue
            for kind, entries in (
                ("tools", offer.tools),
                ("prompts", offer.prompts),
                ("resources", offer.resources),
            ):
                told[kind] += [{**_camel(entry), "serverId": server.id} for entry in entries]
        return told


def _camel(entry: Any) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(entry)
    named = {"input_schema": "inputSchema", "output_schema": "outputSchema", "mime_type": "mimeType"}
    hidden = ("hash", "read_only", "idempotent", "destructive", "open_world")
    return {named.get(key, key): value for key, value in built.items() if key not in hidden}


def _options(place: Any, accepted: Mapping[str, str] | None = None) -> str:
    """What of a place is kept: no headers, which are secret, and no function, which only code has."""
    options: dict[str, Any] = {
        "transport": place.transport,
        "tools": None if place.tools is None else list(place.tools),
        "timeout": place.timeout,
        "max_time": place.max_time,
    }
    if isinstance(place.approval, str):
        options["approval"] = place.approval
    if accepted:
        options["accepted"] = dict(accepted)
    return msgspec.json.encode(options).decode()
