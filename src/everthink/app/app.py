"""`App`: the agents of an application and the database they live in.

App(Assistant) --> Directory (runtime) --> agents        app.agent(Assistant, "room-1") --> Handle
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar, cast

from ..access.origins import Hosts, Origins
from ..address import Address, canonical, kebab
from ..agent import Agent
from ..children.declared import with_children
from ..children.paths import SUB, build_path
from ..clock import Clock, SystemClock
from ..errors import AgentElsewhere, AgentError, InvalidSettings, StoreClosed
from ..identity import kept
from ..limits import Limits
from ..observe.bus import EventBus
from ..settings import shown
from ..surface import can_take, parameters_of
from ..tasks import begin
from ..think import Think
from .declarative import is_unnamed
from .handle import Handle, handle_of, place_of
from .options import (
    check_options,
    declares_messengers,
    hosts_of,
    limits_of,
    messengers_of,
    network_of,
    refuse_unknown_option,
    retention_of,
    servers_of,
    store_of,
    store_options_of,
    texts_of,
)
from .subclassing import check_app_class
from .whom import address_of, check_class

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.responses import Response

    from ..access.access import Access
    from ..mcp.places import Place
    from ..mcp_endpoint import McpEndpoint
    from ..mcp_server.catalogue import Catalogue
    from ..models.port import Model
    from ..observe.events import EventBody
    from ..recovery.suspects import Suspect
    from ..runtime.directory import Directory
    from ..store.port import Store
    from .watchdog import Watchdog

__all__ = ["App"]

log = logging.getLogger("everthink.messengers")

T = TypeVar("T", bound=Agent)

DEFAULT_STORE = "sqlite:///.everthink/everthink.db"


class App:
    """The agents of an application.

        async with App(Assistant) as app:
            result = await app.agent(Assistant, "room-1").save_messages("Hello")

    - `store`: where everything lives, `"sqlite:///path"` (default: `./.everthink/everthink.db`) or
      `"postgresql://…"`. Opened on first use.
    - `store_options`: what that database is told, a dict: `"synchronous"` and `"busy_timeout"` for SQLite,
      `"readers"`, `"patience"` and `"lease"` for PostgreSQL.
    - `grace`: seconds that running turns get when the app is closed; then they are cut off, and go on at the
      next start.
    - `idle_after`: seconds after which an agent that nobody needs leaves memory; `None` never.
    - `retention`: how long agents are kept to whom nothing happens, as a `timedelta` or a text, `"30 days"`;
      then they are erased. `None` keeps them.
    - `prefix`: where the agents are, `/agents/…` unless given.
    - `allow_origins`: pages of other origins that may open sockets, `["https://my.page"]`; `"*"` among them
      is everybody. Default: none.
    - `allow_hosts`: the names by which the app may be asked for, `["my.page", "*.my.page"]`. Default: any;
      `everthink dev` answers to localhost and IP addresses.
    - `cors`: True, or headers, to let pages of other origins read HTTP answers.
    - `authenticate(connection)`: who it is; the answer is kept as `connection.state.identity`. Anything
      falsy is 401, a response is sent. `Granted(identity, until=…, permissions=…)` says more; a falsy
      identity in it is a guest if `permissions` are given, and 401 if not.
    - `authorize(identity, action, agent)`: may they? Asked for every way in; `action` is `"connect"`,
      `"request"`, `"read"`, `"inspect"` or `"call"`, `agent` has `cls`, `kind`, `name` and `id`. True: yes;
      falsy: 403; a response is sent; a list of permissions, `["ask", "answer"]`: yes, with those alone (and
      to `"call"` only if it names `"call"`). Default: everybody who is authenticated.
    - `on_before_connect(connection, cls, name)` for sockets, `on_before_request` for HTTP: False or a
      response refuses.
    - `limits`: how much a client may send and ask for, a `Limits` or a dict with its fields.
    - `mcp`: True to offer the agents to MCP clients at `/mcp`, each as a tool `ask_…`; a `McpEndpoint`, or a
      dict with its fields, says more. Needs `everthink[mcp]`.
    - `messengers`: the agent whose messengers are at `/messengers/…`: a class, for its agent `"default"`, or
      a class and a name. Default: the one class that has some.
    - `watchdog`: seconds after which code that holds the event loop is named in the log; `None`: never.
    - `mcp_servers`: MCP servers whose tools every agent has, by name: `{"docs": "https://…/mcp", "files":
      StdioServer("npx", ("-y", "…"))}`, or an `MCPServer` in this process. One connection or process for all.
    - `allow_addresses`: hosts near us that agents may add MCP servers of, `["mcp.lan:8080"]`. Default: none;
      `everthink dev` lets this machine pass.
    - `clock`, `new_id`: time and ids, for tests.

    The functions may be `async def`, and take fewer parameters. An option that does not exist, or of a wrong
    kind, raises `InvalidSettings`. A subclass may have them as methods; a function that is given counts
    before the method.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check the names of a subclass, so that a check nobody would ask is told where it was written."""
        super().__init_subclass__(**kwargs)
        check_app_class(cls, App)

    def __init__(
        self,
        *agents: type[Agent],
        store: str | os.PathLike[str] | Store = DEFAULT_STORE,
        store_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], str] | None = None,
        grace: float = 5.0,
        idle_after: float | None = 300.0,
        retention: timedelta | str | None = None,
        prefix: str = "agents",
        cors: bool | dict[str, str] = False,
        allow_origins: Sequence[str] = (),
        allow_hosts: Sequence[str] | None = None,
        authenticate: Callable[[Any], Any] | None = None,
        authorize: Callable[..., Any] | None = None,
        limits: Limits | dict[str, Any] | None = None,
        mcp: bool | McpEndpoint | dict[str, Any] = False,
        messengers: type[Agent] | tuple[type[Agent], str] | None = None,
        watchdog: float | None = 1.0,
        mcp_servers: Mapping[str, Any] | None = None,
        allow_addresses: Sequence[str] = (),
        on_before_connect: Callable[..., Any] | None = None,
        on_before_request: Callable[..., Any] | None = None,
        **unknown: Never,
    ) -> None:
        refuse_unknown_option(unknown)
        self._given_store = store_of(store)
        self._store_options = store_options_of(self._given_store, store_options)
        authenticate, authorize = self._own("authenticate", authenticate), self._own("authorize", authorize)
        on_before_connect = self._own("on_before_connect", on_before_connect)
        on_before_request = self._own("on_before_request", on_before_request)
        check_options(
            clock=clock,
            new_id=new_id,
            grace=grace,
            idle_after=idle_after,
            watchdog=watchdog,
            prefix=prefix,
            cors=cors,
            authenticate=authenticate,
            authorize=authorize,
            on_before_connect=on_before_connect,
            on_before_request=on_before_request,
        )
        self.prefix = [part for part in prefix.split("/") if part]
        self.cors, self.authenticate, self.authorize = cors, authenticate, authorize
        self.on_before_connect, self.on_before_request = on_before_connect, on_before_request
        self.origins, self._hosts = Origins(allow_origins), hosts_of(allow_hosts)
        self.limits = limits_of(limits)
        self._gate: Any = None
        self._access: Access | None = None
        self._classes: dict[str, type[Agent]] = {}
        self._routes: dict[str, type[Agent]] = {}
        # What children are called below a class of parents, besides their own classes.
        self._called: dict[type[Any], dict[str, type[Any]]] = {}
        if not agents:
            raise AgentError("App(…) is given no agent class.", next_step="Name one or more: App(Assistant).")
        for cls in agents:
            self._add(cls)
        _check_children(self._classes)
        self._messengers = messengers_of(messengers, self._classes)
        self._mcp_servers = servers_of(mcp_servers)
        self.network = network_of(allow_addresses, "/".join(self.prefix))
        """How agents reach MCP servers."""
        self._offered = _offered(mcp, self._classes)
        self.clock: Clock = clock or SystemClock()
        self._new_id, self._grace, self._idle_after = new_id, grace, idle_after
        self._retention = retention_of(retention)
        self._watchdog_after = watchdog
        self._watchdog: Watchdog | None = None
        self._opening: asyncio.Task[Directory] | None = None
        self._opened_in = ""
        self._closed = self._polls = False
        self.events = EventBus(now_ms=self.clock.now_ms)
        """What happens in this app: `app.events.subscribe(print, channel="chat")`."""

    @property
    def mcp_servers(self) -> dict[str, Place]:
        """The MCP servers that every agent has, by name, as the app was given them."""
        return dict(self._mcp_servers)

    def _own(self, name: str, given: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """A function that the app is given, or the method of that name that a subclass has."""
        has_method = given is None and hasattr(type(self), name)
        return getattr(self, name) if has_method else given

    @classmethod
    def discover(cls, folder: str | os.PathLike[str] = "agents", **options: Any) -> Self:
        """An app of the agents in a folder: `agents/assistant.py`, `agents/support/agent.py`.

        They answer to the names of their files besides those of their classes: `SupportDesk` in
        `agents/support.py` is at `/agents/support` and at `/agents/support-desk`. A class in
        `agents/support/agents/clerk.py` is that of its children: `/agents/support/room-1/sub/clerk/…`.
        Raises `DiscoveryFailed` with every mistake it found. `options` are those of `App`.
        """
        from .discovery import find_agents

        found = find_agents(folder)
        app = cls(*(agent.cls for agent in found), **options)
        for agent in found:
            app._route(agent.id, agent.cls)
            app._called[agent.cls] = {child.local: child.cls for child in agent.children}
        return app

    def _add(self, cls: Any) -> None:
        if not (isinstance(cls, type) and issubclass(cls, Agent)):
            raise AgentError(
                f"{cls!r} is not an agent class.",
                next_step="Pass subclasses of Think, or of Agent for those that do not chat: App(Assistant).",
            )
        if cls in (Think, Agent):
            raise AgentError(
                f"{cls.__name__} is what agents are made of, and no agent itself.",
                next_step='Write a class: class Assistant(Think): model = "demo", then App(Assistant).',
            )
        _check_made(cls)
        if is_unnamed(cls):
            raise AgentError(
                "An agent class that agent(…) made has no name, and rows go by it.",
                next_step='Give it one, agent("Support", …), or let App.discover name it after its file.',
            )
        other = self._classes.get(cls.__name__)
        if other is not None and other is not cls:
            raise AgentError(
                f"Two agent classes are called {cls.__name__}: {other.__module__} and {cls.__module__}.",
                next_step="Rename one of them.",
            )
        self._classes[cls.__name__] = cls
        self._route(kebab(cls.__name__), cls)

    def _route(self, name: str, cls: type[Agent]) -> None:
        other = self._routes.setdefault(name, cls)
        if other is not cls:
            raise AgentError(
                f"{cls.__name__} and {other.__name__} have the same address, {name}.",
                next_step="Rename one of them.",
            )

    @property
    def access(self) -> Access:
        """Who may come in."""
        if self._access is None:
            from ..access.access import Access, Checks  # Starlette: see `__call__`

            checks = Checks(
                self._hosts,
                self.origins,
                self.authenticate,
                self.authorize,
                self.on_before_connect,
                self.on_before_request,
            )
            self._access = Access(checks, self.events, self.clock)
        return self._access

    @property
    def hosts(self) -> Hosts:
        """The names by which the app may be asked for. `everthink dev` adds those of this machine."""
        return self._hosts

    @hosts.setter
    def hosts(self, hosts: Hosts) -> None:
        self._hosts = hosts
        if self._access is not None:
            self._access.checks = dataclasses.replace(self._access.checks, hosts=hosts)

    @property
    def classes(self) -> list[type[Agent]]:
        """The agent classes of this app."""
        return list(self._classes.values())

    @property
    def mcp(self) -> McpEndpoint | None:
        """How the app is offered to MCP clients; `None` when it is not."""
        return None if self._offered is None else self._offered[0]

    @property
    def store_url(self) -> str | None:
        """Where everything lives, as `store` said it; `None` when it was given a store itself."""
        return self._given_store if isinstance(self._given_store, str) else None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The app as an ASGI application: `uvicorn module:app`, or mounted in another one."""
        await (await self.gate())(scope, receive, send)

    async def gate(self) -> Any:
        """Its edge, for what is served beside it: it knows who is there, and what they may."""
        if self._gate is None and self._offered is not None:
            await _load_mcp()
        if self._gate is None:
            from ..server.asgi import (  # Starlette is needed by those who serve, not by those who import us
                Gate,
                Served,
            )

            self._gate = Gate(
                Served(
                    access=self.access,
                    limits=self.limits,
                    clock=self.clock,
                    prefix=self.prefix,
                    classes=self._routes,
                    cors=self.cors,
                    open=self._open_to_serve,
                    close=self.close,
                    chats=_chats,
                    other=self.on_other_request,
                    webhooks=self._webhooks(),
                    called=self._called,
                    more=self._mcp_routes if self._offered is not None else None,
                )
            )
        return self._gate

    polls_messengers = False
    """True to ask platforms for what is new wherever an adapter can: `everthink dev` does, so that a bot
    needs no public address."""

    def talk_on_telegram(self, token: str | None) -> bool:
        """Let the first agent that chats answer as the bot of this token, if no class has messengers."""
        chatting = next((cls for cls in self._classes.values() if issubclass(cls, Think)), None)
        if not token or chatting is None or self._messengers is not None:
            return False
        from ..messengers.telegram import telegram_messenger  # for those who have a bot

        chatting.messengers = {"telegram": telegram_messenger(token=token, mode="polling")}
        self._messengers = Address(chatting.__name__, "default")
        return True

    async def _open_to_serve(self) -> Directory:
        """Open the database; ask platforms for what is new, where messengers are to."""
        directory = await self.open()
        if not self._polls:
            self._polls = True
            for address in self._messenger_homes():
                begin(self._poll(directory, address), "asking messengers", tell=self._tell)
        return directory

    def _messenger_homes(self) -> list[Address]:
        """The agents that are there for their messengers alone: the one of `/messengers/…`, and `"default"`
        of every other class that has some."""
        root = self._messengers
        others = (
            Address(name, "default")
            for name, cls in self._classes.items()
            if declares_messengers(cls) and (root is None or root.cls_name != name)
        )
        return [*others] if root is None else [root, *others]

    async def _poll(self, directory: Directory, address: Address) -> None:
        try:
            actor = await directory.reach(address)
        except (AgentElsewhere, StoreClosed):
            return  # the process that has it asks; or nobody, as this one ends
        except InvalidSettings as error:
            log.error(
                "%s has no messengers until this is mended, and whoever writes waits: %s", address, error
            )
            return
        if actor.messaging is not None:
            actor.messaging.poll(always=self.polls_messengers)

    def _tell(self, failed: EventBody) -> None:
        self.events.emit("", "", failed)

    def _webhooks(self) -> Any:
        """What answers the platforms of messengers; `None` for an app without any."""
        if not any(map(declares_messengers, self._classes.values())):
            return None
        from ..webhooks import Webhooks  # Starlette: see `gate`

        return Webhooks(self.open, self.limits, lambda: self._messengers, self._messenger_homes).answer

    def _mcp_routes(self, gate: Any) -> Any:
        """The rows of the gate for MCP clients."""
        from ..mcp_server.http import routes
        from ..mcp_server.service import Offering, Service

        assert self._offered is not None
        endpoint, catalogue = self._offered
        offering = Offering(
            endpoint=endpoint,
            catalogue=catalogue,
            open=self.open,
            access=self.access,
            limits=self.limits,
            version=_version(),
        )
        return routes(Service(offering), gate)

    async def on_other_request(self, request: Any) -> Any:
        """Answer an HTTP request that is not about an agent. Override it: a response, a JSON value, or `None`
        for 404, which is the default."""
        from starlette.responses import PlainTextResponse

        return PlainTextResponse("Not Found", 404)

    async def route_sub_agent(
        self, request: HTTPConnection, agent: Agent, *, from_path: str | None = None
    ) -> Response | None:
        """Hand a request at an address of your own on to a child of `agent`, a handle of this app:

            @site.api_route("/chat/{rest:path}")
            async def chat(request: Request) -> Response:
                return await app.route_sub_agent(request, app.agent(Assistant, user_of(request)))

        Which child it is say the segments from the first `sub` on, of `from_path` or else of the path of the
        request; a query in `from_path` counts instead of the request's. All checks are asked as for the
        child's own address. A response for an HTTP request; a socket is served, and `None` returned when it
        ends.
        """
        from starlette.websockets import WebSocket

        from .forwarding import Forwarded, below, moved, refusal

        if not isinstance(cast("Any", agent), Handle):
            raise AgentError(
                f"route_sub_agent() is given {shown(agent)}, in the place of an agent of this app.",
                next_step='Write app.route_sub_agent(request, app.agent(Assistant, "room-1")).',
            )
        cls, place = place_of(cast("Any", agent))
        segments, query = below(request, from_path)
        known = (await self.open()).children_called()
        refused = refusal(segments, known, cls, self._called)
        path = "/".join([build_path(*place, prefix="/".join(self.prefix)), *segments])
        if isinstance(request, WebSocket):
            if refused is not None:
                await request.close(1008)
            else:
                await self(moved(request, path, query), request.receive, request.send)
            return None
        return refused or Forwarded(self, moved(request, path, query))

    def resolve_model(self, value: Any) -> Model:
        """The model for what an agent gives: a name, or a model. Override it to put something around each."""
        return _resolve_model(value)

    async def _resolved(self, value: Any) -> Model:
        if isinstance(value, str) and ":" in value:
            await _load_provider(value)
        return self.resolve_model(value)

    def agent(self, cls: type[T], name: str = "default", *, props: Any = None) -> T:
        """The agent `name` of class `cls`, from outside. It starts when it is first used.

        What is awaited or streamed reaches it wherever it is. Properties and plain methods are answered by an
        agent that is in memory here, and raise `AgentNotInMemory` otherwise. For all of it, enter:
        `async with app.agent(Assistant, "room-1") as agent:` is the agent itself, in memory until the end.
        """
        check_class(cls, "agent", self._classes)
        if not isinstance(cast("Any", name), str):
            raise AgentError(
                f"app.agent({cls.__name__}, …) is given {shown(name)}, in the place of a name.",
                next_step=f"A name is text: str({name!r})?" if isinstance(name, int) else "A name is text.",
            )
        handle = handle_of(cls, canonical(name), props, open=self._in_use, directory=self._opened)
        return cast("T", handle)  # it answers to all that the class has

    def _handle_of(self, cls: type[Agent], address: Address) -> Any:
        """An agent as others have it, wherever it is in its family."""
        return handle_of(
            cls, address.name, None, open=self._in_use, directory=self._opened, below=address.parent
        )

    async def _in_use(self) -> Directory:
        """The directory, also while the app gives what runs its grace: agents in memory reach each other."""
        if self._closed and (directory := self._opened()) is not None:
            return directory
        return await self.open()

    def _opened(self) -> Directory | None:
        """The directory, if it is open: in this loop, and without waiting for it."""
        if self._opening is None or not self._opening.done():
            return None
        self._check_loop(self._opening)
        return self._opening.result()

    async def _address(self, method: str, agent: Any, name: Any, below: Sequence[Any]) -> Address:
        """The address of the agent that a method is given."""
        return address_of(await self.open(), method, agent, name, below, self._classes)

    async def __aenter__(self) -> App:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> Directory:
        """Open the database. Called by itself on first use."""
        if self._closed:
            raise StoreClosed("The app is closed.", next_step="Make a new App.")
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opened_in = threading.current_thread().name
        self._check_loop(self._opening)
        try:
            return await asyncio.shield(self._opening)
        except BaseException:
            if self._opening.done():
                self._opening = None
            raise

    def _check_loop(self, opening: asyncio.Task[Any]) -> None:
        """Raise in words when this is not the event loop that the app lives in."""
        home = opening.get_loop()
        if home is asyncio.get_running_loop():
            return
        if home.is_closed():
            raise AgentError(
                "This App was opened in an event loop that has ended.",
                kept="What was acknowledged there is stored.",
                next_step="An App lives in one loop. Call asyncio.run() once, around everything that uses it,"
                " or make a new App in each and close it there: async with App(…) as app.",
            )
        raise AgentError(
            f"This App was opened in another event loop, of the thread {self._opened_in!r}.",
            kept="Nothing was done.",
            next_step="An App lives in one loop. Hand the work over to it:"
            " asyncio.run_coroutine_threadsafe(agent.save_messages(…), loop).result()",
        )

    async def _open(self) -> Directory:
        # What agents run on is loaded with the first of them, not with the import.
        from ..cluster.membership import joined
        from ..open_store import open_store
        from ..runtime.directory import Directory
        from ..runtime.schema import MIGRATIONS

        given = self._given_store
        for cls in self._classes.values():
            model = getattr(cls, "model", None)
            if isinstance(model, str) and ":" in model:  # not in the first turn, if it is known now
                await _load_provider(model)
        store = (
            await open_store(given, MIGRATIONS, **self._store_options) if isinstance(given, str) else given
        )
        try:
            membership = await joined(store, classes=self._classes, version=_version())
        except BaseException:
            if isinstance(given, str):
                await store.close()
            raise
        options: dict[str, Any] = {"ids": texts_of(self._new_id)} if self._new_id else {}
        directory = Directory(
            self._classes,
            base=Think,
            store=store,
            clock=self.clock,
            bus=self.events,
            resolve_model=self._resolved,
            limits=self.limits,
            idle_after=self._idle_after,
            retention=self._retention,
            membership=membership,
            network=self.network,
            mcp_servers=self._mcp_servers,
            handle=self._handle_of,
            **options,
        )
        for cls in with_children(self._classes.values()):
            directory.learn(cls)
        await directory.trials.load()
        directory.waker.start()
        self._watch()
        return directory

    def _watch(self) -> None:
        if self._watchdog_after is not None:
            from .watchdog import Watchdog

            self._watchdog = Watchdog(self._held, threshold=self._watchdog_after)
            self._watchdog.start()

    def _held(self, agent: str, blocked: EventBody) -> None:
        directory = self._opened()
        known = None if directory is None else directory.in_memory(agent)
        known = known or Address("", "")
        self.events.emit(known.cls_name, known.name, blocked, known.parents)

    # Each of these takes a class and a name; a child by the pairs that follow, `(Researcher, "notes")`; or a
    # handle.

    async def evict(
        self, agent: type[Agent] | Agent, name: str | None = None, *below: tuple[type[Agent], str]
    ) -> None:
        """Drop an agent from memory as if the process had been restarted; running turns are cut:

            await app.evict(Assistant, "room-1", (Researcher, "notes"))    # a child alone
            await app.evict(handle)

        Those below it stay.
        """
        address = await self._address("evict", agent, name, below)
        if self._gate is not None:
            self._gate.close(address.id)
        await (await self.open()).evict(address)

    async def set_aside(self) -> list[Suspect]:
        """What is not tried any more: turns and agents that took the process down, or cannot be read."""
        return await (await self.open()).set_aside()

    async def release(
        self,
        agent: type[Agent] | Agent,
        name: str | None = None,
        *below: tuple[type[Agent], str],
        turn: str | None = None,
    ) -> list[str]:
        """Let what was set aside of an agent, and of all below it, be tried again: all of it, or one `turn`.
        A child is named as for `evict`.

        Turns go on in their places, an agent can be reached again. Returns the ids of the turns, and an empty
        one for an agent itself; nothing when nothing was set aside.
        """
        address = await self._address("release", agent, name, below)
        return await (await self.open()).release(address, turn)

    async def erase(
        self,
        agent: type[Agent] | Agent,
        name: str | None = None,
        *below: tuple[type[Agent], str],
        identity: Any = None,
        patience: float = 1.0,
    ) -> int:
        """Delete an agent for good, with all below it: whatever it does is stopped, its connections are
        closed, and every row, file and index entry of it is gone from the database when this returns. How
        many rows that were: 0 when there was no such agent. A child is named as for `evict`: its parent
        stays.

        `identity` is who asked for it, for the audit event. On SQLite the file is rewritten, so that no page
        keeps a copy, if that takes less than `patience` seconds, during which nobody else's commits are
        written. Copies outside the database (backups, logs, what you exported) are yours to delete:
        docs/storage.md has the list.
        """
        address = await self._address("erase", agent, name, below)
        return await (await self.open()).erase(address, identity=kept(identity), patience=patience)

    async def export(
        self, agent: type[Agent] | Agent, name: str | None = None, *below: tuple[type[Agent], str]
    ) -> AsyncIterator[dict[str, Any]]:
        """Everything that is kept of an agent and of all below it, one thing after the other, for the person
        it belongs to:

            async for line in app.export(Assistant, "ada"): ...

        The first is a header; each of the others has a `kind`: `message`, `turn`, `call`, `state`, … Nothing
        is masked or left out but what lets the agent in at MCP servers. The agent is not started. A child is
        named as for `evict`. Raises when there is no such agent. docs/storage.md describes the format.
        """
        from ..runtime.exporting import exported

        address, directory = await self._address("export", agent, name, below), await self.open()
        await directory.require(address)
        now, classes = self.clock.now_ms(), directory.classes
        async for line in exported(directory.store, address, now=now, classes=classes):
            yield line

    async def close(self) -> None:
        """Stop serving. Running turns get the grace period and are then cut where they are."""
        if self._closed:
            return
        if self._opening is not None:
            self._check_loop(self._opening)
        self._closed = True
        if self._gate is not None:
            self._gate.close()
        if self._opening is None:
            return
        directory = await self._opening
        await directory.close(grace=self._grace)
        if self._watchdog is not None:
            self._watchdog.stop()
        await self.events.drain()
        if isinstance(self._given_store, str):
            await directory.store.close()


