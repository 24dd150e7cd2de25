"""docs/howto-auth.md: its app, over real sockets. What the page says of the hooks and of refusals is true."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from everthink import App
from everthink.testing import ScriptedModel, says
from everthink.testing.client import Client
from everthink.testing.in_process_server import Listening
from tests.support.agents import live

from ..support.agents import assistant
from ..support.commands import Command
from .pages import program, written

pytestmark = pytest.mark.anyio

PAGE = "howto-auth.md"
BEARER = {"Authorization": "Bearer t-ada-secret"}
COOKIE = {"Cookie": "theme=dark; session=t-ada-secret"}
QUERY = {"token": "t-ada-secret"}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the page's app.py defines; its database is in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return program(PAGE, "app.py")


async def refused(server: Listening, path: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as caught:
        await server.connect(path, **options)
    return caught.value.response.status_code


# --- the example


@pytest.mark.parametrize(
    "options",
    [{"headers": BEARER}, {"headers": COOKIE}, {"query": QUERY}],
    ids=["a bearer header", "a cookie", "a query"],
)
async def test_a_known_token_comes_in_whichever_way_it_travels(page: Any, options: Any) -> None:
    async with Listening(page["app"]) as server:
        for room in ("ada", "ada.trip"):
            chat = await server.connect(page["Assistant"], room, **options)
            await chat.until_done(await chat.say("Hello"))
            assert chat.text


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 401),
        ({"query": {"token": ""}}, 401),
        ({"query": {"token": "guessed"}}, 401),
        ({"headers": {"Authorization": "Bearer guessed"}}, 401),
        ({"headers": {"Authorization": "Basic t-ada-secret"}}, 401),
        ({"headers": {"Cookie": "session=guessed"}}, 401),
        ({"query": {"token": "t-bob-secret"}}, 403),
    ],
)
async def test_nobody_else_comes_in_and_nothing_is_started(page: Any, options: Any, status: int) -> None:
    app, room = page["app"], "/agents/assistant/ada"
    async with Listening(app) as server:
        assert await refused(server, room, **options) == status
        token = options.get("query", {}).get("token", "")
        got = await server.http(f"{room}/get-messages?token={token}", headers=options.get("headers"))
        assert got.status == status
        assert await (await app.open()).store.fetch("SELECT agent FROM agents") == []


@pytest.mark.parametrize("room", ["bob", "bob.trip", "adam", "ada-2", "Ada", "%62ob", "ada%2Ftrip"])
async def test_nobody_reads_anothers_room(page: Any, room: str) -> None:
    async with Listening(page["app"]) as server:
        assert await refused(server, f"/agents/assistant/{room}", headers=BEARER) == 403
        assert (await server.http(f"/agents/assistant/{room}/get-messages", headers=BEARER)).status == 403
        assert (await server.http(f"/agents/assistant/{room}/x", method="POST", headers=BEARER)).status == 403


@pytest.mark.parametrize("room", ["%61da", "ada%2Etrip"])
async def test_ones_own_room_is_that_however_it_is_escaped(page: Any, room: str) -> None:
    async with Listening(page["app"]) as server:
        await (await server.connect(f"/agents/assistant/{room}", headers=BEARER)).settled()


async def test_a_page_of_another_origin_is_refused_although_the_cookie_comes_along(page: Any) -> None:
    room = "/agents/assistant/ada"
    async with Listening(page["app"]) as server:
        for origin in ("https://evil.example", "null", f"http://127.0.0.1:{server.port + 1}"):
            assert await refused(server, room, headers=COOKIE, origin=origin) == 403
            posted = await server.http(f"{room}/x", method="POST", headers={**COOKIE, "Origin": origin})
            assert (posted.status, posted.text) == (403, "Origin not allowed")
            read = await server.http(f"{room}/get-messages", headers={**COOKIE, "Origin": origin})
            assert not [name for name in read.headers if name.startswith("access-control")]
        own = await server.connect(room, headers=COOKIE, origin=f"http://{server.host}")
        await own.settled()


async def test_the_server_keeps_tokens_in_the_query_out_of_its_log(tmp_path: Path) -> None:
    written(PAGE, tmp_path)
    with Command(tmp_path, "serve", "app:app", "--port", "0", "--log-level", "info") as server:
        address = server.until(r"serves app:app at http://(\S+)")[1]
        room = f"ws://{address}/agents/assistant/ada"
        chat = await Client.connect(room, query=QUERY)
        await chat.settled()
        await chat.close()
        with pytest.raises(InvalidStatus):
            await Client.connect(room, query={"token": "t-ada-wrong"})
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(b"GET /agents/assistant/ada/get-messages?token=t-ada-secret HTTP/1.0\r\n\r\n")
        assert b" 200 " in (await reader.read()).split(b"\r\n")[0]
        writer.close()
        assert server.interrupt() == 0
    log = "\n".join(server.seen)
    assert log.count("?…") >= 3
    assert "t-ada" not in log


# --- what the page says of the hooks


async def test_every_hook_of_a_connection_can_read_who_it_is(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}
    gone = asyncio.Event()

    def on_close(self: Any, connection: Any, code: int, reason: str) -> None:
        seen["close"] = connection.request.state.identity
        gone.set()

    def validate(self: Any, state: Any, source: Any) -> None:
        if source != "server":
            seen["state"] = source.request.state.identity

    cls = assistant(
        ScriptedModel(),
        on_connect=lambda self, c, r: seen.update(connect=r.state.identity),
        should_connection_be_readonly=lambda self, c, r: seen.update(readonly=r.state.identity),
        on_message=lambda self, c, m: seen.update(message=c.request.state.identity),
        on_request=lambda self, r: r.state.identity,
        on_close=on_close,
        validate_state_change=validate,
    )
    app = App(cls, store=f"sqlite:///{tmp_path}/x.db", authenticate=lambda c: c.query_params.get("me"))
    async with Listening(app) as server:
        chat = await server.connect(cls, query={"me": "ada"})
        await chat.send("hello")
        await chat.set_state({"a": 1})
        await chat.settled()
        await chat.close()
        await gone.wait()
        assert (await server.http("/agents/assistant/default/me?me=bob")).json == "bob"
    assert seen == dict.fromkeys(["readonly", "connect", "message", "state", "close"], "ada")


async def test_a_check_that_raises_lets_nobody_in(tmp_path: Path) -> None:
    def who(connection: Any) -> Any:
        raise RuntimeError("the session store is away")

    cls = assistant(ScriptedModel())
    app = App(cls, store=f"sqlite:///{tmp_path}/x.db", authenticate=who)
    async with Listening(app) as server:
        assert await refused(server, "/agents/assistant/ada") == 500
        answer = await server.http("/agents/assistant/ada/get-messages")
        assert answer.status == 500
        assert "session store" not in answer.text
        assert await (await app.open()).store.fetch("SELECT agent FROM agents") == []


async def test_a_connect_hook_that_raises_shows_nothing_and_one_that_closes_shows_what_waited(
    tmp_path: Path,
) -> None:
    def on_connect(self: Any, connection: Any, request: Any) -> None:
        if request.query_params.get("how") == "raise":
            raise PermissionError("not you")
        connection.close(4401, "not you")

    cls = assistant(ScriptedModel(says("A secret.")), on_connect=on_connect)
    app = App(cls, store=f"sqlite:///{tmp_path}/x.db")
    async with Listening(app) as server:
        await app.agent(cls).save_messages("Tell me")
        raised = await server.connect(cls, query={"how": "raise"})
        assert (await raised.until_closed())[0] == 1011
        assert raised.frames == []
        assert [list(json.loads(said)) for said in raised.other] == [["error"]]
        closed = await server.connect(cls, query={"how": "close"})
        assert await closed.until_closed() == (4401, "not you")
        assert closed.messages[-1].text == "A secret."


async def test_a_socket_is_ended_when_its_user_signs_out(page: Any) -> None:
    async with Listening(page["app"]) as server:
        chat = await server.connect(page["Assistant"], "ada", headers=BEARER)
        await chat.settled()
        agent = await live(page["app"].agent(page["Assistant"], "ada"))
        for connection in agent.connections:
            if connection.state["user"] == "ada":
                connection.close(4401, "Signed out")
        assert await chat.until_closed() == (4401, "Signed out")


async def test_a_page_of_an_origin_that_is_named_may_send_its_header(page: Any) -> None:
    named = {
        "Access-Control-Allow-Origin": "https://my.page",
        "Access-Control-Allow-Headers": "Authorization",
    }
    app = App(page["Assistant"], authenticate=page["who"], allow_origins=["https://my.page"], cors=named)
    room = "/agents/assistant/ada"
    async with Listening(app) as server:
        await (await server.connect(room, query=QUERY, origin="https://my.page")).settled()
        asked = {"Origin": "https://my.page", "Access-Control-Request-Headers": "authorization"}
        preflight = await server.http(f"{room}/get-messages", method="OPTIONS", headers=asked)
        assert preflight.status == 200
        assert preflight.headers["access-control-allow-headers"] == "Authorization"
        read = await server.http(f"{room}/get-messages", headers={**BEARER, "Origin": "https://my.page"})
        assert (read.status, read.headers["access-control-allow-origin"]) == (200, "https://my.page")
        assert json.loads(read.body) == []
