"""A client that cancels, and one that is gone: only the first stops what it asked for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import Agent, Think, exposed, tool
from everthink.testing import ScriptedModel, calls, says

from ..security.doors import by_header
from ..support.agents import assistant
from ..support.mcp import HEADERS, client_of, in_answer, post, texts
from ..support.turns import Database
from .conftest import Serve
from .test_bounds import INITIALIZE

pytestmark = pytest.mark.anyio

ASK = {"message": "Hi", "conversation": "room"}
CALL = {"name": "ask_assistant", "arguments": ASK}


async def test_a_connection_that_is_lost_does_not_stop_the_turn(serve: Serve, tmp_path: Any) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("It goes ").waits(gate).says("on."))
    server = await serve(assistant(model))
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL})
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"POST /mcp HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    await model.until_silent()
    writer.transport.abort()

    async with client_of(server) as client:
        gate.set()
        looked = await client.call_tool("ask_assistant", {"conversation": "room"})

    assert texts(looked) == ["It goes on."]
    assert Database(tmp_path).statuses() == ["completed"]


async def test_a_client_of_the_newest_revision_cannot_say_that_it_cancels_so_the_turn_goes_on(
    serve: Serve, tmp_path: Any
) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("It goes ").waits(gate).says("on."))
    server = await serve(assistant(model))
    async with client_of(server, mode="2026-07-28") as client:
        asking = asyncio.create_task(client.call_tool("ask_assistant", ASK))
        await model.until_silent()
        asking.cancel()
        await asyncio.wait([asking])
        gate.set()
        looked = await client.call_tool("ask_assistant", {"conversation": "room"})

    assert texts(looked) == ["It goes on."]
    assert Database(tmp_path).statuses() == ["completed"]


async def test_a_client_that_says_it_cancels_stops_the_turn(serve: Serve, tmp_path: Any) -> None:
    model = ScriptedModel(says("It goes ").then_hangs())
    server = await serve(assistant(model))
    async with client_of(server, mode="legacy") as client:
        asking = asyncio.create_task(client.call_tool("ask_assistant", ASK))
        await model.until_silent()
        asking.cancel()
        await model.until_cut_off()
        looked = await client.call_tool("ask_assistant", {"conversation": "room"})

    assert texts(looked)[0] == "It goes "
    assert looked.structured_content["status"] == "aborted"
    assert Database(tmp_path).statuses() == ["aborted"]
    assert Database(tmp_path).turns()[0]["error"] == "The MCP client cancelled its request."


async def test_a_turn_that_was_stopped_in_a_tool_waits_for_nobody(serve: Serve) -> None:
    begun = asyncio.Event()

    class Slow(Think):
        model = ScriptedModel(calls("dig"))

        @tool
        async def dig(self) -> str:
            """Dig, for ever."""
            begun.set()
            await asyncio.Event().wait()
            return "dug"

    server = await serve(Slow)
    async with client_of(server, mode="legacy") as client:
        asking = asyncio.create_task(client.call_tool("ask_slow", ASK))
        await begun.wait()
        await server.app.agent(Slow, "room").abort_all_requests()
        await asyncio.wait([asking])
        looked = await client.call_tool("ask_slow", {"conversation": "room"})

    assert looked.structured_content["status"] == "aborted"
    assert "waits_for" not in looked.structured_content


async def test_nobody_cancels_the_request_of_another(serve: Serve) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("It goes ").waits(gate).says("on."))
    server = await serve(assistant(model), authenticate=by_header)
    hello = await post(server, "initialize", INITIALIZE, X_Token="ada")
    session = hello.headers["mcp-session-id"]
    asking = asyncio.create_task(
        post(server, "tools/call", CALL, id=7, X_Token="ada", Mcp_Session_Id=session)
    )
    await model.until_silent()

    cancel = {"requestId": 7}
    for who in (
        {"X_Token": "bob", "Mcp_Session_Id": session},
        {"X_Token": "ada", "Mcp_Session_Id": "0" * 32},
        {"X_Token": "ada"},
    ):
        assert (await post(server, "notifications/cancelled", cancel, id=None, **who)).status == 202
    gate.set()

    assert in_answer(await asking)["result"]["structuredContent"]["text"] == "It goes on."


async def test_who_may_not_cancel_stops_nothing(serve: Serve) -> None:
    gate = asyncio.Event()
    model = ScriptedModel(says("It goes ").waits(gate).says("on."))
    server = await serve(assistant(model), authorize=lambda who, what, agent: ["ask"])
    hello = await post(server, "initialize", INITIALIZE)
    session = {"Mcp_Session_Id": hello.headers["mcp-session-id"]}
    asking = asyncio.create_task(post(server, "tools/call", CALL, id=7, **session))
    await model.until_silent()

    await post(server, "notifications/cancelled", {"requestId": 7}, id=None, **session)
    gate.set()

    assert in_answer(await asking)["result"]["structuredContent"]["text"] == "It goes on."


async def test_a_method_goes_on_when_its_caller_has_left_and_is_stopped_when_they_cancel(
    serve: Serve,
) -> None:
    begun, ended = asyncio.Event(), asyncio.Queue[str]()

    class Desk(Agent):
        @exposed
        async def wait(self, gate: str) -> None:
            begun.set()
            try:
                if gate == "open":
                    await asyncio.sleep(0.05)
                else:
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.put_nowait("stopped")
                raise
            ended.put_nowait("over")

    server = await serve(Desk, mcp={"exposed": True})
    for mode, gate in (("2026-07-28", "open"), ("legacy", "shut")):
        begun.clear()
        async with client_of(server, mode=mode) as client:
            calling = asyncio.create_task(client.call_tool("desk_wait", {"name": "x", "gate": gate}))
            await begun.wait()
            calling.cancel()
            await asyncio.wait([calling])
            assert await asyncio.wait_for(ended.get(), 5) == ("over" if gate == "open" else "stopped")
