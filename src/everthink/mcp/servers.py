"""The MCP servers of one agent: added, kept over restarts, listed, removed; and those of its app beside them.

    Agent.add_mcp_server --> McpServers --Server--> tools of its turns, frames for its clients
                                 |--> OwnServer, each with its row: address, options, secrets, what it offers

A server that was added stays, whether it answers or not, until it is removed. One that fails affects no
other, and no start of the agent waits for any.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import AgentError, AuthorizationFailed, CallbackRefused
from ..guard.addresses import check_url
from ..masking import mask
from ..oauth.callback import Callback
from ..observe.events import McpConnected, McpRemoved
from ..tools.tool import Tool
from ..words import said
from . import queries
from .discovering import load_sdk
from .link import Link
from .listing import Wanted, entries, told
from .naming import callback_url, normal_url, prefix_for, random_id, server_id
from .own_server import OwnServer, Parts, has_authorization, options_of, secrets_of
from .places import HttpServer, McpServer, OAuthClient, check_added
from .queries import ServerRow
from .server import Server

__all__ = ["FLAG", "MOST_SERVERS", "McpServers"]

log = logging.getLogger("everthink.mcp")

FLAG = "mcp"
"""The small value that says that an agent has servers of its own."""
FIRST = 30.0
"""Seconds that adding a server waits for its first connection."""
MOST_SERVERS = 32
"""Servers that one agent may have of its own: each is a connection, and its tools are in every request."""


class McpServers:
    """The servers of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._own: dict[str, OwnServer] = {}
        self._hidden: set[str] = set()
        self._twice: set[str] = set()
        self._waited: WeakKeyDictionary[Link, int] = WeakKeyDictionary()
        self._changing = asyncio.Lock()
        self._leave: Callable[[], None] | None = None
        self._is_closed = False

    # --- its life

    async def restore(self) -> None:
        """Know the servers that were added before, and begin to connect. No network is waited for."""
        for row in await queries.servers_of(self._parts.store):
            own = await self._loaded(row)
            if own.problem is None and not own.server.waits_at:
                own.server.start()

    async def close(self) -> None:
        """Hang up."""
        self._is_closed = True
        if self._leave is not None:
            self._leave()
        await asyncio.gather(*(own.server.stop() for own in self._own.values()), return_exceptions=True)

    async def _loaded(self, row: ServerRow) -> OwnServer:
        own = OwnServer(self._parts, row.id, self._moved)
        await own.load(row)
        self._own[own.id] = own
        return own

    # --- adding

    async def add(
        self,
        name: str,
        place: HttpServer,
        *,
        client: OAuthClient | None = None,
        id: str | None = None,
        host: str | None = None,
        path: str | None = None,
    ) -> McpServer:
        """Keep a server and connect to it. Raises when it cannot be connected to; it is kept all the same.
        While the agent starts it does not raise for that.

        The same name and address are the same server: with another `id` or other options it has those from
        now on.
        """
        network = self._parts.network
        name, url = name.strip(), normal_url(place.url)
        check_url(url, loopback=network.loopback, allow=network.allow)
        check_added(name, place)
        wanted = None if id is None else server_id(id)
        back = None if host is None else callback_url(host, *self._whose, prefix=network.prefix, path=path)
        place, client = dataclasses.replace(place, url=url), client or OAuthClient()
        await load_sdk(kept="Nothing was added.")
        await self.open()
        async with self._changing:
            own = known = self._known(name, url)
            if own is None:
                own = await self._stored(name, place, client, wanted, back)
                is_elsewhere = False
            else:
                is_elsewhere = await self._update(own, place, client, wanted, back)
        if not self._parts.is_starting():
            return await self._connected(own, is_elsewhere=is_elsewhere)
        return await self._begun(own, is_new=known is None)

    async def _begun(self, own: OwnServer, *, is_new: bool) -> McpServer:
        """A server that is added while the agent starts: one that is away, or hangs, keeps it from nothing.

        What is kept already is not waited for, and of nobody it is asked that it answers.
        """
        if own.state != "authenticating":
            own.server.start()
        if is_new:
            await self._first(FIRST, self._answered(own))
        if own.state == "ready":
            await own.keep_offer(own.server)
        return self._shown(own.server)

    @property
    def _whose(self) -> tuple[str, str]:
        return self._parts.cls_name, self._parts.name

    def _known(self, name: str, url: str) -> OwnServer | None:
        for own in self._own.values():
            if own.server.name == name and own.server.address == url:
                return own
        return None

    def _check_free(self, id: str) -> None:
        other = next((server for server in self.servers if server.id == id), None)
        if other is not None:
            raise AgentError(
                f'MCP server id "{id}" is already in use by server {other.name!r}.',
                kept="Nothing was added.",
                next_step="Give another id=, or remove the other one first.",
            )

    async def _stored(
        self, name: str, place: HttpServer, client: OAuthClient, id: str | None, back: str | None
    ) -> OwnServer:
        if len(self._own) >= MOST_SERVERS:
            raise AgentError(
                f"This agent has {MOST_SERVERS} MCP servers already, which is the most.",
                kept="Nothing was added.",
                next_step="Remove one with remove_mcp_server(), or give those that all agents use to the app:"
                " App(mcp_servers={…}).",
            )
        if id is not None:
            self._check_free(id)
        taken = {server.prefix for server in self.servers}
        secret = secrets_of(place, client)
        row = ServerRow(
            id=id or self._new_id(),
            name=name,
            prefix=prefix_for(id or name, taken),
            address=place.url,
            options=options_of(place),
            secrets=self._parts.network.sealer.seal(secret) if secret else None,
            callback_url=back,
            catalogue=None,
        )
        added = queries.added(row, now=self._parts.clock.now_ms())
        await self._parts.store.apply([added, self._parts.save_value(FLAG, True)])
        own = await self._loaded(row)
        self._parts.changed()
        return own

    def _new_id(self) -> str:
        taken = {server.id for server in self.servers}
        while (id := random_id()) in taken:
            pass
        return id

    async def _update(
        self, own: OwnServer, place: HttpServer, client: OAuthClient, id: str | None, back: str | None
    ) -> bool:
        """Let a server have what is said of it now. What is as it was stays connected.

        True when people come back to another place than before.
        """
        if id is not None and id != own.id:
            self._check_free(id)
            before = own.id
            await own.rename(id)
            self._own[id] = self._own.pop(before)
            await own.reload()
            self._parts.changed()
        if not own.has(place, client):
            await own.replace(place, client)
        if back is None or back == own.callback_url:
            return False
        await own.call_back_to(back)
        return True

    async def _connected(self, own: OwnServer, *, is_elsewhere: bool) -> McpServer:
        """A server that was added, once it has answered."""
        server = own.server
        if server.state == "authenticating" and not is_elsewhere and await own.is_awaited():
            return self._shown(server)
        if server.state == "failed" and server.link is not None:
            raise AgentError(
                f'MCP server "{server.name}" is in failed state: {own.error}',
                kept=f"It is kept as {own.id!r} and tried again.",
                next_step="Its tools are offered once it answers. remove_mcp_server() ends that.",
            )
        if server.state != "ready":
            server.start()
            await self._first(FIRST, self._answered(own))
        self._check(own)
        if own.state == "ready":
            await own.keep_offer(own.server)
        return self._shown(own.server)

    async def _answered(self, own: OwnServer) -> None:
        """Return when a server is ready, failed for the first time, wants a person, or was removed."""
        while not own.is_removed and own.state in ("connecting", "discovering", "not-connected"):
            own.news.clear()
            await own.news.wait()

    def _check(self, own: OwnServer) -> None:
        """Raise when a server that was added cannot be used."""
        server = own.server
        if own.is_removed:
            raise AgentError(
                f"The MCP server {server.name!r} was removed while it was added.", kept="It is not kept."
            )
        if own.state in ("ready", "authenticating"):
            return
        advice = "Remove it with remove_mcp_server(), or wait: its tools are offered once it answers."
        if own.callback_url is None and not has_authorization(server.place):
            advice += ' If it wants a person to allow access, give callback_host="https://…".'
        raise AgentError(
            f"Failed to connect to MCP server at {mask(server.address)}:"
            f" {own.error or 'it does not answer.'}",
            kept=f"The server is kept as {own.id!r} and tried again.",
            next_step=advice,
        )

    # --- removing

    async def remove(self, id: str) -> bool:
        """Forget a server, with its secrets, and end what its tools ask people. False when there is none of
        that id, or of that name alone."""
        if all(server.id != id for server in self.servers):
            named = [own.id for own in self._own.values() if own.server.name == id]
            id = named[0] if len(named) == 1 else id
        if id not in self._own and any(server.id == id for server in self._parts.shared.servers):
            raise AgentError(
                f"The MCP server {id!r} is one of the app, which every agent has.",
                kept="Nothing was removed.",
                next_step="Take it out of App(mcp_servers={…}), or set include_mcp_tools = False.",
            )
        async with self._changing:
            own = self._own.get(id)
            if own is None:
                return False
            last = [self._parts.save_value(FLAG, None)] if len(self._own) == 1 else []
            await self._parts.store.apply([queries.removed(id), *last])
            del self._own[id]
            own.is_removed = True
        own.news.set()
        tools = [*own.server.tools()]
        await own.server.stop("It was removed.")
        await self._parts.removed(own.server.name, tools)
        self._parts.emit(McpRemoved(server_id=id))
        self._parts.changed()
        return True

    # --- authorization

    async def finish(self, callback: Callback) -> None:
        """Redeem what a person brought back, and connect. Raises as `DurableOAuth.finish` does."""
        own = self._own.get(callback.server_id)
        if own is None:
            raise CallbackRefused("the server is not there any more")
        try:
            await own.redeem(callback)
        except CallbackRefused:
            if own.state == "authenticating" and not await own.is_awaited():
                own.server.start()  # nobody can come back any more: there is another address to go to
            raise
        except AuthorizationFailed as error:
            own.refusal = said(error.what)
            self._parts.changed()
            raise
        own.refusal = None
        async with self._changing:
            # Whatever is under way was begun without these tokens, or with lesser ones.
            if await own.reload():
                own.server.start()
        self._parts.changed()

    def callback_of(self, id: str) -> str | None:
        """The address that people come back to for a server."""
        own = self._own.get(id)
        return None if own is None else own.callback_url

    async def is_let_in(self, id: str) -> bool:
        """True when a server has given us tokens."""
        own = self._own.get(id)
        return own is not None and await own.is_let_in()

    # --- what changed

    def _moved(self, server: Server) -> None:
        own = self._own.get(server.id)
        if self._is_closed or own is None or own.server is not server:
            return
        if server.state == "ready":
            own.refusal = server.waits_at = None
            self._parts.background(own.keep_offer(server))
        own.news.set()
        error = None if server.error is None else said(server.error)
        self._parts.emit(
            McpConnected(server_id=server.id, url=mask(server.address), state=server.state, error=error)
        )
        self._parts.changed()

    # --- what others ask of it

    @property
    def servers(self) -> list[Server]:
        """The agent's own, then those of the app."""
        return [*(own.server for own in self._own.values()), *self._parts.shared.servers]

    async def open(self) -> None:
        """See that the app's servers are known, too."""
        shared = self._parts.shared
        if shared and self._leave is None:
            self._leave = shared.watch(self._parts.changed)
        await shared.open()

    async def tools(self) -> Mapping[str, Tool]:
        """The tools of all servers. Of two of one name the first counts, and that is said once."""
        await self.open()
        tools: dict[str, Tool] = {}
        for server in reversed(self.servers):
            offered = server.tools()
            if twice := (tools.keys() & offered.keys()) - self._twice:
                self._twice |= twice
                log.warning(
                    "%s: MCP servers have tools of the same name, those of %s (%s) are offered: %s",
                    self._parts.id,
                    server.name,
                    mask(server.address),
                    ", ".join(sorted(twice)),
                )
            tools |= offered
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
        links = [link for server in self.servers if (link := server.link) and not link.settled.is_set()]
        if seconds is None:
            await _all_settled(links)
            return
        # Whoever hangs is waited for once in each attempt, not by every turn until it has failed.
        links = [link for link in links if self._waited.get(link) != link.attempt]
        if links and seconds > 0:
            await self._first(seconds, _all_settled(links))
            self._waited.update({link: link.attempt for link in links if not link.settled.is_set()})

    async def _first(self, seconds: float, *waits: Awaitable[Any]) -> None:
        """Return when one of these is done, or in time."""
        tasks = [asyncio.ensure_future(wait) for wait in (*waits, self._parts.clock.sleep(seconds))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def find(self, id: str) -> Server:
        """A server by its id, or else by its name. Raises when there is none."""
        servers = self.servers
        if found := [one for one in servers if one.id == id][:1] or [
            one for one in servers if one.name == id
        ]:
            if len(found) == 1:
                return found[0]
            ids = ", ".join(repr(one.id) for one in found)
            raise AgentError(f"There are several MCP servers named {id!r}.", next_step=f"Say which: {ids}.")
        known = ", ".join(server.id for server in servers) or "none"
        raise AgentError(f"There is no MCP server {id!r}.", next_step=f"There are: {known}.")

    # --- how they stand

    def list(self, wanted: Wanted | None = None) -> list[McpServer]:
        """How they stand: all, or those that are wanted."""
        shown = map(self._shown, self.servers)
        return [server for server in shown if wanted is None or wanted.takes(server)]

    def look_up(self, id: str) -> McpServer | None:
        """How one of the agent's own stands."""
        own = self._own.get(id)
        return None if own is None else self._shown(own.server)

    def _shown(self, server: Server) -> McpServer:
        own = self._own.get(server.id)
        if own is not None and own.server is not server:
            own = None  # the app has had one of that id since
        error = server.error if own is None else own.error
        return McpServer(
            id=server.id,
            name=server.name,
            url=server.address,
            state=server.state if own is None else own.state,
            error=None if error is None else said(error),
            auth_url=server.auth_url,
            tools=tuple(server.tools()),
            is_shared=own is None,
        )

    def listing(self) -> dict[str, Any]:
        """How they stand and what they offer, as clients are told."""
        return told((self._shown(server), server.catalogue) for server in self.servers)

    def offers(self, wanted: Wanted) -> dict[str, Any]:
        """The same of those that are wanted, with the families of their resources."""
        meant = [server for server in self.servers if wanted.takes(self._shown(server))]
        listed = told((self._shown(server), server.catalogue) for server in meant)
        families = (entries(one.id, one.catalogue.templates) for one in meant if one.catalogue is not None)
        return {**listed, "resourceTemplates": [entry for family in families for entry in family]}


async def _all_settled(links: Sequence[Link]) -> None:
    for link in links:
        await link.settled.wait()
