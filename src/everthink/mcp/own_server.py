"""One MCP server that an agent was given: its row, its secrets, who lets us in, and the server made of them.

    a row of mcp_servers --load--> OwnServer --Server--> McpServers
    what changes of it   --------> its row, its secrets --reload--> another Server

It stays the same `OwnServer` under another id, with other options or other secrets. What is kept of it and
cannot be read stays in the table, and says so: with the right key, or release, it is there again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import Clock
from ..errors import AgentError
from ..oauth import visits
from ..oauth.callback import Callback
from ..oauth.keep import OAUTH, Keep
from ..observe.events import EventBody, McpChanged
from ..store.port import AgentStore, Statement
from . import queries
from .catalogue import Catalogue, decode, encode
from .discovering import load_sdk, wires_of
from .link import Wires
from .places import HttpServer, Network, OAuthClient, ServerState
from .queries import ServerRow
from .server import Server
from .shared import SharedServers

if TYPE_CHECKING:
    import httpx2

    from ..oauth.flow import DurableOAuth

__all__ = ["OwnServer", "Parts", "has_authorization", "options_of", "secrets_of"]

log = logging.getLogger("everthink.mcp")

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
    removed: Callable[[str, Collection[str]], Awaitable[None]]
    """Ends what the tools of a server ask people, which is gone: its name, and theirs."""
    network: Network
    shared: SharedServers
    is_starting: Callable[[], bool]
    """True while the agent's `on_start` runs."""


