"""What a tool of an MCP server asks a person: kept over restarts, or live for an older server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from tests.conftest import OpenApp
from tests.support.node import free_port, serving

from everthink import Think
from everthink.mcp.transports import Connector
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.in_process_server import Listening

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parent / "asking_server.py"


def traveller(*plays: Any) -> type[Think]:
    class Traveller(Think):
        model = ScriptedModel(*plays)
        wait_for_mcp_connections = True

    return Traveller


def tool_parts(messages: Any) -> list[dict[str, Any]]:
    return [part for message in messages for part in message.parts if "toolCallId" in part]


# --- protocol of 2026: the question is an answer, and goes on elsewhere


@pytest.fixture
def booked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOOKED", str(tmp_path / "booked"))
    return tmp_path / "booked"


def lines(booked: Path) -> list[str]:
    return booked.read_text().splitlines() if booked.exists() else []


def asking(port: int, log: Path) -> Any:
    return serving([sys.executable, str(SERVER), str(port)], port, log)


@pytest.mark.slow
@pytest.mark.parametrize("asks", ["How many seats to", "How many dear seats to"], ids=["same", "other"])
async def test_an_answer_counts_for_a_server_that_has_begun_anew_if_it_asks_the_very_same(
    open_app: OpenApp, booked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    monkeypatch.setenv("FORGETS", "1")
    cls, port = traveller(calls("asks_book", city="Rome"), says("Booked.")), free_port()
    app = await open_app(cls, mcp_servers={"asks": f"http://127.0.0.1:{port}/mcp"})
    agent = app.agent(cls)
    with asking(port, tmp_path / "first.log"):
        await agent.save_messages("A trip to Rome")
    monkeypatch.setenv("ASKS", asks)
    with asking(port, tmp_path / "second.log"):
        (part,) = tool_parts(await agent.get_messages())
        answer = {"action": "accept", "content": {"seats": 2}}
        await agent.apply_tool_result(part["toolCallId"], answer)
        await agent.continue_last_turn()
        (part,) = tool_parts(await agent.get_messages())
    if asks == "How many seats to":
        assert lines(booked) == ["2 seats to Rome"]
        assert "Booked 2 seats to Rome." in str(part["output"])
    else:  # a yes to other words is none
        assert lines(booked) == []
        assert part["approval"]["descriptor"]["forms"]["seats"]["message"] == "How many dear seats to Rome?"


@pytest.mark.slow
@pytest.mark.agent_case(248)
async def test_a_question_of_a_server_outlives_both_sides(
    open_app: OpenApp, booked: Path, tmp_path: Path
) -> None:
    cls, port = traveller(calls("asks_book", city="Rome"), says("Booked.")), free_port()
    servers = {"asks": f"http://127.0.0.1:{port}/mcp"}
    with asking(port, tmp_path / "first.log"):
        app = await open_app(cls, mcp_servers=servers)
        async with Listening(app) as server:
            tab = await server.connect(cls, "room")
            await tab.until_done(await tab.say("A trip to Rome"))
            (part,) = tool_parts(tab.messages)
        assert part["approval"]["descriptor"]["forms"]["seats"]["message"] == "How many seats to Rome?"
        assert "city=" not in str(part)  # what the server keeps for itself is nobody's business
        await app.close()

    # When both have been restarted, and somebody answers on a page
    with asking(port, tmp_path / "second.log"):
        app = await open_app(cls, mcp_servers=servers)
        async with Listening(app) as server:
            tab = await server.connect(cls, "room")
            await tab.answer(
                part["toolCallId"], {"action": "accept", "content": {"seats": 2}}, autoContinue=True
            )
            await tab.until(lambda: tab.text.endswith("Booked."))
            (part,) = tool_parts(tab.messages)

    assert lines(booked) == ["2 seats to Rome"]
    assert "Booked 2 seats to Rome." in str(part["output"])


@pytest.mark.slow
@pytest.mark.agent_case(249)
async def test_a_person_declines_and_the_server_hears_of_it(
    open_app: OpenApp, booked: Path, tmp_path: Path
) -> None:
    cls, port = traveller(calls("asks_book", city="Rome"), says("Well then.")), free_port()
    with asking(port, tmp_path / "server.log"):
        app = await open_app(cls, mcp_servers={"asks": f"http://127.0.0.1:{port}/mcp"})
        agent = app.agent(cls)
        await agent.save_messages("A trip to Rome")
        (part,) = tool_parts(await agent.get_messages())
        await agent.apply_tool_result(part["toolCallId"], {"action": "decline"})
        await agent.continue_last_turn()
        (part,) = tool_parts(await agent.get_messages())
    assert "Nothing was booked: decline." in str(part["output"])
    assert lines(booked) == []


# --- older servers: the question is asked in the middle of the call


class Seats(BaseModel):
    seats: int


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> MCPServer:
    """A server in this process that is spoken to in the protocol of 2025."""
    server = MCPServer("older")

    @server.tool()
    async def book(city: str, ctx: Context) -> str:
        """Book a trip."""
        answer = await ctx.elicit(f"How many seats to {city}?", Seats)
        if answer.action != "accept":
            return f"Nothing was booked: {answer.action}."
        return f"Booked {answer.data.seats} seats."

    client = Connector._client

    def of_2025(connector: Connector, server: Any) -> Any:
        made = client(connector, server)
        made.mode = "legacy"
        return made

    monkeypatch.setattr(Connector, "_client", of_2025)
    return server


async def test_an_older_server_is_answered_while_its_call_runs(open_app: OpenApp, older: MCPServer) -> None:
    cls = traveller(calls("older_book", city="Oslo"), says("Booked."))
    app = await open_app(cls, mcp_servers={"older": older})
    async with Listening(app) as server:
        tab = await server.connect(cls, "room")
        watching = await server.connect(cls, "room")
        request = await tab.say("A trip to Oslo")
        agent = await app.agent(cls, "room").__aenter__()
        await tab.until(lambda: agent._home.chat.host.questions)
        # What does not fit is not taken, from whichever tab
        await watching.answer("call_1", {"action": "accept", "content": {"seats": "x"}}, autoContinue=True)
        await watching.answer("call_1", {"action": "accept", "content": {"seats": 3}}, autoContinue=True)
        await tab.until_done(request)
        await tab.settled()
        (part,) = tool_parts(tab.messages)

    assert "Booked 3 seats." in str(part["output"])
    # One turn did it all: nothing was continued afterwards
    assert len(cls.model.requests) == 2


async def test_an_older_server_that_nobody_answers_is_told_no(open_app: OpenApp, older: MCPServer) -> None:
    cls, clock = traveller(calls("older_book", city="Oslo"), says("Well then.")), ManualClock()
    app = await open_app(cls, mcp_servers={"older": older}, clock=clock)
    agent = await app.agent(cls).__aenter__()
    turn = asyncio.ensure_future(agent.save_messages("A trip to Oslo"))
    async with asyncio.timeout(10):
        while not agent._home.chat.host.questions:  # noqa: ASYNC110 - it is a field of ours
            await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)  # until it waits for the clock, too
    await clock.advance(301)
    await turn
    (part,) = tool_parts(await agent.get_messages())
    assert "Nothing was booked: decline." in str(part["output"])
