"""Many frames at once: few writes, the same frames, and no reader turned away for coming back late."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from everthink.server import batched_websocket as gathered
from everthink.server import connections
from everthink.server.batched_websocket import BatchedProtocol
from everthink.server.connections import Connection, Parcel
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.server import Served, open_app, served
from .conftest import Serve

pytestmark = pytest.mark.anyio

WORDS = [f"w{number} " for number in range(2000)]


class Wire:
    """What a transport is asked to do, in order."""

    def __init__(self) -> None:
        self.done: list[bytes | str] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.done.append("close")
        self.closing = True

    def abort(self) -> None:
        self.done.append("abort")


@pytest.fixture
async def wire(anyio_backend: str) -> Wire:
    return Wire()


def around(wire: Any) -> Any:
    loop = asyncio.get_running_loop()
    tick = gathered._ticks.setdefault(loop, gathered._LoopTick(loop))
    return gathered._BatchedWebSocket(wire, tick)


async def tick_ends() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_the_first_write_of_a_tick_is_at_once_and_the_rest_is_one(wire: Wire) -> None:
    socket = around(wire)
    for letter in b"abcd":
        socket.write(bytes([letter]))
    assert wire.done == [b"a"]
    await tick_ends()
    assert wire.done == [b"a", b"bcd"]
    socket.write(b"e")
    assert wire.done == [b"a", b"bcd", b"e"]
    await tick_ends()
    assert wire.done == [b"a", b"bcd", b"e"]


async def test_sockets_share_a_tick_and_not_their_bytes(wire: Wire) -> None:
    other = Wire()
    one, two = around(wire), around(other)
    for letter in b"abc":
        one.write(bytes([letter]))
        two.write(bytes([letter]).upper())
    await tick_ends()
    assert wire.done == [b"a", b"bc"]
    assert other.done == [b"A", b"BC"]


async def test_much_does_not_wait_for_the_end_of_a_breath(wire: Wire) -> None:
    socket = around(wire)
    large = b"x" * gathered.LARGEST
    socket.write(b"a")
    socket.write(b"b")
    socket.write(large)
    assert wire.done == [b"a", b"b" + large]
    socket.write(b"c")
    await tick_ends()
    assert wire.done == [b"a", b"b" + large, b"c"]


async def test_closing_comes_after_what_was_written(wire: Wire) -> None:
    socket = around(wire)
    socket.write(b"a")
    socket.write(b"b")
    socket.close()
    assert wire.done == [b"a", b"b", "close"]
    await tick_ends()
    assert wire.done == [b"a", b"b", "close"]


async def test_what_waits_for_a_socket_that_is_gone_is_dropped(wire: Wire) -> None:
    socket = around(wire)
    socket.write(b"a")
    socket.write(b"b")
    socket.abort()
    wire.closing = True
    await tick_ends()
    assert wire.done == [b"a", "abort"]


# --- what a connection sends at once


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_parcel_is_framed_as_the_protocol_wants_it(size: int) -> None:
    texts = ["x" * size, "é" * (size // 2), "last"]
    theirs = [Frame(Opcode.TEXT, text.encode()).serialize(mask=False) for text in texts]
    assert Parcel(texts).framed == b"".join(theirs)


class Fickle:
    """A socket that takes ready-made frames only when it is told to, and keeps every text it was sent."""

    def __init__(self) -> None:
        self.is_ready = True
        self.texts: list[str] = []
        self.at_once = 0
        self.closed: Any = None

    def now(self, frames: bytes) -> bool:
        if self.is_ready:
            self.at_once += 1
            while frames:
                start, size = 2, frames[1]
                if size == 127:
                    start, size = 10, int.from_bytes(frames[2:10])
                self.texts.append(frames[start : start + size].decode())
                frames = frames[start + size :]
        return self.is_ready

    async def send_text(self, data: str) -> None:
        await asyncio.sleep(0)
        self.texts.append(data)

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        self.closed = (code, reason)


async def test_what_goes_at_once_never_overtakes_what_waits() -> None:
    chance = random.Random(1)
    socket = Fickle()
    connection = Connection("one", socket, None, now=socket.now)
    sent = [f"text {number}" for number in range(2000)]
    connection.send(sent[0])
    assert not socket.texts, "nothing is sent before the pump runs"
    pump = asyncio.create_task(connection.pump())
    at = 1
    while at < len(sent):
        socket.is_ready = chance.random() < 0.6
        many = chance.randrange(1, 4)
        connection.send_all(Parcel(sent[at : at + many]))
        at += many
        for _ in range(chance.choice((0, 0, 3, 30))):
            await asyncio.sleep(0)
    connection.close(4000, "bye")
    connection.send("too late")
    await pump
    assert socket.texts == sent
    assert socket.closed == (4000, "bye")
    assert 100 < socket.at_once < 1000, "both ways were taken"


async def test_a_long_parcel_waits_in_the_buffer_that_has_a_bound() -> None:
    socket = Fickle()
    connection = Connection("one", socket, None, now=socket.now)
    pump = asyncio.create_task(connection.pump())
    await asyncio.sleep(0)
    connection.send("x" * (connections.AT_ONCE + 1))
    assert not socket.at_once
    connection.close()
    await pump
    # In fragments, none longer than what the socket keeps
    assert "".join(socket.texts) == "x" * (connections.AT_ONCE + 1)
    assert max(map(len, socket.texts)) == connections.PIECE


# --- with a server


@pytest.fixture
async def chatting(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    """An agent that pours out its words, served as `everthink serve` does."""
    cls = assistant(ScriptedModel.forever(says(*WORDS)))
    async with served(open_app(tmp_path, cls), ws=BatchedProtocol, ws_per_message_deflate=False) as server:
        yield server


async def test_a_burst_reaches_every_reader_whole_and_in_order(chatting: Served) -> None:
    cls = chatting.app.classes[0]
    tabs = [await chatting.connect(cls, id=str(number)) for number in range(5)]
    await asyncio.gather(*(tab.settled() for tab in tabs))
    request = await tabs[0].say("Talk")
    await asyncio.gather(*(tab.until_done(request) for tab in tabs))
    for tab in tabs:
        assert tab.seqs(request) == list(range(len(WORDS) + 6))  # and the frame around them
        assert tab.text == "".join(WORDS)
        assert tab.messages == tabs[0].messages


async def test_a_client_that_wants_compression_gets_it(tmp_path: Path, anyio_backend: str) -> None:
    cls = assistant(ScriptedModel.forever(says(*WORDS)))
    async with (
        served(open_app(tmp_path, cls), ws=BatchedProtocol, ws_per_message_deflate=True) as server,
        connect(f"ws://{server.host}/agents/assistant/room", compression="deflate") as socket,
    ):
        assert socket.protocol.extensions
        while "mcp_servers" not in await socket.recv():
            pass
        [connection] = (await live(server.app.agent(cls, "room"))).connections
        assert connection._now(Parcel(["plain"]).framed) is False, (
            "frames that are not compressed are not taken"
        )
        for word in WORDS:
            connection.send(word)
        assert [await socket.recv() for _ in WORDS] == WORDS


async def test_a_goodbye_comes_after_the_burst(chatting: Served) -> None:
    cls = chatting.app.classes[0]
    chat = await chatting.connect(cls)
    await chat.settled()
    agent = await live(chatting.app.agent(cls, "room"))
    for word in WORDS:
        agent.connections[0].send(word)
    agent.connections[0].close(4003, "out")
    assert await chat.until_closed() == (4003, "out")
    assert chat.other == WORDS


# --- a replay that is longer than what may wait


async def test_a_reader_who_comes_back_to_a_long_stream_is_not_turned_away(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a stream of many chunks, together longer than the buffer of a connection
    monkeypatch.setattr(connections, "MAX_BUFFERED", 20_000)
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says(*WORDS[:500]).waits(go).says("end.")))
    server = await serve(cls)
    asker = await server.connect(cls, id="asker")
    request = await asker.say("Talk")
    await asker.until_text("".join(WORDS[:500]))

    # When a tab joins in the middle
    joiner = await server.connect(cls, id="joiner", resumes=True)
    await joiner.until_text("".join(WORDS[:500]))
    go.set()
    await joiner.until_done(request)

    # Then it has everything, and its connection
    assert joiner.text == "".join(WORDS[:500]) + "end."
    assert joiner.closed is None
