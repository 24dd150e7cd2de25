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
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import Clock
from ..errors import AgentError, AuthorizationFailed, CallbackRefused
from ..guard.addresses import check_url
from ..masking import mask
from ..oauth import visits
from ..oauth.callback import Callback
from ..oauth.keep import OAUTH, Keep
from ..observe.events import EventBody, McpChanged, McpConnected, McpRemoved
from ..store.port import AgentStore, Statement
from ..tools.tool import Tool
from ..words import said
from . import queries
from .catalogue import Catalogue, decode, encode
from .discovering import wires_of
from .link import Link, Wires
from .listing import Wanted, entries, told
from .naming import callback_url, normal_url, prefix_for, random_id, server_id
from .places import HttpServer, McpServer, Network, OAuthClient, ServerState, check_added
from .queries import ServerRow
from .server import Server
from .shared import SharedServers

if TYPE_CHECKING:
    import httpx2

    from ..oauth.flow import DurableOAuth

__all__ = ["FLAG", "MOST_SERVERS", "McpServers", "Parts"]

log = logging.getLogger("everthink.mcp")

FLAG = "mcp"
"""The small value that says that an agent has servers of its own."""
FIRST = 30.0
"""Seconds that adding a server waits for its first connection."""
MOST_SERVERS = 32
"""Servers that one agent may have of its own: each is a connection, and its tools are in every request."""
UNREADABLE = "What is kept of it cannot be read."
EXCHANGE = 10.0
"""Seconds that an authorization server gets to answer when somebody has come back."""


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


@dataclass(slots=True, eq=False)
class _Own:
    """A server that the agent was given. It stays the same under another id, or with other options."""

    id: str
    keep: Keep
    server: Server = field(init=False)
    client: OAuthClient = field(default_factory=OAuthClient)
    callback_url: str | None = None
    problem: str | None = None
    """Why what is kept of it cannot be used."""
    refusal: str | None = None
    """What its authorization server said to whoever came back last, when that was no."""
    stored: Catalogue | None = None
    """What it offers, as it is in the table."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it stands otherwise than before."""

    @property
    def state(self) -> ServerState:
        return "failed" if self.problem else self.server.state

    @property
    def error(self) -> str | None:
        return self.problem or self.server.error or self.refusal


