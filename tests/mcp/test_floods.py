"""A server that answers with more than can be read at once, or asks without end: nobody waits for it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.conftest import OpenApp
from tests.mcp.room import room
from tests.mcp.small_server import SmallServer

from everthink.mcp import HttpServer
from everthink.mcp.transports import MOST_ASKED
from everthink.testing.in_process_server import Listening

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MANY = [{"type": "text", "text": "x"}] * 20_000
DEEP: Any = None
for _ in range(200):
    DEEP = [DEEP]
ANSWERS = {
    "many parts": ({"content": MANY}, "holds more than 80000 values"),
    "many values": (
        {"content": [], "structuredContent": {"a": [[]] * 90_000}},
        "holds more than 80000 values",
    ),
    "slow numbers": (
        {"content": [], "structuredContent": {"a": [1e300] * 400}},
        "numbers that are slow to read",
    ),
    "depth": ({"content": [], "structuredContent": {"a": DEEP}}, "nested deeper than 128 levels"),
}


def servers_at(place: Listening) -> dict[str, Any]:
    return {"docs": HttpServer(f"http://{place.host}/mcp")}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("kind", ANSWERS)
async def test_an_answer_with_too_much_in_it_is_not_read(
    open_app: OpenApp, kind: str, is_stream: bool
) -> None:
    server, (result, words) = SmallServer(), ANSWERS[kind]
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))
        good = server.result
        server.before = [] if is_stream else None
        server.result = result
        error = await chat.error("docs_act")
        assert words in error or is_stream, error
        assert error.endswith("It may or may not have taken effect."), error
        # And the next call works
        server.result = good
        assert await chat.output("docs_act") == "acted"


async def test_much_in_a_stream_is_let_in_as_long_as_no_event_is_too_much(open_app: OpenApp) -> None:
    server = SmallServer()
    note = {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {"level": "info", "data": MANY[:900]},
    }
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))
        server.before = [note] * 40
        assert await chat.output("docs_act") == "acted"


async def test_a_server_that_asks_without_end_is_answered_some_and_fills_no_log(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    server = SmallServer(sessions=True)
    asks = [
        {
            "jsonrpc": "2.0",
            "id": f"s{n}",
            "method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 1},
        }
        for n in range(2_000)
    ]
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))
        server.before = asks
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            await chat.output("docs_act")
        said = [record.getMessage() for record in caplog.records]
    assert said == ["the MCP server docs asks too much: not all of it is answered"]
    # Each answer of ours is a message to it without a method, which it notes as a POST.
    assert server.asked.count("POST") <= MOST_ASKED
