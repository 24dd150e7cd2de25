"""The reference server of the protocol's makers, which speaks the older protocol, over all its transports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OpenApp
from tests.mcp.room import Room, room
from tests.mcp.serving import children, is_gone, tasks, until
from tests.support.node import ROOT, free_port, needs, packages_of

from everthink.mcp import HttpServer, StdioServer
from everthink.mcp.link import Call
from everthink.mcp.server import Server
from everthink.testing import calls, says

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PACKAGE = ROOT / "tests" / "journeys" / "mcp_everything"
SCRIPT = Path("node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
KINDS = {"streamableHttp": "mcp", "sse": "sse", "stdio": ""}
"""How it is started, and where it is then."""


class Everything:
    """The server, as a process of ours or of the app's, and a room that uses it."""

    room: Room
    is_dead = False

    def __init__(self, kind: str) -> None:
        node = needs("node", "Node.js 20 or newer is needed to test against the reference server.")
        self._command = [node, str(packages_of(PACKAGE) / SCRIPT), kind]
        self._port, self._pids = free_port(), children()
        self._process: subprocess.Popen[bytes] | None = None
        self.place: Any = StdioServer(node, self._command[1:])
        if kind != "stdio":
            self.place = HttpServer(f"http://127.0.0.1:{self._port}/{KINDS[kind]}")

    async def start(self) -> None:
        """Run it, unless the app does."""
        if isinstance(self.place, HttpServer):
            self._run()
            await until(self._listens, "it does not listen")
            self.is_dead = False

    def _run(self) -> None:
        env = {**os.environ, "PORT": str(self._port)}
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, env=env, stdout=quiet, stderr=quiet)

    def _listens(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self._port)) == 0

    @property
    def pid(self) -> int:
        (pid,) = children() - self._pids
        return pid

    async def kill(self) -> None:
        pid, self.is_dead = self.pid, True
        os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        await until(lambda: is_gone(pid))


@pytest.fixture(params=KINDS)
async def everything(request: pytest.FixtureRequest, open_app: OpenApp) -> AsyncIterator[Everything]:
    """The server, used once; in the end nothing is left of it in this process."""
    before, pids = tasks(), children()
    server = Everything(request.param)
    await server.start()
    server.room = await room(open_app, {"docs": server.place})
    try:
        assert await server.room.output("docs_echo", message="first") == "Echo: first"
        yield server
    finally:
        await server.room.app.close()
        if isinstance(server.place, HttpServer) and not server.is_dead:
            await server.kill()
    await until(lambda: tasks() <= before, f"left over: {tasks() - before}")
    assert children() == pids


async def test_results_of_every_kind_are_read(everything: Everything) -> None:
    chat = everything.room

    assert await chat.output("docs_get-sum", a=2, b=3) == "The sum of 2 and 3 is 5."
    found = await chat.output("docs_get-structured-content", location="Chicago")
    assert set(found) == {"temperature", "conditions", "humidity"}
    picture = await chat.output("docs_get-tiny-image")
    assert [part["type"] for part in picture["value"]] == ["text", "file", "text"]
    assert picture["value"][1]["url"].startswith("data:image/png;base64,")
    assert "[resource" in await chat.output("docs_get-resource-links", count=2)
    assert "[resource demo://" in await chat.output("docs_get-resource-reference", resourceId=1)
    annotated = await chat.output("docs_get-annotated-message", messageType="error", includeImage=False)
    assert annotated == "Error: Operation failed"
    assert "Invalid" in await chat.error("docs_get-resource-reference", resourceId=-1)


async def test_progress_is_shown_while_a_call_runs(everything: Everything) -> None:
    shown: list[Any] = []
    chat = everything.room
    chat.model.add(*_plays("docs_trigger-long-running-operation", duration=0.05, steps=2))

    async for chunk in chat.agent.chat("Go on."):
        if chunk.type == "tool-output-available":
            shown.append(chunk.output)

    assert shown[-2] == {"progress": 2.0, "total": 2.0}
    assert "completed" in shown[-1]


async def test_a_server_killed_while_nothing_is_asked_serves_the_next_turn(everything: Everything) -> None:
    await everything.kill()
    await everything.start()

    assert await everything.room.output("docs_echo", message="second") == "Echo: second"


async def test_a_server_killed_in_a_call_fails_that_call_alone(
    everything: Everything, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a call that runs, of a tool that must not be repeated
    monkeypatch.setattr(Server, "_call_of", lambda server, tool: Call(tool))
    chat = everything.room
    chat.model.add(*_plays("docs_trigger-long-running-operation", duration=100, steps=10_000))
    told: list[str] = []

    # When the server dies
    async for chunk in chat.agent.chat("Go on."):
        if chunk.type == "tool-output-available" and not everything.is_dead:
            await everything.kill()
        elif chunk.type == "tool-output-error":
            told.append(chunk.error_text)

    # Then the turn went on, and so does the next one
    assert len(told) == 1
    assert told[0].endswith("It may or may not have taken effect.")
    await everything.start()
    assert await chat.output("docs_echo", message="after") == "Echo: after"


async def test_a_server_killed_while_it_is_listed_offers_its_tools_all_the_same(
    everything: Everything,
) -> None:
    # Given a server that is asked for its lists, and is too slow to answer
    os.kill(everything.pid, signal.SIGSTOP)
    link = await everything.room.link()
    link.refresh()
    assert link._client
    asked = link._client.session._dispatcher._pending
    await until(lambda: asked, "it was never asked")

    # When it dies and is there again
    await everything.kill()
    await everything.start()

    # Then nothing has changed for the next turn
    assert "docs_echo" in await everything.room.offered()
    assert await everything.room.output("docs_echo", message="after") == "Echo: after"


def _plays(tool: str, **input: Any) -> tuple[Any, ...]:
    return calls(tool, **input), says("Done.")
