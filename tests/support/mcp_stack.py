"""An app with an agent that uses MCP servers, behind a real port, and servers for it: all on this machine.

async with Stack(store, clock) as stack:
    chat = await stack.connect()
    await stack.add(chat, "locked", locked.url)
    await stack.restart()        the port stays, the App object and everything in memory goes
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any, Self
from urllib.parse import quote, urlsplit

from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import Response

from everthink import App, Think, exposed
from everthink.address import kebab
from everthink.clock import Clock
from everthink.testing import ScriptedModel
from everthink.testing.client import Client
from everthink.testing.in_process_server import Answer, Listening
from everthink.testing.server_address import Place

__all__ = ["Assistant", "Serving", "Stack", "calculator", "state_of"]

PLAIN = {"lifespan": "off", "interface": "asgi3"}


class Assistant(Think):
    """An agent whose page adds servers."""

    include_workspace_tools = False

    script: ScriptedModel | None = None

    def get_model(self) -> Any:
        return self.script

    @exposed
    async def add(self, name: str, url: str, options: dict[str, Any] | None = None) -> Any:
        return asdict(await self.add_mcp_server(name, url, **(options or {})))

    @exposed
    async def remove(self, id: str) -> bool:
        return await self.remove_mcp_server(id)

    @exposed
    async def servers(self, filters: dict[str, Any] | None = None) -> Any:
        return [asdict(server) for server in await self.list_mcp_servers(**(filters or {}))]

    @exposed
    async def use(self, server: str, tool: str, input: dict[str, Any]) -> Any:
        return await self.call_mcp_tool(server, tool, input)


class Stack:
    """One app after the other on the same database and the same port."""

    def __init__(
        self, store: Any, clock: Clock | None = None, agent: type[Any] = Assistant, **options: Any
    ) -> None:
        self.agent, self.clock = agent, clock
        self._options: dict[str, Any] = {"store": str(store), "clock": clock, "grace": 0.2, **options}
        self._listening = Listening(self._serve, **PLAIN)
        self._path = ""
        self.is_near = True
        """Whether servers on this machine may be added."""
        self.events: list[Any] = []

    async def __aenter__(self) -> Self:
        self.app = self._made()
        await self._listening.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.app.close()
        await self._listening.__aexit__(None, None, None)

    def _made(self) -> App:
        app = App(self.agent, **self._options)
        app.network.loopback = self.is_near
        app.events.subscribe(self.events.append)
        return app

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        await self.app({**scope, "root_path": self._path}, receive, send)

    async def restart(self, **options: Any) -> None:
        """Throw everything away but the database."""
        self._options |= options
        await self.app.close()
        self.app = self._made()

    @property
    def origin(self) -> str:
        return f"http://{self._listening.host}"

    def mount(self, path: str) -> None:
        """Let the app be below a path. Before the block begins."""
        self._path = path

    async def connect(self, name: str = "room", **options: Any) -> Client:
        where = f"{self._path}/agents/{kebab(self.agent.__name__)}/{quote(name, safe='')}"
        return await self._listening.connect(where, **options)

    async def live(self, name: str = "room") -> Any:
        """The agent itself, as its own code has it."""
        directory = await self.app.open()
        return (await directory.reach(directory.address(self.agent, name))).agent

    async def settled(self, name: str = "room") -> Any:
        """The agent itself, once its servers have answered, in whichever way."""
        agent = await self.live(name)
        await agent._home.mcp.wait(None)
        return agent

    async def add(self, chat: Client, name: str, url: str, **options: Any) -> dict[str, Any]:
        """Let the page of `chat` add a server. How it stands."""
        [answer] = await chat.call("add", name, url, options)
        assert answer["success"], answer
        return answer["result"]

    async def rows(self) -> list[tuple[Any, ...]]:
        """All that is stored about servers."""
        store = (await self.app.open()).store
        sql = "SELECT agent, id, name, prefix, address, options, secrets, callback_url FROM mcp_servers"
        return [tuple(row) for row in await store.fetch(f"{sql} WHERE agent <> '' ORDER BY agent, id")]

    async def secrets(self) -> list[str]:
        """What is stored of their secrets."""
        return [row[6] for row in await self.rows()]

    # --- a person with a browser

    async def sent_back(self, auth_url: str) -> str:
        """Go where we are sent, and agree. Where the browser is sent then."""
        answer = await self.open(auth_url)
        assert answer.status == 302, answer.text
        return answer.headers["location"]

    async def open(self, url: str, **headers: str) -> Answer:
        """Open an address of this machine, without going where it sends us, and without a line in a log."""
        place, parts = Place(), urlsplit(url)
        place.port = parts.port or 0
        return await place.http(f"{parts.path}?{parts.query}", headers=headers)

    async def allowed(self, chat: Client, id: str) -> None:
        """All of it, until the server is ready."""
        await chat.until(lambda: state_of(chat, id) == "authenticating")
        auth_url = chat.of("mcp_servers")[-1]["mcp"]["servers"][id]["auth_url"]
        answer = await self.open(await self.sent_back(auth_url))
        assert (answer.status, answer.headers["location"]) == (302, "/"), answer.headers
        await chat.until(lambda: state_of(chat, id) == "ready")


def state_of(chat: Client, id: str | None = None) -> str | None:
    """How a server stands, as the page was told last. Without an id: the only one there is."""
    told = chat.of("mcp_servers")
    servers = told[-1]["mcp"]["servers"] if told else {}
    one = servers.get(id) if id is not None else next(iter(servers.values()), None)
    return one["state"] if one else None


def calculator(name: str = "calculator") -> MCPServer[Any]:
    """A server with the tool `add`."""
    server = MCPServer[Any](name)

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    return server


Before = Callable[[Request, dict[str, Any]], Awaitable[Response | None]]


class Serving:
    """`async with Serving() as serving`: a server over streamable HTTP.

    `asked` has the method of each request, `heads` and `bodies` the rest. `before` may answer in its place.
    """

    def __init__(self, server: MCPServer[Any] | None = None, *, stateless: bool = True) -> None:
        self._app = (server or calculator()).streamable_http_app(stateless_http=stateless, json_response=True)
        self.asked: list[str] = []
        self.heads: list[dict[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.before: Before | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        # Streams of changes end when the server does, whoever listens.
        listening = Listening(self._serve, **PLAIN, timeout_graceful_shutdown=0)
        await self._stack.enter_async_context(listening)
        self.url = f"http://{listening.host}/mcp"
        await self._stack.enter_async_context(self._app.router.lifespan_context(self._app))
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        body = await request.body()
        said: dict[str, Any] = json.loads(body) if body else {}
        self.asked.append(said.get("method", scope["method"]))
        self.heads.append(dict(request.headers))
        self.bodies.append(said)
        answer = await self.before(request, said) if self.before is not None else None
        if answer is not None:
            return await answer(scope, receive, send)
        is_given = False

        async def again() -> Any:
            nonlocal is_given
            if is_given:
                return await receive()
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)
