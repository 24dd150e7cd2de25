"""The MCP servers of an agent, as the page sees, adds and removes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from everthink.access.permissions import Permission
from everthink.testing import ScriptedModel, says

from ..support.agents import assistant, live
from ..support.server import Served, served
from .conftest import ROOM, Develop

pytestmark = pytest.mark.anyio

SERVERS = f"{ROOM}/servers"


def offering(name: str = "library") -> Any:
    """An MCP server with a tool, as it is served."""
    server = MCPServer(name)

    @server.tool()
    def find_book(title: str) -> str:  # pyright: ignore[reportUnusedFunction]
        """Find a book."""
        return f"{title} is on shelf 3"

    return server.streamable_http_app()


async def post(server: Served, path: str, **fields: Any) -> Any:
    return await server.http(path, method="POST", body=json.dumps(fields).encode())


async def begun(server: Served) -> None:
    """See that the agent exists: looking does not make it."""
    app = server.app._loaded.app
    await live(app.agent(app.classes[0], "room"))


def told(window: Any) -> dict[str, Any]:
    """How the servers stand, as a window was last told."""
    return window.of("mcp_servers")[-1]["mcp"]["servers"]


def state(window: Any, id: str) -> str | None:
    frames = window.of("mcp_servers")
    return told(window).get(id, {}).get("state") if frames else None


async def test_looking_makes_no_agent_and_an_agent_without_servers_has_none(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    assert (await server.http(SERVERS)).json is None
    assert not (await server.http("/everthink/conversations/assistant")).json["conversations"]
    await begun(server)
    assert (await server.http(SERVERS)).json == []
    assert (await server.http(f"{SERVERS}/library")).status == 404


async def test_a_server_is_added_and_removed_and_every_window_is_told(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("Hello.")))
    server = await develop(cls)
    window = await server.connect(cls)
    async with served(offering()) as library:
        added = await post(server, SERVERS, name=" My  library ", url=f"http://{library.host}/mcp")
        id = added.json["id"]
        assert (added.status, added.json["state"]) == (200, "ready")
        await window.until(lambda: state(window, id) == "ready")
        assert told(window)[id]["name"] == "My library"

        # What only the server knows: whose it is, and how the model calls its tools
        names = {"find_book": "my-library_find_book"}
        assert (await server.http(SERVERS)).json == [{"id": id, "is_shared": False, "names": names}]

        assert (await post(server, f"{SERVERS}/remove", id=id)).status == 200
        await window.until(lambda: not told(window))
    again = await post(server, f"{SERVERS}/remove", id=id)
    assert (again.status, "Nothing was changed" in again.json["error"]) == (404, True)


async def test_a_server_that_does_not_answer_is_kept_and_its_words_say_so(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    async with served(offering()) as gone:
        address = f"http://{gone.host}/mcp"
    refused = await post(server, SERVERS, name="library", url=address)
    assert refused.status == 502
    assert "The server is kept" in refused.json["error"]
    assert len((await server.http(SERVERS)).json) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "x", "url": "stdio:python"},
        {"name": "x", "url": "file:///etc/passwd"},
        {"name": "x", "url": "http://["},
        {"name": "x", "url": "http://169.254.169.254/mcp"},
        {"name": "x", "url": "http://10.0.0.1/mcp"},
        {"name": " ", "url": "https://mcp.example/mcp"},
        {"name": "x" * 65, "url": "https://mcp.example/mcp"},
        {"name": "x"},
        {"name": "x", "url": ["https://mcp.example/mcp"]},
        {"name": "x", "command": "sh"},
    ],
)
async def test_what_is_no_address_of_a_server_is_not_added(develop: Develop, fields: Any) -> None:
    server = await develop(assistant(ScriptedModel()))
    await begun(server)
    refused = await post(server, SERVERS, **fields)
    assert refused.status == 400, refused.json
    assert (await server.http(SERVERS)).json == []


async def test_a_server_of_the_app_is_shown_and_not_removed(develop: Develop) -> None:
    cls = assistant(ScriptedModel())
    async with served(offering(), timeout_graceful_shutdown=0) as library:  # the app outlives it
        places = {"library": {"url": f"http://{library.host}/mcp", "tools": ["find_book"]}}
        server = await develop(cls, mcp_servers=places)
        window = await server.connect(cls)
        await window.until(lambda: state(window, "library") == "ready")

        [shown] = (await server.http(SERVERS)).json
        assert shown == {"id": "library", "is_shared": True, "names": {"find_book": "library_find_book"}}
        refused = await post(server, f"{SERVERS}/remove", id="library")
        assert (refused.status, "one of the app's" in refused.json["error"]) == (409, True)
        assert state(window, "library") == "ready"


async def test_who_may_only_look_changes_nothing(develop: Develop) -> None:
    def permissions(identity: Any, action: str) -> Any:
        return action == "inspect" or frozenset[Permission]()

    server = await develop(assistant(ScriptedModel()), authorize=permissions)
    await begun(server)
    for path in (SERVERS, f"{SERVERS}/remove"):
        refused = await post(server, path, name="x", url="https://mcp.example/mcp", id="x")
        assert (refused.status, "not change it" in refused.json["error"]) == (403, True)
    assert (await server.http(SERVERS)).json == []


async def test_another_site_adds_nothing(develop: Develop) -> None:
    server = await develop(assistant(ScriptedModel()))
    await begun(server)
    body = b'{"name": "x", "url": "https://mcp.example/mcp"}'
    sent = await server.http(SERVERS, method="POST", headers={"Origin": "http://evil.example"}, body=body)
    assert sent.status == 403
    assert (await server.http(SERVERS)).json == []
