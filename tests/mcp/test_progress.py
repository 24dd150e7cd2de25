"""How far a call of an MCP server's tool is: shown now and then, however often the server says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from tests.conftest import OpenApp
from tests.mcp.room import Room, room
from tests.mcp.serving import until

from everthink.abort import AbortController
from everthink.mcp import LocalServer
from everthink.mcp.calls import BETWEEN_SHOWN, Progress
from everthink.testing import ManualClock, calls, says

pytestmark = pytest.mark.anyio

MANY = 500


class Chatty:
    """A server whose tool says how far it is `MANY` times at once, waits, and does so again."""

    def __init__(self) -> None:
        self.server = MCPServer("chatty", log_level="CRITICAL")
        self.said, self.go = asyncio.Event(), asyncio.Event()
        self.server.add_tool(self.work, name="work", description="Work.", structured_output=False)

    async def work(self, ctx: Context) -> str:
        for number in range(1, MANY + 1):
            await ctx.report_progress(number)
        self.said.set()
        await self.go.wait()
        for number in range(MANY + 1, 2 * MANY + 1):
            await ctx.report_progress(number)
        return "done"


class Watched:
    """A turn that calls the tool, and what of it is shown."""

    def __init__(self, chat: Room) -> None:
        self.shown: list[Any] = []
        self.controller = AbortController()
        chat.model.add(calls("docs_work"), says("Done."))
        self.turn = asyncio.create_task(self._follow(chat))

    async def _follow(self, chat: Room) -> None:
        async for chunk in chat.agent.chat("Go on.", signal=self.controller.signal):
            if chunk.type == "tool-output-available":
                value = chunk.output["progress"] if chunk.preliminary else chunk.output
                self.shown.append(value)


async def test_progress_is_shown_a_few_times_a_second_and_the_last_of_it_always(open_app: OpenApp) -> None:
    server, clock = Chatty(), ManualClock()
    watched = Watched(await room(open_app, {"docs": LocalServer(server.server)}, clock=clock))

    # Something is shown at once, the newest a moment later
    await until(lambda: watched.shown)
    await server.said.wait()
    assert len(watched.shown) == 1
    rounds = 0
    while watched.shown[-1] != MANY:
        await clock.advance(BETWEEN_SHOWN)
        rounds += 1
    assert len(watched.shown) <= 1 + rounds

    # At the end the last is shown before the result, though no time has passed
    before = len(watched.shown)
    server.go.set()
    await watched.turn
    assert watched.shown[-2:] == [2 * MANY, "done"]
    assert len(watched.shown) <= before + 2 + 1


async def test_a_call_that_is_cancelled_shows_nothing_more_and_leaves_nothing_behind(
    open_app: OpenApp,
) -> None:
    server, clock = Chatty(), ManualClock()
    watched = Watched(await room(open_app, {"docs": LocalServer(server.server)}, clock=clock))
    await server.said.wait()
    await until(lambda: watched.shown)
    before = list(watched.shown)

    watched.controller.abort()
    await watched.turn

    assert watched.shown == before
    await until(lambda: not _showing())


async def test_progress_that_cannot_be_shown_is_logged_and_costs_no_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def show(value: Any) -> None:
        raise RuntimeError("nobody looks")

    async with Progress(show, ManualClock()) as progress:
        progress.take({"progress": 1})

    assert "nobody looks" in caplog.text
    assert not _showing()


def _showing() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "progress of an MCP tool"]
