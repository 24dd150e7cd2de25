"""docs/howto-fastapi.md: its site as a real process, and what it says about paths, CORS and the lifespan."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from websockets.exceptions import InvalidStatus

from everthink import App
from everthink.testing import ScriptedModel, says
from everthink.testing.client import Client
from everthink.testing.in_process_server import Listening

from ..support.agents import assistant
from ..support.commands import Command
from .pages import program, written

pytestmark = pytest.mark.anyio

PAGE = "howto-fastapi.md"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return program(PAGE, "main.py")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Command]:
    with Command(written(PAGE, tmp_path), "serve", "main:site", "--port", "0") as server:
        yield server


async def post(server: Listening, path: str, said: Any = None) -> Any:
    headers = {"Content-Type": "application/json"}
    return await server.http(path, method="POST", headers=headers, body=json.dumps(said).encode())


async def test_its_routes_reach_the_agents_and_sockets_see_it(site: Any) -> None:
    async with Listening(site["site"]) as server:
        assert (await server.http("/healthz")).json == {"ok": True}
        asked = await post(server, "/rooms/oslo/ask", {"text": "What is the weather in Oslo?"})
        assert asked.json["waits_for"] == []
        assert "Oslo" in asked.json["answer"]
        streamed = await post(server, "/rooms/oslo/stream", {"text": "And in Rome?"})
        assert streamed.headers["content-type"].startswith("text/plain")

        chat = await server.connect(site["Assistant"], "oslo")
        await chat.settled()
        assert [m.role for m in chat.messages] == ["user", "assistant"] * 2
        assert (chat.messages[1].text, chat.messages[3].text) == (asked.json["answer"], streamed.text)
        await chat.until_done(await chat.say("Thank you"))
        assert len((await server.http("/agents/assistant/oslo/get-messages")).json) == 6
        assert (await server.http("/elsewhere")).status == 404
        assert "Assistant" not in (await server.http("/openapi.json")).text


async def test_a_webhook_that_is_delivered_twice_is_one_submission(site: Any) -> None:
    async with Listening(site["site"]) as server:
        first, again = [await post(server, "/hooks/orders/A-1") for _ in range(2)]
        assert (first.status, first.json["new"], again.json["new"]) == (202, True, False)
        assert first.json["submission"] == again.json["submission"]
        orders = site["agents"].agent(site["Assistant"], "orders")
        await orders.wait_for_submission(first.json["submission"])
        assert [m.role for m in await orders.get_messages()] == ["user", "assistant"]


async def test_the_lifespan_gives_a_running_turn_its_grace(process: Command, tmp_path: Path) -> None:
    # Given the served site, and an answer in the middle
    address = process.until(r"serves main:site at http://(\S+)")[1]
    chat = await Client.connect(f"ws://{address}/agents/assistant/room")
    await chat.say("Count to 150")
    await chat.until(lambda: len(chat.text) > 5)

    # When the process is told to stop
    process.process.send_signal(signal.SIGTERM)

    # Then the socket is told to come back, and the answer was brought to its end
    assert (await chat.until_closed())[0] == 1012
    assert await asyncio.to_thread(process.ended) == 0
    agents = program(PAGE, "main.py")
    async with App(agents["Assistant"], store=f"sqlite:///{tmp_path}/data/agents.db") as app:
        [_, counted] = await app.agent(agents["Assistant"], "room").get_messages()
        turns = await (await app.open()).store.fetch("SELECT status FROM turns")
    assert counted.text.startswith(chat.text)
    assert [row[0] for row in turns] == ["completed"]


async def test_a_database_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "agents.db").write_bytes(b"not a database, certainly" * 100)
    with Command(written(PAGE, tmp_path), "serve", "main:site", "--port", "0") as server:
        assert server.ended() == 1
    assert "agents.db" in "\n".join(server.seen)


@pytest.mark.parametrize(
    ("mounted_at", "options", "path"),
    [
        ("/", {}, "/agents/assistant/room-1"),
        ("/chat", {}, "/chat/agents/assistant/room-1"),
        ("/", {"prefix": "api/agents"}, "/api/agents/assistant/room-1"),
    ],
)
async def test_the_addresses_of_the_table(tmp_path: Path, mounted_at: str, options: Any, path: str) -> None:
    cls = assistant(ScriptedModel(says("Here.")))
    site = FastAPI()
    site.mount(mounted_at, App(cls, store=f"sqlite:///{tmp_path}/x.db", **options))
    async with Listening(site) as server:
        chat = await server.connect(path)
        await chat.until_done(await chat.say("Hi"))
        assert len((await server.http(f"{path}/get-messages")).json) == 2


async def test_its_cors_middleware_covers_answers_but_not_sockets(tmp_path: Path) -> None:
    site = FastAPI()
    site.add_middleware(CORSMiddleware, allow_origins=["https://my.page"])
    site.mount("/", App(assistant(ScriptedModel()), store=f"sqlite:///{tmp_path}/x.db"))
    room = "/agents/assistant/room"
    async with Listening(site) as server:
        read = await server.http(f"{room}/get-messages", headers={"Origin": "https://my.page"})
        assert read.headers["access-control-allow-origin"] == "https://my.page"
        with pytest.raises(InvalidStatus) as caught:
            await server.connect(room, origin="https://my.page")
        assert caught.value.response.status_code == 403
