"""Connections: their hooks, what is not ours, slow readers, the server's end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink.errors import UNTOLD
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.turns import record_events
from .conftest import Serve

pytestmark = pytest.mark.anyio


async def test_the_hooks_see_a_connection_come_speak_and_go(serve: Serve) -> None:
    seen: list[Any] = []
    gone = asyncio.Event()

    async def on_connect(self: Any, connection: Any, request: Any) -> None:
        connection.state = {"who": request.query_params["who"]}
        seen.append(("connect", connection.id))
        connection.send("welcome")

    def on_message(self: Any, connection: Any, message: Any) -> None:
        seen.append((connection.state["who"], message))

    async def on_close(self: Any, connection: Any, code: int, reason: str) -> None:
        seen.append(("close", code, reason))
        gone.set()
        raise RuntimeError("ignored")

    cls = assistant(ScriptedModel(), on_connect=on_connect, on_message=on_message, on_close=on_close)
    server = await serve(cls)
    events = record_events(server.app, "connect", "disconnect")
    chat = await server.connect(cls, id="me", query={"who": "ada"})
    await chat.send("hello")
    await chat.send('{"type":"unknown"}')
    await chat.send('{"type":"cf_agent_chat_request_cancel"}')
    await chat.send(b"\x00\x01")
    await chat.send('{"type":"cf_agent_chat_clear"}')
    await chat.settled()
    assert chat.other == ["welcome"]
    await chat.close(4001, "bye")
    await gone.wait()
    assert seen == [
        ("connect", "me"),
        ("ada", "hello"),
        ("ada", '{"type":"unknown"}'),
        ("ada", '{"type":"cf_agent_chat_request_cancel"}'),
        ("ada", b"\x00\x01"),
        ("close", 4001, "bye"),
    ]
    await server.app.events.drain()
    assert [event.type for event in events] == ["connect", "disconnect"]


async def test_a_message_hook_that_raises_hurts_nobody(serve: Serve) -> None:
    def on_message(self: Any, connection: Any, message: Any) -> None:
        raise RuntimeError("no")

    cls = assistant(ScriptedModel(says("Fine.")), on_message=on_message)
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.send("boo")
    await chat.until_done(await chat.say("Hi"))
    assert chat.text == "Fine."


async def test_a_connect_hook_that_raises_closes_with_1011(serve: Serve) -> None:
    def on_connect(self: Any, connection: Any, request: Any) -> None:
        if request.query_params.get("boom"):
            raise RuntimeError("not you")

    cls = assistant(ScriptedModel(says("Hi.")), on_connect=on_connect)
    server = await serve(cls)
    chat = await server.connect(cls, query={"boom": "1"})
    assert await chat.until_closed() == (1011, "Uncaught exception during session setup")
    assert chat.other == [json.dumps({"error": UNTOLD}, separators=(",", ":"))]
    fine = await server.connect(cls)
    await fine.until_done(await fine.say("Hello"))
    assert (await live(server.app.agent(cls, "room"))).connections[0].id
    assert len((await live(server.app.agent(cls, "room"))).connections) == 1


async def test_a_connection_without_an_id_gets_one(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    for query in ({}, {"_pk": ""}):
        await (await server.connect(cls, query=query)).settled()
    ids = [c.id for c in (await live(server.app.agent(cls, "room"))).connections]
    assert len(set(ids)) == 2
    assert all(ids)


async def test_broadcast_and_close_from_code(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await asyncio.gather(one.settled(), two.settled())
    agent = await live(server.app.agent(cls, "room"))
    agent.broadcast("to b", without=["a"])
    await two.until(lambda: two.other == ["to b"])
    await one.settled()
    assert one.other == []
    for connection in agent.connections:
        connection.close(4003, "out")
        connection.send("never")
    assert await one.until_closed() == (4003, "out")
    assert await two.until_closed() == (4003, "out")
    assert two.other == ["to b"]


async def test_a_broadcast_leaves_out_the_connection_itself_as_well_as_its_id(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await asyncio.gather(one.settled(), two.settled())
    agent = await live(server.app.agent(cls, "room"))
    agent.broadcast("to b", without=[next(c for c in agent.connections if c.id == "a")])
    await two.until(lambda: two.other == ["to b"])
    await one.settled()
    assert one.other == []


@pytest.mark.parametrize(
    ("given", "sent", "words"),
    [
        ((200, "out"), (1008, "out"), "connection.close(200) is no code that may be sent"),
        ((1006,), (1008, ""), "connection.close(1006)"),
        (("4003", "out"), (1008, "out"), "connection.close('4003')"),
        ((4003, "é" * 100), (4003, "é" * 61), "has 200 bytes; 123 are sent"),
    ],
    ids=repr,
)
async def test_a_goodbye_that_cannot_be_sent_closes_all_the_same_and_is_told(
    serve: Serve, caplog: pytest.LogCaptureFixture, given: Any, sent: Any, words: str
) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.settled()
    (connection,) = (await live(server.app.agent(cls, "room"))).connections
    connection.close(*given)
    assert await chat.until_closed() == sent
    assert words in caplog.text


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (
            "on_connect",
            "on_connect returned False, a bool. Return nothing, or None. To refuse somebody, use App(",
        ),
        (
            "on_message",
            "on_message returned False, a bool. Return nothing, or None. To answer, use connection.send",
        ),
    ],
)
async def test_what_a_hook_of_a_connection_returns_is_told_as_read_by_nobody(
    serve: Serve, caplog: pytest.LogCaptureFixture, hook: str, words: str
) -> None:
    cls = assistant(ScriptedModel(), **{hook: lambda self, *given: False})
    server = await serve(cls)
    for _ in range(2):
        chat = await server.connect(cls)
        await chat.send("hello")
        await chat.settled()
    assert caplog.text.count(words) == 1


async def test_agents_do_not_hear_each_other(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Only here.")))
    server = await serve(cls)
    here, there = await server.connect(cls, "here"), await server.connect(cls, "there")
    await here.until_done(await here.say("Hi"))
    await there.settled()
    assert there.of("use_chat_response") == []
    assert there.messages == []


async def test_a_server_that_stops_closes_with_1012(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Half").then_hangs()))
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.say("Go")
    await chat.until_text("Half")
    await server.stop()
    assert (await chat.until_closed())[0] == 1012


async def test_an_app_that_is_closed_closes_its_sockets_with_1012(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.settled()
    await server.app.close()
    assert (await chat.until_closed())[0] == 1012


async def test_an_agent_that_cannot_start_closes_with_1011(serve: Serve) -> None:
    async def on_start(self: Any, props: Any = None) -> None:
        raise RuntimeError("secret")

    cls = assistant(ScriptedModel(), on_start=on_start)
    server = await serve(cls)
    chat = await server.connect(cls)
    code, reason = await chat.until_closed()
    assert code == 1011
    assert "secret" not in reason
    assert (await server.http("/agents/assistant/room", method="POST")).status == 500
