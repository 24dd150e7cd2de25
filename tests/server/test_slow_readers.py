"""Readers that fall behind, or stand still: they slow nobody, and they can come back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from everthink import App
from everthink.server import connections
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.server import served
from .conftest import Serve

pytestmark = pytest.mark.anyio

# More than what the machine between keeps for somebody who does not read.
PIECE, PIECES = "x" * 100_000, 80


async def small_window(server: Any, path: str) -> Any:
    """A client that reads nothing unless told, and whose machine takes almost nothing for it."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", server.port))
    client = await connect(
        f"ws://{server.host}{path}",
        sock=small,
        max_queue=1,
        max_size=None,
        compression=None,
        ping_interval=None,
    )
    await client.recv()  # it was greeted, so the agent knows it
    return client


class Talk:
    """A long answer, told as fast as one of its readers reads."""

    def __init__(self) -> None:
        self.reader: Any = None
        self._read = 3  # before the first piece come the starts of the message, the step and the text
        self.play = says(PIECE)
        for _ in range(PIECES - 1):
            self.play = self.play.waits(self._until_read).says(PIECE)

    async def _until_read(self) -> None:
        self._read += 1
        await self.reader.until(lambda: len(self.reader.of("use_chat_response")) >= self._read)


def bodies(reader: Any, request: str) -> list[str]:
    """What a reader was told of an answer, in order."""
    return [frame["body"] for frame in reader.responses(request) if "seq" in frame]


async def wake(asleep: Any) -> tuple[int, str]:
    """Read all there is. How the connection was closed."""
    with contextlib.suppress(ConnectionClosed):
        while await asleep.recv():
            pass
    return asleep.close_code, asleep.close_reason


async def test_a_reader_that_never_reads_slows_nobody_and_is_closed(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a tab whose window stands still, and a model as fast as the other tab reads
    monkeypatch.setattr(connections, "MAX_BUFFERED", 1024 * 1024)
    talk = Talk()
    cls = assistant(ScriptedModel(talk.play))
    server = await serve(cls)
    asleep = await small_window(server, "/agents/assistant/room?_pk=asleep")
    chat = talk.reader = await server.connect(cls, id="awake")

    # When much is said
    request = await chat.say("Talk")
    done = await chat.until_done(request)

    # Then the other has it all, and what waited for the sleeper is gone
    assert done["outcome"] == "completed"
    assert sum(PIECE in body for body in bodies(chat, request)) == PIECES
    assert chat.closed is None
    agent = await live(server.app.agent(cls, "room"))
    sleeper = next(c for c in agent.connections if c.id == "asleep")
    assert sleeper._closing == (1013, "Reading too slowly")
    assert not sleeper._out
    # and when it wakes it is told to come back, and finds everything
    assert await wake(asleep) == (1013, "Reading too slowly")
    again = await server.connect(cls, id="asleep")
    await again.until(lambda: len(again.messages) == 2)
    assert again.text == chat.text


async def test_a_conversation_longer_than_the_buffer_reaches_a_reader(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_BUFFERED", 1000)
    cls = assistant(ScriptedModel(says("Short.")))
    server = await serve(cls)
    await server.app.agent(cls, "room").add_messages("long " * 10_000)
    chat = await server.connect(cls)
    await chat.until_frame("mcp_servers")
    await chat.until_done(await chat.say("Hi"))
    assert chat.closed is None
    assert chat.text == "Short."


async def test_a_reader_that_was_closed_in_mid_answer_resumes_it_whole(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a reader that stood still for too long, in the middle of an answer
    monkeypatch.setattr(connections, "MAX_BUFFERED", 1024 * 1024)
    go, talk = asyncio.Event(), Talk()
    cls = assistant(ScriptedModel(talk.play.waits(go).says("the end")))
    server = await serve(cls)
    asleep = await small_window(server, "/agents/assistant/room?_pk=asleep")
    awake = talk.reader = await server.connect(cls, id="awake")
    request = await awake.say("Talk")
    await awake.until(lambda: len(awake.of("use_chat_response")) == 3 + PIECES)

    # When it wakes, finds itself closed, and comes back
    assert await wake(asleep) == (1013, "Reading too slowly")
    again = await server.connect(cls, id="asleep", resumes=True)
    await again.until(lambda: any(f.get("replayComplete") for f in again.frames))
    go.set()
    await again.until_done(request)
    await awake.until_done(request)

    # Then it has every chunk once, as the one that was awake all the time
    assert again.seqs(request) == awake.seqs(request) == list(range(len(awake.seqs(request))))
    told = bodies(again, request)
    assert (told == bodies(awake, request)) is True
    assert sum(PIECE in body for body in told) == PIECES
    assert any("the end" in body for body in told)


async def test_a_reader_that_does_not_even_read_its_close_is_cut_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_BUFFERED", 200_000)
    monkeypatch.setattr(connections, "PATIENCE", 0.01)
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_close(self: Any, connection: Any, code: int, reason: str) -> None:
        gone.set_result(connection.id)

    cls = assistant(ScriptedModel(), on_close=on_close)
    server = await serve(cls)
    asleep = await small_window(server, "/agents/assistant/room?_pk=asleep")
    agent = await live(server.app.agent(cls, "room"))
    while not gone.done():
        agent.broadcast(PIECE)
        await asyncio.sleep(0)
    assert await gone == "asleep"
    assert agent.connections == []
    asleep.transport.abort()


async def test_a_shutdown_does_not_wait_for_a_reader_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a reader for whom more waits than its machine takes, and a server that would wait for ever
    monkeypatch.setattr(connections, "PATIENCE", 0.01)
    monkeypatch.setattr(connections, "MAX_BUFFERED", 2 * len(PIECE) * PIECES)
    cls = assistant(ScriptedModel())
    app = App(cls, store=f"sqlite:///{tmp_path}/e.db")
    async with served(app, timeout_graceful_shutdown=None) as server:
        asleep = await small_window(server, "/agents/assistant/room?_pk=asleep")
        agent = await live(app.agent(cls, "room"))
        for _ in range(PIECES):
            agent.broadcast(PIECE)
            await asyncio.sleep(0)

        # When it is told to stop, it stops
        await asyncio.wait_for(server.stop(), 30)
        asleep.transport.abort()
