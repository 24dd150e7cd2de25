"""What connected clients are told about an agent's MCP servers: `cf_agent_mcp_servers`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.mcp_stack import Assistant, Serving, Stack, calculator, state_of

from everthink.testing import ManualClock

pytestmark = pytest.mark.anyio

NOTHING = {"servers": {}, "tools": [], "prompts": [], "resources": []}


@pytest.fixture
async def stack(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Stack]:
    async with Stack(f"sqlite:///{tmp_path}/app.db", ManualClock()) as stack:
        yield stack


@pytest.fixture
async def serving(anyio_backend: str) -> AsyncIterator[Serving]:
    async with Serving() as serving:
        yield serving


async def test_who_connects_is_told_at_once_also_that_there_are_none(stack: Stack) -> None:
    chat = await stack.connect()

    assert (await chat.until_frame("mcp_servers"))["mcp"] == NOTHING


@pytest.mark.agent_case(220, 242)
async def test_everybody_is_told_how_a_server_stands_and_what_it_offers(
    stack: Stack, serving: Serving
) -> None:
    chat, other = await stack.connect(), await stack.connect()
    await other.until_frame("mcp_servers")

    await stack.add(chat, "My Sums", serving.url, id="sums")
    await other.until(lambda: state_of(other, "sums") == "ready")

    told = other.of("mcp_servers")[-1]["mcp"]
    assert told["servers"] == {
        "sums": {
            "name": "My Sums",
            "server_url": serving.url,
            "auth_url": None,
            "state": "ready",
            "error": None,
            "instructions": None,
            "capabilities": told["servers"]["sums"]["capabilities"],
        }
    }
    assert "tools" in told["servers"]["sums"]["capabilities"]
    [tool] = told["tools"]
    assert (tool["name"], tool["serverId"], tool["inputSchema"]["type"]) == ("add", "sums", "object")
    assert not {"hash", "read_only", "destructive"} & tool.keys()
    await chat.until(lambda: chat.of("mcp_servers")[-1]["mcp"] == told)


async def test_after_a_restart_the_tools_are_told_before_the_server_has_answered(
    stack: Stack, serving: Serving
) -> None:
    await stack.add(await stack.connect(), "sums", serving.url, id="sums")

    await stack.restart()
    chat = await stack.connect()

    first = (await chat.until_frame("mcp_servers"))["mcp"]
    assert first["servers"]["sums"]["state"] != "ready"
    assert [tool["name"] for tool in first["tools"]] == ["add"]
    await chat.until(lambda: state_of(chat, "sums") == "ready")


async def test_servers_of_the_app_are_told_beside_the_agent_s_own(tmp_path: Path, serving: Serving) -> None:
    async with Stack(f"sqlite:///{tmp_path}/app.db", mcp_servers={"Shared": calculator()}) as stack:
        chat = await stack.connect()
        await chat.until(lambda: state_of(chat, "shared") == "ready")

        await stack.add(chat, "mine", serving.url, id="mine")
        await chat.until(lambda: state_of(chat, "mine") == "ready")

        told = chat.of("mcp_servers")[-1]["mcp"]
        assert list(told["servers"]) == ["mine", "shared"]
        assert [tool["serverId"] for tool in told["tools"]] == ["mine", "shared"]
        listed = (await chat.call("servers"))[-1]["result"]
        assert [(one["id"], one["is_shared"]) for one in listed] == [("mine", False), ("shared", True)]


async def test_a_key_in_an_address_or_a_header_is_told_to_nobody(stack: Stack, serving: Serving) -> None:
    chat = await stack.connect()
    agent = await stack.live()

    server = await agent.add_mcp_server(
        "sums", f"{serving.url}?api_key=0a1b2c3d4e5f", headers={"X-Team-Key": "9z8y7x6w5v"}
    )
    await chat.until(lambda: state_of(chat) == "ready")

    assert serving.heads[-1]["x-team-key"] == "9z8y7x6w5v"
    for seen in (json.dumps(chat.frames), repr(stack.events), repr(server.auth_url)):
        assert not [secret for secret in ("0a1b2c3d4e5f", "9z8y7x6w5v") if secret in seen]
    assert f"{serving.url}?api_key=***" in json.dumps(chat.frames)


class Quiet(Assistant):
    """Tells some clients nothing of its protocol."""

    def should_send_protocol_messages(self, connection: Any, request: Any) -> bool:
        return connection.id != "bare"


async def test_who_wants_no_protocol_is_told_nothing(tmp_path: Path, serving: Serving) -> None:
    async with Stack(f"sqlite:///{tmp_path}/app.db", ManualClock(), agent=Quiet) as stack:
        chat, bare = await stack.connect(), await stack.connect(id="bare")

        await stack.add(chat, "sums", serving.url)
        await chat.until(lambda: state_of(chat) == "ready")
        await bare.settled()

        assert bare.of("mcp_servers") == []