class McpServers:
    """The servers of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._own: dict[str, _Own] = {}
        self._hidden: set[str] = set()
        self._changing = asyncio.Lock()
        self._leave: Callable[[], None] | None = None
        self._is_closed = False

    # --- its life

    async def restore(self) -> None:
        """Know the servers that were added before, and begin to connect. No network is waited for."""
        for row in await queries.servers_of(self._parts.store):
            own = await self._loaded(row, self._record(row.id))
            if own.problem is None and not own.server.waits_at:
                own.server.start()

    async def close(self) -> None:
        """Hang up."""
        self._is_closed = True
        if self._leave is not None:
            self._leave()
        await asyncio.gather(*(own.server.stop() for own in self._own.values()), return_exceptions=True)

    # --- from its row

    def _record(self, id: str) -> _Own:
        store = self._parts.store

        async def load() -> str | None:
            return await queries.secrets_of(store, own.id)

        async def save(text: str) -> None:
            await store.apply([queries.changed(own.id, secrets=text)])

        own = _Own(id, Keep(self._parts.network.sealer, load, save))
        return own

    async def _loaded(self, row: ServerRow, own: _Own) -> _Own:
        """A server as its row has it, in the place of what it was before."""
        kept: dict[str, Any] = {}
        accepted: dict[str, str] = {}
        place, own.client, own.problem = HttpServer(row.address), OAuthClient(), None
        try:
            options = msgspec.json.decode(row.options, type=dict[str, Any])
            accepted = options.pop("accepted", {})
            kept = await own.keep.read()
            given: dict[str, str] = kept.get("given") or {}
            own.client = OAuthClient(**given)
            place = HttpServer(row.address, headers=kept.get("headers") or {}, **options)
        except (AgentError, msgspec.DecodeError, TypeError) as error:
            # It stays in the table: with the right key, or release, it is there again.
            own.problem = (
                error.what if isinstance(error, AgentError) else "What is kept of it cannot be read."
            )
            log.warning("%s: the MCP server %s cannot be used: %s", self._parts.id, row.name, own.problem)
        own.callback_url = row.callback_url
        own.stored = decode(row.catalogue) if row.catalogue is not None else None
        own.server = self._made(own, row, place, accepted, _waits_at(kept, self._parts.clock.now_ms()))
        self._own[own.id] = own
        await self._reseal(own, row.secrets)
        return own

    def _made(
        self, own: _Own, row: ServerRow, place: HttpServer, accepted: Mapping[str, str], waits_at: str | None
    ) -> Server:
        def wires(server: Server) -> Wires:
            made = wires_of(server, self._parts.network, self._parts.clock, auth=lambda: self._auth(own))
            return made if own.problem is None else dataclasses.replace(made, connect=_broken(own.problem))

        server = Server(
            own.id,
            row.name,
            row.prefix,
            place,
            wires=wires,
            clock=self._parts.clock,
            moved=self._moved,
            kept=own.stored,
            accepted=accepted,
            auth_url=waits_at,
        )
        server.on_accept = self._keep_accepted
        return server

    async def _reseal(self, own: _Own, text: str | None) -> None:
        """Seal with the key of today what was sealed with another, or with none."""
        if text is not None and own.problem is None and not self._parts.network.sealer.is_current(text):
            await own.keep.write()

    async def _reload(self, own: _Own) -> bool:
        """Hang up, and begin again with what the row says now. False when the server was removed."""
        await own.server.stop()
        row = await queries.server_of(self._parts.store, own.id)
        if row is None or self._own.get(own.id) is not own:
            return False
        await self._loaded(row, own)
        return True

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
        await self.open()
        async with self._changing:
            own = self._known(name, url)
            if own is None:
                own = await self._stored(name, place, client, wanted, back)
                is_elsewhere = False
            else:
                is_elsewhere = await self._update(own, place, client, wanted, back)
        return await self._connected(own, is_elsewhere=is_elsewhere)

    @property
    def _whose(self) -> tuple[str, str]:
        return self._parts.cls_name, self._parts.name

    def _known(self, name: str, url: str) -> _Own | None:
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
    ) -> _Own:
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
        secret = _secrets(place, client)
        row = ServerRow(
            id=id or self._new_id(),
            name=name,
            prefix=prefix_for(id or name, taken),
            address=place.url,
            options=_options(place),
            secrets=self._parts.network.sealer.seal(secret) if secret else None,
            callback_url=back,
            catalogue=None,
        )
        added = queries.added(row, now=self._parts.clock.now_ms())
        await self._parts.store.apply([added, self._parts.save_value(FLAG, True)])
        own = await self._loaded(row, self._record(row.id))
        self._parts.changed()
        return own

    def _new_id(self) -> str:
        taken = {server.id for server in self.servers}
        while (id := random_id()) in taken:
            pass
        return id

    async def _update(
        self, own: _Own, place: HttpServer, client: OAuthClient, id: str | None, back: str | None
    ) -> bool:
        """Let a server have what is said of it now. What is as it was stays connected.

        True when people come back to another place than before.
        """
        if id is not None and id != own.id:
            self._check_free(id)
            await self._rename(own, id)
        if own.problem or own.client != client or not _is_same(own.server.place, place):
            await self._replace(own, place, client)
        if back is None or back == own.callback_url:
            return False
        await self._parts.store.apply([queries.changed(own.id, callback_url=back)])
        if own.server.state == "ready":
            own.callback_url = back
        else:
            await self._reload(own)
        return True

    async def _rename(self, own: _Own, id: str) -> None:
        """Keep a server under another id. Its tools keep their names: conversations have them."""
        await own.server.stop()
        if own.problem is None:
            # The states of those who are on the way name the old id.
            await own.keep.change(lambda kept: {"pending": None} if "pending" in kept else None)
        await self._parts.store.apply([queries.renamed(own.id, id)])
        del self._own[own.id]
        own.id = id
        self._own[id] = own
        await self._reload(own)
        self._parts.changed()

    async def _replace(self, own: _Own, place: HttpServer, client: OAuthClient) -> None:
        await own.server.stop()
        secret = _secrets(place, client)
        if own.problem is not None:
            await own.keep.start_over(**secret)
        else:
            forgotten = () if own.client == client else OAUTH
            changed: dict[str, Any] = {**dict.fromkeys(("headers", "given", *forgotten)), **secret}
            await own.keep.write(**changed)
        options = _options(place, own.server.accepted)
        await self._parts.store.apply([queries.changed(own.id, options=options)])
        await self._reload(own)

    async def _connected(self, own: _Own, *, is_elsewhere: bool) -> McpServer:
        """A server that was added, once it has answered."""
        server = own.server
        if server.state == "authenticating" and not is_elsewhere and await self._is_awaited(own):
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
            await self._keep_offer(own, own.server)
        return self._shown(own.server)

    async def _answered(self, own: _Own) -> None:
        """Return when a server is ready, failed for the first time, wants a person, or was removed."""
        while self._own.get(own.id) is own and own.state in ("connecting", "discovering", "not-connected"):
            own.news.clear()
            await own.news.wait()

    async def _is_awaited(self, own: _Own) -> bool:
        """True when somebody who goes to the address that is known now is let back in."""
        waiting = visits.waiting(await own.keep.read(), self._parts.clock.now_ms())
        return any(visit.url == own.server.auth_url for visit in waiting)

    def _check(self, own: _Own) -> None:
        """Raise when a server that was added cannot be used."""
        server = own.server
        if self._own.get(own.id) is not own:
            raise AgentError(
                f"The MCP server {server.name!r} was removed while it was added.", kept="It is not kept."
            )
        if own.state in ("ready", "authenticating"):
            return
        advice = "Remove it with remove_mcp_server(), or wait: its tools are offered once it answers."
        if own.callback_url is None and not _has_authorization(server.place):
            advice += ' If it wants a person to allow access, give callback_host="https://…".'
        raise AgentError(
            f"Failed to connect to MCP server at {mask(server.address)}:"
            f" {own.error or 'it does not answer.'}",
            kept=f"The server is kept as {own.id!r} and tried again.",
            next_step=advice,
        )

    # --- removing

    async def remove(self, id: str) -> bool:
        """Forget a server, with its secrets. False when there is none of that id."""
        if any(server.id == id for server in self._parts.shared.servers):
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
        own.news.set()
        await own.server.stop()
        self._parts.emit(McpRemoved(server_id=id))
        self._parts.changed()
        return True

    # --- authorization

    def _auth(self, own: _Own) -> DurableOAuth | None:
        """Who lets us in: a person, unless we were given a header for that."""
        return None if _has_authorization(own.server.place) else self._oauth(own)

    def _oauth(self, own: _Own) -> DurableOAuth:
        from ..oauth.flow import DurableOAuth, OAuthServer

        server = OAuthServer(
            id=own.id,
            url=own.server.address,
            callback_url=own.callback_url,
            scope=own.client.scope,
            client_id=own.client.client_id,
            client_secret=own.client.client_secret,
        )
        return DurableOAuth(server, own.keep, self._parts.clock)

    async def finish(self, callback: Callback) -> None:
        """Redeem what a person brought back, and connect. Raises as `DurableOAuth.finish` does."""
        own = self._own.get(callback.server_id)
        if own is None:
            raise CallbackRefused("the server is not there any more")
        try:
            async with self._requests() as http:
                await self._oauth(own).finish(callback, http)
        except CallbackRefused:
            if own.state == "authenticating" and not await self._is_awaited(own):
                own.server.start()  # nobody can come back any more: there is another address to go to
            raise
        except AuthorizationFailed as error:
            own.refusal = said(error.what)
            self._parts.changed()
            raise
        own.refusal = None
        async with self._changing:
            # Whatever is under way was begun without these tokens, or with lesser ones.
            if await self._reload(own):
                own.server.start()
        self._parts.changed()

    @asynccontextmanager
    async def _requests(self) -> AsyncGenerator[httpx2.AsyncClient]:
        import httpx2

        from ..guard.transport import GuardedTransport

        network = self._parts.network
        transport = GuardedTransport(loopback=network.loopback, allow=network.allow)
        async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=EXCHANGE) as http:
            yield http

    def callback_of(self, id: str) -> str | None:
        """The address that people come back to for a server."""
        own = self._own.get(id)
        return None if own is None else own.callback_url

    async def is_let_in(self, id: str) -> bool:
        """True when a server has given us tokens."""
        own = self._own.get(id)
        return own is not None and "tokens" in await own.keep.read()

    # --- what changed

    def _moved(self, server: Server) -> None:
        own = self._own.get(server.id)
        if self._is_closed or own is None or own.server is not server:
            return
        if server.state == "ready":
            own.refusal = server.waits_at = None
            self._parts.background(self._keep_offer(own, server))
        own.news.set()
        error = None if server.error is None else said(server.error)
        self._parts.emit(
            McpConnected(server_id=server.id, url=mask(server.address), state=server.state, error=error)
        )
        self._parts.changed()

    async def _keep_offer(self, own: _Own, server: Server) -> None:
        catalogue = server.catalogue
        if catalogue is None or own.stored is catalogue:
            return
        if names := server.accept_new():
            self._parts.emit(McpChanged(server_id=server.id, tools=names))
        await self._parts.store.apply(
            [
                queries.offered(server.id, catalogue=encode(catalogue), now=self._parts.clock.now_ms()),
                queries.changed(server.id, options=_options(server.place, server.accepted)),
            ]
        )
        own.stored = catalogue

    async def _keep_accepted(self, server: Server) -> None:
        options = _options(server.place, server.accepted)
        await self._parts.store.apply([queries.changed(server.id, options=options)])

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
        if links and (seconds is None or seconds > 0):
            await self._first(seconds, _all_settled(links))

    async def _first(self, seconds: float | None, *waits: Awaitable[Any]) -> None:
        """Return when one of these is done, or in time."""
        limit = [] if seconds is None else [self._parts.clock.sleep(seconds)]
        tasks = [asyncio.ensure_future(wait) for wait in (*waits, *limit)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    def find(self, id: str) -> Server:
        """A server by its id, or else by its name. Raises when there is none."""
        servers = self.servers
        for server in (
            *(one for one in servers if one.id == id),
            *(one for one in servers if one.name == id),
        ):
            return server
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


def _broken(problem: str) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """How a server is connected to that nobody can connect to as things are."""

    def connect(lost: object) -> AbstractAsyncContextManager[Any]:
        raise AgentError(problem)

    return connect


def _waits_at(kept: Mapping[str, Any], now: int) -> str | None:
    """Where a person still has to go before there is anything to connect with."""
    waiting = visits.waiting(kept, now)
    return waiting[-1].url if waiting and "tokens" not in kept else None


def _has_authorization(place: Any) -> bool:
    return any(name.lower() == "authorization" for name in place.headers)


def _is_same(one: Any, other: HttpServer) -> bool:
    return _options(one) == _options(other) and dict(one.headers) == dict(other.headers)


def _secrets(place: HttpServer, client: OAuthClient) -> dict[str, Any]:
    """What of a server is kept as a secret when it is added."""
    given = {name: value for name, value in dataclasses.asdict(client).items() if value is not None}
    return {
        **({"headers": dict(place.headers)} if place.headers else {}),
        **({"given": given} if given else {}),
    }


def _options(place: Any, accepted: Mapping[str, str] | None = None) -> str:
    """What of a place is kept openly: no headers, which are secret."""
    options: dict[str, Any] = {
        "transport": place.transport,
        "approval": place.approval,
        "tools": None if place.tools is None else list(place.tools),
        "timeout": place.timeout,
        "total_timeout": place.total_timeout,
    }
    if accepted:
        options["accepted"] = dict(accepted)
    return msgspec.json.encode(options).decode()