def _offered(mcp: Any, classes: dict[str, type[Agent]]) -> tuple[McpEndpoint, Catalogue] | None:
    """What is offered to MCP clients. Read where the app is made, so that a mistake shows there."""
    if mcp is False:
        return None
    from ..mcp_server.catalogue import Catalogue  # for those who ask for it
    from ..mcp_server.settings import endpoint_of

    endpoint = endpoint_of(mcp, classes)
    return None if endpoint is None else (endpoint, Catalogue([*classes.values()], endpoint, Think))


async def _load_mcp() -> None:
    """Import what speaks the protocol beside the event loop: it takes a while."""
    await asyncio.to_thread(importlib.import_module, "..mcp_server.http", __package__)


def _chats(cls: type[Any] | None) -> bool:
    """True for a class whose agents have a conversation."""
    return cls is not None and issubclass(cls, Think)


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("everthink")
    except PackageNotFoundError:  # run from its source
        return ""


def _check_children(classes: Mapping[str, type[Agent]]) -> None:
    """Refuse classes of children of which no agent could be made, or that others have the name of."""
    known: dict[str, type[Any]] = dict(classes)
    for cls in with_children(classes.values()):
        _check_made(cls)
        other = known.setdefault(cls.__name__, cls)
        if other is not cls:
            raise AgentError(
                f"Two agent classes are called {cls.__name__}: {other.__module__} and {cls.__module__}."
                " Rows go by that name.",
                next_step="Rename one of them.",
            )
        if kebab(cls.__name__) == SUB and cls not in classes.values():
            raise AgentError(
                f"{cls.__name__} cannot be the class of children: /{SUB}/ parts them in addresses.",
                next_step="Give the class another name.",
            )


def _check_made(cls: Any) -> None:
    """Refuse a class of which the app could make no agents."""
    if inspect.isabstract(cls):
        names = ", ".join(sorted(cls.__abstractmethods__))
        raise AgentError(
            f"{cls.__name__} is abstract: it lacks {names}.", next_step="Give the app a class that has them."
        )
    if not can_take(cls.__init__, 1):
        raise AgentError(
            f"{cls.__name__}.__init__{parameters_of(cls.__init__)} wants more than `self`,"
            " and the app, which makes the agents, gives nothing else.",
            next_step="Give it defaults, or take what app.agent(…, props=…) brings in on_start(self, props).",
        )


async def _load_provider(name: str) -> None:
    from ..models.loading import load_provider

    await load_provider(name)


def _resolve_model(value: Any) -> Model:
    # The providers' libraries take a second to import: only when a model is named.
    if hasattr(value, "stream") and hasattr(value, "name"):
        return value
    from ..models.providers import resolve_model

    return resolve_model(value)
