"""Many frames at once: few writes, the same frames, and no reader turned away for coming back late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink.server import connections, gathered
from everthink.server.gathered import GatheredProtocol
from everthink.testing import ScriptedModel, says

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
    breath = gathered._breaths.setdefault(loop, gathered._Breath(loop))
    return gathered._Gathered(wire, breath)


async def breath_ends() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_the_first_write_of_a_breath_is_at_once_and_the_rest_is_one(wire: Wire) -> None:
    socket = around(wire)
    for letter in b"abcd":
        socket.write(bytes([letter]))
    assert wire.done == [b"a"]
    await breath_ends()
    assert wire.done == [b"a", b"bcd"]
    socket.write(b"e")
    assert wire.done == [b"a", b"bcd", b"e"]
    await breath_ends()
    assert wire.done == [b"a", b"bcd", b"e"]


async def test_sockets_share_a_breath_and_not_their_bytes(wire: Wire) -> None:
    other = Wire()
    one, two = around(wire), around(other)
    for letter in b"abc":
        one.write(bytes([letter]))
        two.write(bytes([letter]).upper())
    await breath_ends()
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
    await breath_ends()
    assert wire.done == [b"a", b"b" + large, b"c"]


async def test_closing_comes_after_what_was_written(wire: Wire) -> None:
    socket = around(wire)
    socket.write(b"a")
    socket.write(b"b")
    socket.close()
    assert wire.done == [b"a", b"b", "close"]
    await breath_ends()
    assert wire.done == [b"a", b"b", "close"]


async def test_what_waits_for_a_socket_that_is_gone_is_dropped(wire: Wire) -> None:
    socket = around(wire)
    socket.write(b"a")
    socket.write(b"b")
    socket.abort()
    wire.closing = True
    await breath_ends()
    assert wire.done == [b"a", "abort"]


# --- with a server


@pytest.fixture
async def chatting(tmp_path: Path, anyio_backend: str) -> AsyncIterator[Served]:
    """An agent that pours out its words, served as `everthink serve` does."""
    cls = assistant(ScriptedModel.forever(says(*WORDS)))
    async with served(open_app(tmp_path, cls), ws=GatheredProtocol, ws_per_message_deflate=False) as server:
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


async def test_a_goodbye_comes_after_the_burst(chatting: Served) -> None:
    cls = chatting.app.classes[0]
    chat = await chatting.connect(cls)
    await chat.settled()
    agent = await chatting.app.agent(cls, "room").instance()
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
