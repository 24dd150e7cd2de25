"""One link: how long it waits, how often it tries, what it asks twice, and what it leaves behind."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from tests.conftest import OpenApp
from tests.mcp.offering import offering
from tests.mcp.room import Room, room
from tests.mcp.serving import Serving, deeds, tasks, until
from tests.mcp.small_server import SmallServer

from everthink.mcp import HttpServer, LocalServer
from everthink.mcp import link as links
from everthink.testing import ManualClock
from everthink.testing.in_process_server import Listening
from mcp import Client

pytestmark = pytest.mark.anyio


def at(place: Listening, path: str = "mcp", **options: Any) -> HttpServer:
    return HttpServer(f"http://127.0.0.1:{place.port}/{path}", **options)


# --- how long a call may take


class Slow:
    """A server in this process whose tool ends, and tells how far it is, when a test says so."""

    def __init__(self) -> None:
        self.server = MCPServer("slow", log_level="CRITICAL")
        self.began, self.stopped, self.step = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.server.add_tool(self.work, name="work", description="Work.", structured_output=False)

    async def work(self, ctx: Context) -> str:
        self.began.set()
        try:
            for number in range(1, 100):
                await self.step.wait()
                self.step.clear()
                await ctx.report_progress(number)
        finally:
            self.stopped.set()
        return "done"


@pytest.fixture
async def slow(open_app: OpenApp) -> tuple[Slow, ManualClock, Room, asyncio.Task[Any]]:
    """A call that runs, of a server with 30 seconds of silence and 100 in all."""
    slow, clock = Slow(), ManualClock()
    chat = await room(
        open_app, {"docs": LocalServer(slow.server, timeout=30, total_timeout=100)}, clock=clock
    )
    call = asyncio.create_task(chat.error("docs_work"))
    await slow.began.wait()
    return slow, clock, chat, call


async def test_a_call_that_is_silent_too_long_is_stopped(slow: Any) -> None:
    server, clock, chat, call = slow
    link = await chat.link()
    await until(lambda: link._calls)

    await clock.advance(29)
    assert not call.done()
    await clock.advance(1)

    assert await call == (
        "The tool 'work' of the MCP server 'docs' has not been heard of for 30 seconds, and was stopped."
        " It may or may not have taken effect."
    )
    await server.stopped.wait()
    assert link.state == "ready"


async def test_a_sign_of_life_begins_the_time_anew_but_not_for_ever(slow: Any) -> None:
    server, clock, _, call = slow

    # When it tells how far it is every 25 seconds
    for _ in range(3):
        await clock.advance(25)
        assert not call.done()
        server.step.set()
        await until(lambda: not server.step.is_set())
        for _ in range(10):
            await asyncio.sleep(0)  # until the waiting has begun anew
    await clock.advance(25)

    # Then it may go on, until it has taken what a call may take in all
    assert await call == (
        "The tool 'work' of the MCP server 'docs' has taken too long, and was stopped."
        " It may or may not have taken effect."
    )


# --- what is asked twice


async def test_a_call_that_met_an_unknown_session_is_made_once_more(open_app: OpenApp) -> None:
    server = SmallServer(sessions=True)
    async with Listening(server) as place:
        chat = await room(open_app, {"docs": at(place)})
        assert await chat.output("docs_act") == "acted"
        server.forget()

        assert await chat.output("docs_act") == "acted"

        assert server.asked.count("tools/call") == 3
        assert server.asked.count("initialize") == 2
        await chat.app.close()


async def test_a_call_under_way_when_its_session_is_found_unknown_is_made_once_more(
    open_app: OpenApp,
) -> None:
    # Given a call that waits for its answer at a server that has forgotten us
    server = SmallServer(sessions=True)
    async with Listening(server) as place:
        chat = await room(open_app, {"docs": at(place)})
        await chat.output("docs_act")
        link = await chat.link()
        server.gate.clear()
        server.forget()
        call = asyncio.create_task(chat.output("docs_act"))
        await until(lambda: server.asked.count("tools/call") == 2)

        # When the stream beside it is refused first
        server.end_streams()
        await until(lambda: link.state == "connecting")
        server.gate.set()

        # Then the call waits for its own answer, and is made again
        assert await call == "acted"
        await chat.app.close()


async def test_a_server_without_a_stream_of_its_own_is_not_taken_for_one_that_forgot_us(
    open_app: OpenApp,
) -> None:
    server = SmallServer(sessions=True)
    server.has_stream = False
    async with Listening(server) as place:
        chat = await room(open_app, {"docs": at(place)})
        await chat.offered()
        await until(lambda: "GET" in server.asked)

        assert await chat.output("docs_act") == "acted"

        assert server.asked.count("initialize") == 1
        await chat.app.close()


@pytest.mark.agent_case(212)
async def test_an_error_that_a_server_numbers_404_is_no_unknown_session(open_app: OpenApp) -> None:
    server = SmallServer(sessions=True)
    async with Listening(server) as place:
        chat = await room(open_app, {"docs": at(place)})
        await chat.output("docs_act")
        server.error = {"code": 404, "message": "The issue is closed and its session terminated"}

        assert await chat.error("docs_act") == "The issue is closed and its session terminated."

        assert server.asked.count("initialize") == 1
        await chat.app.close()


async def test_a_call_is_not_made_a_third_time(open_app: OpenApp) -> None:
    server = SmallServer(sessions=True)
    async with Listening(server) as place:
        chat = await room(open_app, {"docs": at(place)})
        await chat.output("docs_act")
        server.status = 404

        told = await chat.error("docs_act")

        assert told.endswith("It does not know our session any more. Nothing was run.")
        assert server.asked.count("tools/call") == 3
        await chat.app.close()


# --- how often it tries
@pytest.mark.slow
async def test_a_server_that_is_away_is_tried_less_and_less_often_but_at_once_for_a_call(
    open_app: OpenApp, serving: Serving, tmp_path: Path
) -> None:
    # Given a server that has gone
    server, clock = serving.start("stateless", tmp_path), ManualClock()
    chat = await room(open_app, {"docs": server.place()}, clock=clock)
    await chat.output("docs_echo", text="first")
    await server.kill()
    link = await chat.link()
    assert (await chat.error("docs_echo", text="nobody")).endswith("Nothing was run.")

    # When nobody wants anything of it
    waited: list[float] = []
    for _ in range(15):
        await until(lambda: link._is_pausing and clock.waiting)
        over, began = link._over, clock.monotonic()
        while link._over == over:
            await clock.advance(0.5)
            await until(lambda: link._is_pausing or link._over > over)  # noqa: B023
        waited.append(clock.monotonic() - began)

    # Then it is left alone for longer and longer
    assert waited == sorted(waited)
    assert (waited[0], waited[5], waited[-1]) == (1.0, 5.0, 60.0)
    # And is there at once when it is back and somebody calls
    server.again()
    assert await chat.output("docs_echo", text="after") == "You said: after"


# --- what it leaves behind


@pytest.mark.agent_case(219)
async def test_servers_are_told_when_their_app_closes_whatever_one_of_them_does(open_app: OpenApp) -> None:
    kind, broken = SmallServer(sessions=True), SmallServer(sessions=True)
    async with Listening(kind) as place, Listening(broken, timeout_graceful_shutdown=0) as other:
        chat = await room(open_app, {"docs": at(place), "broken": at(other)})
        await chat.output("docs_act")
        await chat.output("broken_act")
        await other.stop()

        await chat.app.close()

        assert kind.asked[-1] == "DELETE"


async def test_an_app_closes_while_a_server_does_not_say_hello(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a machine that takes connections and says nothing
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    before = tasks()
    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    chat = await room(
        open_app, {"docs": f"http://127.0.0.1:{port}/mcp"}, members={"wait_for_mcp_connections": False}
    )
    await chat.offered()

    # When it is not waited for, and then no longer
    async with asyncio.timeout(2):
        await chat.app.close()

    listener.close()
    await until(lambda: tasks() <= before, f"left over: {tasks() - before}")


async def test_a_server_that_does_not_say_hello_in_time_has_failed(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "CONNECTING", 0.05)
    listener = await asyncio.start_server(lambda reader, writer: reader.read(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    chat = await room(
        open_app, {"docs": f"http://127.0.0.1:{port}/mcp"}, members={"wait_for_mcp_connections": False}
    )
    await chat.offered()
    link = await chat.link()

    await until(lambda: link.state == "failed")

    assert link.error == "It gave no answer within 0.05 seconds."
    await chat.app.close()
    listener.close()


async def test_a_loop_that_ends_before_the_app_is_closed_is_not_held(
    open_app: OpenApp, tmp_path: Path
) -> None:
    chat = await room(open_app, {"docs": LocalServer(offering(tmp_path))})
    await chat.output("docs_echo", text="hi")
    link = await chat.link()
    assert link._task

    # When everything is cancelled, as at the end of asyncio.run
    running = [task for task in tasks() if "mcp" in task.get_name()]
    for task in running:
        task.cancel()
    await asyncio.wait(running, timeout=2)

    assert all(task.done() for task in running)


class Cutting:
    """A server of events whose connections are cut when a test says so."""

    def __init__(self, folder: Path) -> None:
        self._app, self._streams = offering(folder).sse_app(), set[asyncio.Task[Any]]()

    def cut(self) -> None:
        for stream in self._streams:
            stream.cancel()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        stream = asyncio.create_task(self._app(scope, receive, send))
        self._streams.add(stream)
        await asyncio.gather(stream, return_exceptions=True)
        self._streams.discard(stream)


@pytest.fixture
async def flapping(open_app: OpenApp, tmp_path: Path) -> AsyncIterator[tuple[Cutting, ManualClock, Room]]:
    server, clock = Cutting(tmp_path), ManualClock()
    async with Listening(server) as place:
        chat = await room(open_app, {"docs": at(place, "sse", transport="sse")}, clock=clock)
        assert await chat.output("docs_echo", text="first") == "You said: first"
        yield server, clock, chat
        await chat.app.close()


@pytest.mark.slow
async def test_a_server_that_comes_and_goes_a_hundred_times_leaves_nothing_behind(
    flapping: tuple[Cutting, ManualClock, Room], tmp_path: Path
) -> None:
    server, clock, chat = flapping
    link = await chat.link()
    told: list[str] = []
    changed = link._changed
    link._changed = lambda: (told.append(link.state), changed())

    async def flap() -> None:
        over = link._over
        server.cut()
        await until(lambda: link._over > over)
        await clock.advance(links.RARE_PAUSE)
        await until(lambda: link.state == "ready")

    # When it has come and gone often
    await flap()
    kept, before, row = clients(), len(tasks()), saved(tmp_path)
    for _ in range(99):
        await flap()

    # Then there are as many tasks and clients as after the first time, and it still works
    # (one may not have begun yet when they were counted)
    await until(lambda: len(tasks()) <= before + 3, f"left over: {tasks()}")
    assert clients() <= kept + 1
    assert not link._calls
    assert told == ["connecting", "discovering", "ready"] * 100
    assert saved(tmp_path) == row  # nothing new was offered, and nothing written
    assert await chat.output("docs_echo", text="last") == "You said: last"
    assert deeds(tmp_path) == ["echo first", "echo last"]


def clients() -> int:
    gc.collect()
    return sum(isinstance(one, Client) for one in gc.get_objects())


def saved(folder: Path) -> Any:
    with sqlite3.connect(folder / "everthink.db") as db:
        return db.execute("SELECT catalogue_at FROM mcp_servers").fetchall()
