"""What comes over each transport, and what becomes of servers that answer strangely."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OpenApp
from tests.mcp.offering import offering
from tests.mcp.room import Room, room
from tests.mcp.serving import Serving, deeds, stdio, until
from tests.mcp.small_server import SmallServer

from everthink.abort import AbortController
from everthink.mcp import HttpServer, LocalServer
from everthink.testing import calls, says
from everthink.testing.in_process_server import Listening

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KINDS = ("local", "stream", "stateless", "sessions", "sse", "stdio")
STREAMS = tuple(kind for kind in KINDS if kind != "stateless")
"""Those by which something may come before the answer, and by which a server hears that nobody waits."""


@pytest.fixture
async def chat(request: Any, serving: Serving, open_app: OpenApp, tmp_path: Path) -> AsyncIterator[Room]:
    """A room with a server of the kind that a test names."""
    if request.param == "local":
        place: Any = LocalServer(offering(tmp_path))
    elif request.param == "stdio":
        place = stdio(tmp_path)
    else:
        place = serving.start(request.param, tmp_path).place()
    return await room(open_app, {"docs": place})


def over(*kinds: str) -> Any:
    return pytest.mark.parametrize("chat", kinds, indirect=True)


@over(*KINDS)
async def test_results_of_every_kind_come_over_every_transport(chat: Room) -> None:
    assert await chat.output("docs_echo", text="hi") == "You said: hi"
    assert await chat.output("docs_weather", city="Rome") == {"city": "Rome", "degrees": 21}
    found = await chat.output("docs_everything")
    assert [part["type"] for part in found["value"]] == ["text", "file", "file", "text", "text"]
    assert found["value"][1]["mediaType"] == "image/png"
    assert found["value"][2]["url"] == "data:audio/wav;base64,UklGRg=="
    assert found["value"][3]["text"] == "[resource today: note://today (text/plain)]"
    assert found["value"][4]["text"] == "[resource note://today]\nBuy milk."
    assert "no such thing" in await chat.error("docs_fail", words="no such thing")


@over(*KINDS)
async def test_prompts_and_resources_are_read_over_every_transport(chat: Room) -> None:
    async with chat.agent as agent:
        messages = await agent.get_mcp_prompt("docs", "greet", {"name": "Ada"})
        found = await agent.read_mcp_resource("docs", "note://monday/all")
        listing = await agent.get_mcp_servers()

    assert messages == [{"role": "user", "content": {"type": "text", "text": "Greet Ada."}}]
    assert [one["text"] for one in found] == ["Nothing on monday."]
    assert listing["servers"]["docs"]["instructions"] == "Be kind."
    assert [one["name"] for one in listing["prompts"]] == ["greet"]
    assert [one["uri"] for one in listing["resources"]] == ["note://today"]


@over(*STREAMS)
async def test_progress_is_shown_as_preliminary_results(chat: Room) -> None:
    chat.model.add(calls("docs_count", to=3), says("Done."))

    shown = [
        (chunk.output, bool(chunk.preliminary))
        async for chunk in chat.agent.chat("Go on.")
        if chunk.type == "tool-output-available"
    ]

    assert shown[-2:] == [
        ({"progress": 3.0, "total": 3.0, "message": "at 3"}, True),
        ("counted to 3", False),
    ]


@over(*STREAMS)
async def test_a_cancelled_turn_stops_the_call_at_the_server_and_nothing_else(
    chat: Room, tmp_path: Path
) -> None:
    # Given a call that runs
    controller = AbortController()
    chat.model.add(calls("docs_wait", text="now"))
    turn = asyncio.create_task(chat.agent.save_messages("Go on.", signal=controller.signal))
    await until(lambda: "began now" in deeds(tmp_path))
    link = await chat.link()
    client = link._client

    # When the turn is cancelled
    controller.abort()

    # Then the server stops as well
    assert (await turn).status == "aborted"
    await until(lambda: "cancelled now" in deeds(tmp_path), "the server was never told")
    # And the same connection serves the next call
    assert await chat.output("docs_echo", text="after") == "You said: after"
    assert link._client is client
    assert not link._calls


@over("local", "stream", "stateless", "sessions", "stdio")
async def test_a_result_of_20_mb_is_cut_and_says_so(chat: Room) -> None:
    found = await chat.output("docs_big", megabytes=20)

    assert len(found) < 1_100_000
    assert found.endswith("[cut: this text has 20,000,000 characters]")


@pytest.mark.parametrize(
    ("chat", "megabytes"), [("stream", 40), ("stateless", 40), ("sse", 2), ("stdio", 40)], indirect=["chat"]
)
async def test_an_answer_that_is_larger_than_any_is_not_read(chat: Room, megabytes: int) -> None:
    told = await chat.error("docs_big", megabytes=megabytes)

    assert "may or may not have taken effect" in told
    assert await chat.output("docs_echo", text="after") == "You said: after"


@over("sessions")
async def test_what_a_server_does_not_have_is_an_error_in_its_words(chat: Room) -> None:
    async with chat.agent as agent:
        with pytest.raises(Exception, match="nosuch"):
            await agent.call_mcp_tool("docs", "nosuch")
        with pytest.raises(Exception, match="nosuch"):
            await agent.get_mcp_prompt("docs", "nosuch")
    assert "There is no tool 'docs_nosuch'" in await chat.error("docs_nosuch")
    assert await chat.output("docs_echo", text="after") == "You said: after"


# --- which transport


@pytest.mark.agent_case(215)
async def test_a_server_that_only_has_events_is_found_by_auto_alone(
    serving: Serving, open_app: OpenApp, tmp_path: Path
) -> None:
    server = serving.start("sse", tmp_path)

    servers = {"found": server.place(), "missed": server.place(transport="streamable-http")}
    chat = await room(open_app, servers, members={"wait_for_mcp_connections": False})
    await chat.offered()

    assert await told(chat, "missed") == "No MCP server is there: it answered 405."
    found = await chat.server("found")
    await until(lambda: "found_echo" in found.tools())


async def told(chat: Room, name: str = "docs") -> str | None:
    """Why a server cannot be reached."""
    link = await chat.link(name)
    await until(lambda: link.state == "failed")
    return link.error


def servers_at(place: Listening) -> dict[str, Any]:
    return {"docs": HttpServer(f"http://127.0.0.1:{place.port}/mcp")}


class Strange:
    """A server that answers everything with one status, and keeps what it was asked."""

    def __init__(self, status: int) -> None:
        self.status, self.asked = status, list[str]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.asked.append(scope["method"])
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})


@pytest.mark.agent_case(211, 215)
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "It wants to know who we are (401): give headers={'Authorization': '…'}."),
        (403, "It answered 403."),
        (500, "It answered 500."),
        (503, "It answered 503."),
    ],
)
async def test_other_refusals_are_told_and_no_other_transport_is_tried(
    open_app: OpenApp, status: int, words: str
) -> None:
    strange = Strange(status)
    async with Listening(strange) as place:
        chat = await room(open_app, servers_at(place), members={"wait_for_mcp_connections": False})

        assert await chat.offered() == []

        assert await told(chat) == words
        assert set(strange.asked) == {"POST"}


async def test_an_address_where_nobody_speaks_either_transport_says_so(open_app: OpenApp) -> None:
    strange = Strange(404)
    async with Listening(strange) as place:
        chat = await room(open_app, servers_at(place), members={"wait_for_mcp_connections": False})

        assert await chat.offered() == []

        assert await told(chat) == "No MCP server is there: it answered 404."
        assert set(strange.asked) == {"POST", "GET"}


@pytest.mark.agent_case(210)
async def test_lists_that_a_server_says_it_has_and_does_not_know_are_empty(open_app: OpenApp) -> None:
    server = SmallServer()
    server.capabilities = {"tools": {}, "prompts": {}, "resources": {}}
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))

        assert await chat.offered() == ["docs_act"]

        assert {"prompts/list", "resources/list"} <= set(server.asked)
        found = (await chat.server()).catalogue
        assert found
        assert (found.prompts, found.resources, found.templates) == ((), (), ())


@pytest.mark.agent_case(210)
async def test_a_server_is_not_asked_for_lists_that_it_does_not_have(open_app: OpenApp) -> None:
    server = SmallServer()
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))

        assert await chat.offered() == ["docs_act"]

        assert server.asked == ["server/discover", "tools/list"]


# --- calls that HTTP refuses


EVIL = {"type": "object", "properties": {"s": {"type": "string", "pattern": "^(a+)+$"}}}
"""A pattern that takes for ever to find out that it does not fit."""


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "The MCP server 'docs' did not take the tool 'act': It answered 429. Nothing was run."),
        (
            503,
            "The MCP server 'docs' went away during the tool 'act': It answered 503."
            " It may or may not have taken effect.",
        ),
    ],
)
async def test_a_call_that_is_refused_by_http_says_whether_it_was_run(
    open_app: OpenApp, status: int, words: str
) -> None:
    server = SmallServer()
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))
        assert await chat.output("docs_act") == "acted"
        server.status = status

        assert await chat.error("docs_act") == words

        assert server.asked.count("tools/call") == 2  # once each: nothing is tried again in the dark


async def test_an_answer_that_breaks_off_fails_that_call_and_no_other(open_app: OpenApp) -> None:
    server = SmallServer()
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))
        await chat.output("docs_act")
        client = (await chat.link())._client
        server.is_cut = True

        assert (await chat.error("docs_act")).endswith("It may or may not have taken effect.")

        server.is_cut = False
        await chat.output("docs_act")
        assert (await chat.link())._client is client


async def test_a_schema_of_a_stranger_is_not_run_on_the_answer_of_a_stranger(open_app: OpenApp) -> None:
    server = SmallServer()
    server.tools[0]["outputSchema"] = EVIL
    server.result["structuredContent"] = {"s": "a" * 60 + "!"}
    async with Listening(server) as place:
        chat = await room(open_app, servers_at(place))

        async with asyncio.timeout(5):
            assert await chat.output("docs_act") == {"s": "a" * 60 + "!"}
