"""Servers that an agent adds in its `on_start`: whatever they do, the agent starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from tests.support.mcp_stack import Assistant, Serving, Stack, state_of

from everthink.errors import BlockedAddress
from everthink.testing import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def serving(anyio_backend: str) -> AsyncIterator[Serving]:
    async with Serving() as serving:
        yield serving


def starting(url: str) -> type[Any]:
    """An agent that says at every start which server it has."""

    class Starter(Assistant):
        added: Any = None

        async def on_start(self, props: Any = None) -> None:
            type(self).added = await self.add_mcp_server("sums", url, id="sums")

    return Starter


async def unavailable(request: Request, said: dict[str, Any]) -> Response:
    return Response("away", 503)


async def hanging(request: Request, said: dict[str, Any]) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "trouble", [pytest.param(unavailable, id="is away"), pytest.param(hanging, id="hangs")]
)
async def test_a_server_that_is_known_and_does_not_answer_keeps_no_agent_from_starting(
    tmp_path: Path, serving: Serving, trouble: Any
) -> None:
    # Given an agent that adds a server at every start, and has used it
    agent = starting(serving.url)
    async with Stack(f"sqlite:///{tmp_path}/app.db", ManualClock(), agent) as stack:
        await stack.live()
        assert agent.added.state == "ready"

        # When it starts again and the server does not answer
        serving.before = trouble
        await stack.restart()
        chat = await stack.connect()
        live = await stack.live()

        # Then it is there, without a wait, and knows what the server offers
        assert agent.added.state in ("connecting", "failed")
        assert agent.added.tools == ("sums_add",)
        assert "sums_add" in await live._home.mcp.tools()
        # And the server is used once it answers
        if trouble is unavailable:
            await chat.until(lambda: state_of(chat, "sums") == "failed")
            serving.before = None
            await stack.clock.advance(5)
            await chat.until(lambda: state_of(chat, "sums") == "ready")
            assert await live.call_mcp_tool("sums", "add", {"a": 1, "b": 2}) == {"result": 3}


async def test_a_new_server_that_does_not_answer_keeps_no_agent_from_starting(
    tmp_path: Path, serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    serving.before = unavailable
    agent = starting(serving.url)
    async with Stack(f"sqlite:///{tmp_path}/app.db", ManualClock(), agent) as stack:
        await stack.live()

        assert (agent.added.state, agent.added.error) == ("failed", "It answered 503.")
        [told] = [one for one in caplog.records if one.levelno == logging.WARNING]
        assert "Starter/room: the MCP server sums does not answer: It answered 503." in told.getMessage()


async def test_what_can_never_be_a_server_fails_the_start(tmp_path: Path) -> None:
    agent = starting("http://169.254.169.254/mcp")
    async with Stack(f"sqlite:///{tmp_path}/app.db", ManualClock(), agent) as stack:
        with pytest.raises(BlockedAddress):
            await stack.live()
