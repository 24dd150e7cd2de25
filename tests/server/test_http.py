"""HTTP below an agent's address, and who may come in at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from websockets.exceptions import InvalidStatus

from everthink.address import kebab
from everthink.testing import ScriptedModel, says

from ..support.agents import assistant
from ..support.server import Served, open_app, served
from .conftest import Serve

pytestmark = pytest.mark.anyio

ROOM = "/agents/assistant/room"
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET, POST, HEAD, OPTIONS",
    "access-control-allow-headers": "*",
    "access-control-max-age": "86400",
}


def cors_of(answer: Any) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control")}


async def refused(server: Served, path: str, **options: Any) -> int:
    """The status a socket is refused with."""
    with pytest.raises(InvalidStatus) as caught:
        await server.connect(path, **options)
    return caught.value.response.status_code


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("ThinkPeer", "think-peer"),
        ("HTTPAgent", "h-t-t-p-agent"),
        ("MY_AGENT", "my-agent"),
        ("Assistant", "assistant"),
        ("ThinkSubAgent_Support_Researcher", "think-sub-agent--support--researcher"),
        ("Agent_", "agent"),
    ],
)
def test_the_address_of_a_class(name: str, address: str) -> None:
    assert kebab(name) == address


async def test_get_messages_is_what_is_stored_never_what_streams(serve: Serve) -> None:
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("So far ").waits(go).says("so good.")))
    server = await serve(cls)
    empty = await server.http(f"{ROOM}/get-messages")
    assert (empty.status, empty.json, empty.headers["content-type"]) == (200, [], "application/json")
    chat = await server.connect(cls)
    request = await chat.say("Hi", message_id="u1")
    await chat.until_text("So far ")
    assert [m["id"] for m in (await server.http(f"{ROOM}/get-messages?token=x")).json] == ["u1"]
    go.set()
    await chat.until_done(request)
    for method, path in (
        ("GET", "get-messages"),
        ("POST", "some/where/get-messages"),
        ("GET", "/get-messages"),
    ):
        stored = await server.http(f"{ROOM}/{path}", method=method)
        assert stored.json == [message.to_json() for message in chat.messages]


async def test_other_requests_go_to_the_agent(serve: Serve) -> None:
    async def on_request(self: Any, request: Any) -> Any:
        match request.url.path.rsplit("/", 1)[-1]:
            case "json":
                return {"name": self.name, "body": (await request.body()).decode()}
            case "text":
                return PlainTextResponse("made by hand", 201)
            case "boom":
                raise RuntimeError("secret")
            case _:
                return None

    cls = assistant(ScriptedModel(), on_request=on_request)
    server = await serve(cls)
    answer = await server.http(f"{ROOM}/deep/json", method="POST", body=b"hello")
    assert (answer.status, answer.json) == (200, {"name": "room", "body": "hello"})
    answer = await server.http(f"{ROOM}/text")
    assert (answer.status, answer.text) == (201, "made by hand")
    for path in (ROOM, f"{ROOM}/xget-messages"):
        answer = await server.http(path)
        assert (answer.status, answer.text) == (404, "Not implemented")
    answer = await server.http(f"{ROOM}/boom")
    assert answer.status == 500
    assert "secret" not in answer.text


async def test_addresses_that_lead_nowhere(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()))
    for path in ("/", "/agents", "/agents/assistant", "/agents/assistant/", "/other/assistant/room"):
        assert (await server.http(path)).status == 404
    for path in ("/agents/nope/room", "/agents/Assistant/room"):
        answer = await server.http(path)
        assert (answer.status, answer.text) == (400, "Invalid request")
        assert await refused(server, path) == 400
    assert await refused(server, "/agents/assistant") == 404


async def test_names_are_decoded_and_clients_are_told_them_as_they_wrote_them(serve: Serve) -> None:
    cls = assistant(ScriptedModel(), on_request=lambda self, request: self.name)
    server = await serve(cls)
    names = {"a%20b": "a b", "caf%C3%A9": "café", "a%2Fb": "a%2Fb", "a+b": "a+b", "~x": "~x", "%7Ey": "~y"}
    names |= {"bad%ff": "bad%ff", "nul%00": "nul%00", "line%0Abreak": "line%0Abreak", "50%": "50%"}
    for name, meant in names.items():
        assert (await server.http(f"/agents/assistant/{name}/x", method="POST")).json == meant
        chat = await server.connect(f"/agents/assistant/{name}/any/path")
        await chat.until_frame("identity")
        assert chat.identity is not None
        assert chat.identity["name"] == name
    assert (await server.http("//agents//assistant//twice//x", method="POST")).json == "twice"
    assert (await server.http(f"/agents/assistant/{'n' * 2000}/x")).status in (400, 500)


async def test_the_prefix_may_have_several_segments(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Here.")))
    server = await serve(cls, prefix="/api/v1/agents/")
    chat = await server.connect("/api/v1/agents/assistant/room")
    await chat.until_done(await chat.say("Hi"))
    assert len((await server.http("/api/v1/agents/assistant/room/get-messages")).json) == 2
    assert (await server.http(f"{ROOM}/get-messages")).status == 404


# --- other origins


async def test_without_cors_no_header_says_anything(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()))
    assert cors_of(await server.http(f"{ROOM}/get-messages")) == {}
    options = await server.http(f"{ROOM}/get-messages", method="OPTIONS")
    assert cors_of(options) == {}


async def test_with_cors_every_answer_of_an_agent_has_the_headers(serve: Serve) -> None:
    server = await serve(assistant(ScriptedModel()), cors=True)
    assert cors_of(await server.http(f"{ROOM}/get-messages")) == CORS
    assert cors_of(await server.http(f"{ROOM}/nothing")) == CORS
    preflight = await server.http(f"{ROOM}/get-messages", method="OPTIONS")
    assert (preflight.status, preflight.body, cors_of(preflight)) == (200, b"", CORS)
    assert cors_of(await server.http("/elsewhere")) == {}


async def test_headers_of_ones_own_replace_the_set(serve: Serve) -> None:
    server = await serve(
        assistant(ScriptedModel()), cors={"Access-Control-Allow-Origin": "https://app.example"}
    )
    assert cors_of(await server.http(f"{ROOM}/get-messages")) == {
        "access-control-allow-origin": "https://app.example"
    }


async def test_a_socket_from_another_origin_is_refused_unless_allowed(serve: Serve, tmp_path: Path) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    assert await refused(server, ROOM, origin="https://evil.example") == 403
    assert await refused(server, ROOM, origin="null") == 403
    own = await server.connect(cls, origin=f"http://{server.host}")
    await own.settled()
    assert (await server.http(ROOM, method="POST", headers={"Origin": "https://evil.example"})).status == 403

    open_to_one = await serve(cls, allow_origins=["https://app.example"], store=f"sqlite:///{tmp_path}/2.db")
    await (await open_to_one.connect(cls, origin="https://app.example")).settled()
    assert await refused(open_to_one, ROOM, origin="https://evil.example") == 403
    open_to_all = await serve(cls, allow_origins=["*"], store=f"sqlite:///{tmp_path}/3.db")
    await (await open_to_all.connect(cls, origin="https://evil.example")).settled()


# --- who is it


@pytest.mark.parametrize("is_async", [False, True])
async def test_whoever_is_not_known_stays_outside(serve: Serve, is_async: bool) -> None:
    seen: list[Any] = []
    known = {"t-ada": {"user": "ada"}}

    def look(request: Any) -> Any:
        return known.get(request.query_params.get("token", ""))

    async def look_later(request: Any) -> Any:
        return look(request)

    cls = assistant(
        ScriptedModel(),
        on_connect=lambda self, connection, request: seen.append(connection.request.state.identity),
        on_request=lambda self, request: request.state.identity,
    )
    server = await serve(cls, authenticate=look_later if is_async else look)
    assert await refused(server, ROOM) == 401
    assert (await server.http(f"{ROOM}/get-messages")).status == 401
    assert seen == []
    await (await server.connect(cls, query={"token": "t-ada"})).settled()
    assert seen == [{"user": "ada"}]
    assert (await server.http(f"{ROOM}/me?token=t-ada")).json == {"user": "ada"}


async def test_the_gates_of_the_application_may_refuse(serve: Serve) -> None:
    asked: list[Any] = []

    async def on_before_connect(request: Any, cls: Any, name: str) -> Any:
        asked.append((cls.__name__, name))
        return PlainTextResponse("full", 503) if name == "full" else None

    def on_before_request(request: Any, cls: Any, name: str) -> Any:
        return PlainTextResponse("teapot", 418) if name == "full" else None

    cls = assistant(ScriptedModel())
    server = await serve(cls, on_before_connect=on_before_connect, on_before_request=on_before_request)
    assert await refused(server, "/agents/assistant/full") == 503
    assert (await server.http("/agents/assistant/full/get-messages")).status == 418
    await (await server.connect(cls)).settled()
    assert (await server.http(f"{ROOM}/get-messages")).status == 200
    assert asked == [("Assistant", "full"), ("Assistant", "room")]


# --- inside another application


@pytest.mark.parametrize("config", [{}, {"root_path": "/behind"}], ids=["mounted", "mounted behind a proxy"])
async def test_mounted_in_another_application_it_opens_on_first_use(tmp_path: Path, config: Any) -> None:
    # Given an outer application whose lifespan knows nothing of ours
    cls = assistant(ScriptedModel(says("Mounted.")))
    app = open_app(tmp_path, cls)
    async with served(Starlette(routes=[Mount("/chat", app=app)]), **config) as server:
        chat = await server.connect("/chat/agents/assistant/a%20room")
        await chat.until_done(await chat.say("Hi"))
        assert chat.text == "Mounted."
        assert chat.identity is not None
        assert chat.identity["name"] == "a%20room"
        stored = await server.http("/chat/agents/assistant/a%20room/get-messages")
        assert [m["role"] for m in stored.json] == ["user", "assistant"]
        assert (await server.http("/agents/assistant/room/get-messages")).status == 404
        await app.close()
        assert (await chat.until_closed())[0] == 1012


async def test_a_database_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "everthink.db").write_bytes(b"not a database, certainly" * 100)
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    await open_app(tmp_path, assistant(ScriptedModel()))({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in said] == ["lifespan.startup.failed"]
    assert said[0]["message"]


async def test_answers_are_json_as_sent(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    await server.app.agent(cls, "room").add_messages("Grüße 🌍 \ud83d half")
    [message] = json.loads((await server.http(f"{ROOM}/get-messages")).body)
    assert message["parts"][0]["text"].startswith("Grüße 🌍 ")