class OwnServer:
    """A server of one agent. `moved` is told when it stands otherwise than before."""

    server: Server
    """What its row made of it; another one after each `load`."""

    def __init__(self, parts: Parts, id: str, moved: Callable[[Server], object]) -> None:
        self.id = id
        self.client = OAuthClient()
        self.callback_url: str | None = None
        self.problem: str | None = None
        """Why what is kept of it cannot be used."""
        self.refusal: str | None = None
        """What its authorization server said to whoever came back last, when that was no."""
        self.is_removed = False
        self.news = asyncio.Event()
        """Set when it stands otherwise than before."""
        self._parts, self._moved = parts, moved
        self._keep = Keep(parts.network.sealer, self._secrets, self._save_secrets)
        self._stored: Catalogue | None = None
        """What it offers, as it is in the table."""

    async def _secrets(self) -> str | None:
        return await queries.secrets_of(self._parts.store, self.id)

    async def _save_secrets(self, text: str) -> None:
        await self._change(secrets=text)

    async def _change(self, **columns: Any) -> None:
        await self._parts.store.apply([queries.changed(self.id, **columns)])

    @property
    def state(self) -> ServerState:
        """How it stands."""
        return "failed" if self.problem else self.server.state

    @property
    def error(self) -> str | None:
        """Why it cannot be used."""
        return self.problem or self.server.error or self.refusal

    # --- from its row

    async def load(self, row: ServerRow) -> None:
        """Be what the row says, in the place of what it was before."""
        kept: dict[str, Any] = {}
        accepted: dict[str, str] = {}
        place, self.client, self.problem = HttpServer(row.address), OAuthClient(), None
        try:
            options = msgspec.json.decode(row.options, type=dict[str, Any])
            accepted = options.pop("accepted", {})
            kept = await self._keep.read()
            given: dict[str, str] = kept.get("given") or {}
            self.client = OAuthClient(**given)
            place = HttpServer(row.address, headers=kept.get("headers") or {}, **options)
        except (AgentError, msgspec.DecodeError, TypeError) as error:
            self.problem = error.what if isinstance(error, AgentError) else UNREADABLE
            log.warning("%s: the MCP server %s cannot be used: %s", self._parts.id, row.name, self.problem)
        self.callback_url = row.callback_url
        self._stored = decode(row.catalogue) if row.catalogue is not None else None
        self.server = self._made(row, place, accepted, _waits_at(kept, self._parts.clock.now_ms()))
        await self._reseal(row.secrets)

    def _made(
        self, row: ServerRow, place: HttpServer, accepted: Mapping[str, str], waits_at: str | None
    ) -> Server:
        def wires(server: Server) -> Wires:
            made = wires_of(server, self._parts.network, self._parts.clock, auth=self._auth)
            return made if self.problem is None else dataclasses.replace(made, connect=_broken(self.problem))

        server = Server(
            self.id,
            row.name,
            row.prefix,
            place,
            wires=wires,
            clock=self._parts.clock,
            moved=self._moved,
            kept=self._stored,
            accepted=accepted,
            auth_url=waits_at,
            whose=f"{self._parts.id}: ",
        )
        server.on_accept = self._keep_accepted
        return server

    async def _reseal(self, text: str | None) -> None:
        """Seal with the key of today what was sealed with another, or with none."""
        if text is not None and self.problem is None and not self._parts.network.sealer.is_current(text):
            await self._keep.write()

    async def reload(self) -> bool:
        """Hang up, and begin again with what the row says now. False when it was removed."""
        await self.server.stop()
        row = await queries.server_of(self._parts.store, self.id)
        if row is None or self.is_removed:
            return False
        await self.load(row)
        return True

    # --- into its row

    async def rename(self, id: str) -> None:
        """Be kept under another id, until `reload`. Its tools keep their names: conversations have them."""
        await self.server.stop()
        if self.problem is None:
            # The states of those who are on the way name the old id.
            await self._keep.change(lambda kept: {"pending": None} if "pending" in kept else None)
        await self._parts.store.apply([queries.renamed(self.id, id)])
        self.id = id

    def has(self, place: HttpServer, client: OAuthClient) -> bool:
        """True when it is reached in this way already, as this client."""
        return self.problem is None and self.client == client and _is_same(self.server.place, place)

    async def replace(self, place: HttpServer, client: OAuthClient) -> None:
        """Be reached in another way, or as another client."""
        await self.server.stop()
        secret = secrets_of(place, client)
        if self.problem is not None:
            await self._keep.start_over(**secret)
        else:
            forgotten = () if self.client == client else OAUTH
            changed: dict[str, Any] = {**dict.fromkeys(("headers", "given", *forgotten)), **secret}
            await self._keep.write(**changed)
        await self._change(options=options_of(place, self.server.accepted))
        await self.reload()

    async def call_back_to(self, url: str) -> None:
        """Let people come back to another place. Who is let in already stays connected."""
        await self._change(callback_url=url)
        if self.server.state == "ready":
            self.callback_url = url
        else:
            await self.reload()

    async def keep_offer(self, server: Server) -> None:
        """Keep what `server` offers, if that is not kept already. Tools that have changed are told of."""
        catalogue = server.catalogue
        if catalogue is None or self._stored is catalogue:
            return
        if names := server.accept_new():
            self._parts.emit(McpChanged(server_id=server.id, tools=names))
        await self._parts.store.apply(
            [
                queries.offered(server.id, catalogue=encode(catalogue), now=self._parts.clock.now_ms()),
                queries.changed(server.id, options=options_of(server.place, server.accepted)),
            ]
        )
        self._stored = catalogue

    async def _keep_accepted(self, server: Server) -> None:
        await self._change(options=options_of(server.place, server.accepted))

    # --- who lets us in

    def _auth(self) -> DurableOAuth | None:
        """A person, unless we were given a header for that."""
        return None if has_authorization(self.server.place) else self._oauth()

    def _oauth(self) -> DurableOAuth:
        from ..oauth.flow import DurableOAuth, OAuthServer

        server = OAuthServer(
            id=self.id,
            url=self.server.address,
            callback_url=self.callback_url,
            scope=self.client.scope,
            client_id=self.client.client_id,
            client_secret=self.client.client_secret,
        )
        return DurableOAuth(server, self._keep, self._parts.clock)

    async def redeem(self, callback: Callback) -> None:
        """Redeem what a person brought back. Raises as `DurableOAuth.finish` does."""
        await load_sdk()  # after a restart nobody may have connected yet
        async with self._requests() as http:
            await self._oauth().finish(callback, http)

    @asynccontextmanager
    async def _requests(self) -> AsyncGenerator[httpx2.AsyncClient]:
        import httpx2

        from ..guard.transport import GuardedTransport

        network = self._parts.network
        transport = GuardedTransport(loopback=network.loopback, allow=network.allow)
        async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=EXCHANGE) as http:
            yield http

    async def is_let_in(self) -> bool:
        """True when it has given us tokens."""
        return "tokens" in await self._keep.read()

    async def is_awaited(self) -> bool:
        """True when somebody who goes to the address that is known now is let back in."""
        waiting = visits.waiting(await self._keep.read(), self._parts.clock.now_ms())
        return any(visit.url == self.server.auth_url for visit in waiting)


def _broken(problem: str) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """How a server is connected to that nobody can connect to as things are."""

    def connect(lost: object) -> AbstractAsyncContextManager[Any]:
        raise AgentError(problem)

    return connect


def _waits_at(kept: Mapping[str, Any], now: int) -> str | None:
    """Where a person still has to go before there is anything to connect with."""
    waiting = visits.waiting(kept, now)
    return waiting[-1].url if waiting and "tokens" not in kept else None


def has_authorization(place: Any) -> bool:
    """True when a header that we were given lets us in."""
    return any(name.lower() == "authorization" for name in place.headers)


def _is_same(one: Any, other: HttpServer) -> bool:
    return options_of(one) == options_of(other) and dict(one.headers) == dict(other.headers)


def secrets_of(place: HttpServer, client: OAuthClient) -> dict[str, Any]:
    """What of a server is kept as a secret when it is added."""
    given = {name: value for name, value in dataclasses.asdict(client).items() if value is not None}
    return {
        **({"headers": dict(place.headers)} if place.headers else {}),
        **({"given": given} if given else {}),
    }


def options_of(place: Any, accepted: Mapping[str, str] | None = None) -> str:
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
