"""Children at addresses of an application's own."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket

from everthink import AgentError, App, Think
from everthink.testing import ScriptedModel, says
from tests.support.server import served

pytestmark = pytest.mark.anyio


class Clerk(Think):
    model = ScriptedModel(says("I am the clerk."))

    async def on_request(self, request: Any) -> Any:
        if request.url.path == "/up":
            body = await request.body()
            return {"method": request.method, "size": len(body), "sha": hashlib.sha256(body).hexdigest()}
        return PlainTextResponse(f"{self.parent_path} {request.url.path} {request.url.query}")


class Desk(Think):
    model = ScriptedModel()
    sub_agents = (Clerk,)

    async def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
        return PlainTextResponse("No", 403) if name == "boss" else None


def site(app: App) -> Starlette:
    """An application with addresses of its own."""

    async def http(request: Request) -> Response:
        answer = await app.route_sub_agent(
            request, app.agent(Desk, request.path_params["room"]), from_path=request.query_params.get("path")
        )
        assert answer is not None
        return answer

    async def socket(request: WebSocket) -> None:
        assert await app.route_sub_agent(request, app.agent(Desk, request.path_params["room"])) is None

    return Starlette(
        routes=[
            Route("/chat/{room}/{rest:path}", http, methods=["GET", "POST", "PUT"]),
            WebSocketRoute("/chat/{room}/{rest:path}", socket),
            Mount("/", app),
        ]
    )


@pytest.mark.agent_case(278, 558)
async def test_requests_and_sockets_are_handed_on_to_the_child() -> None:
    app = App(Desk, store=":memory:")
    async with app, served(site(app)) as server:
        tab = await server.connect("/chat/room-1/sub/clerk/a%2Fb")
        identity = await tab.until_frame("cf_agent_identity")
        assert (identity["agent"], identity["name"]) == ("clerk", "a/b")
        await tab.until_done(await tab.say("Hi"))
        told = (await server.http("/chat/room-1/sub/clerk/a%2Fb/get-messages")).json
        assert [message["role"] for message in told] == ["user", "assistant"]
        assert told == (await server.http("/agents/desk/room-1/sub/clerk/a%2Fb/get-messages")).json


@pytest.mark.agent_case(283)
async def test_a_path_of_ones_own_says_which_child() -> None:
    app = App(Desk, store=":memory:")
    async with app, served(site(app)) as server:
        await app.agent(Desk, "room-1").sub_agent(Clerk, "ada")
        answer = await server.http("/chat/room-1/x?path=/sub/clerk/ada/files%3Fpage=2")
        assert answer.text == "[('Desk', 'room-1')] /files page=2"


@pytest.mark.agent_case(290)
@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
@pytest.mark.parametrize("body", [b"", b"\0", bytes(range(256)) * 1000], ids=["empty", "nul", "256-kB"])
async def test_methods_and_bodies_are_handed_on_as_they_were_sent(method: str, body: bytes) -> None:
    app = App(Desk, store=":memory:")
    async with app, served(site(app)) as server:
        await app.agent(Desk, "room-1").sub_agent(Clerk, "ada")
        sent = b"" if method == "GET" else body
        told = (await server.http("/chat/room-1/sub/clerk/ada/up", method=method, body=sent)).json
        assert told == {"method": method, "size": len(sent), "sha": hashlib.sha256(sent).hexdigest()}


@pytest.mark.agent_case(280, 284, 556)
async def test_what_names_no_child_is_refused() -> None:
    app = App(Desk, store=":memory:")
    async with app, served(site(app)) as server:
        assert (await server.http("/chat/room-1/files")).status == 400
        answer = await server.http("/chat/room-1/sub/nobody/x")
        assert (answer.status, answer.text) == (404, "Sub-agent route not found for parent 'desk'.")
        assert (await server.http("/chat/room-1/sub/clerk/ada/sub/nobody/x")).status == 404
        assert (await server.http("/chat/room-1/sub/clerk/%FF")).status == 400
        await app.agent(Desk, "room-1").set_state(
            {"begun": True}
        )  # who is not there yet is not made by looking
        assert (await server.http("/chat/room-1/sub/clerk/boss")).status == 403
        tab = await server.connect("/chat/room-1/sub/clerk/boss")
        assert (await tab.until_closed())[0] == 4403


@pytest.mark.agent_case(280)
async def test_the_checks_are_asked_as_for_its_own_address() -> None:
    app = App(
        Desk,
        store=":memory:",
        authorize=lambda who, action, agent: agent.name == "mine",
        authenticate=lambda _: "ada",
    )
    async with app, served(site(app)) as server:
        assert (await server.http("/chat/mine/sub/clerk/x/get-messages")).status == 200
        assert (await server.http("/chat/theirs/sub/clerk/x/get-messages")).status == 403


async def test_something_else_in_the_place_of_an_agent_is_told() -> None:
    async with App(Desk, store=":memory:") as app:
        with pytest.raises(AgentError, match="in the place of an agent"):
            await app.route_sub_agent(Request({"type": "http"}), Desk)  # pyright: ignore[reportArgumentType]
