"""Clients that do not read what they are sent, or do not send what they have begun: bounded, then cut off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from everthink.messages import Message
from everthink.server import Limits, guarded
from everthink.server.arriving import Arriving
from everthink.server.waiting import Buffers, Latest, Long
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.raw import Raw
from .conftest import Serve
from .doors import READ, REQUEST, ROOM
from .strangers import said

pytestmark = pytest.mark.anyio

LONG = 8_000_000
"""More than what the machine between keeps for somebody who does not read."""
UPGRADE = (
    f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {'A' * 22}==\r\n"
    "Sec-WebSocket-Version: 13\r\n"
)


class Deaf:
    """Somebody who asks and then reads nothing."""

    def __init__(self, server: Any, path: str, fields: str = "") -> None:
        self._server = server
        self._head = f"GET {path} HTTP/1.1\r\nHost: {server.host}\r\n{fields}\r\n".encode()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)

    async def ask(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, ("127.0.0.1", self._server.port))
        await loop.sock_sendall(self._socket, self._head)

    def leave(self) -> None:
        self._socket.close()


async def talk(server: Any, cls: Any, *rooms: str) -> None:
    for room in rooms or ("room",):
        agent = await live(server.app.agent(cls, room))
        for _ in range(8):
            await agent.add_messages("w" * (LONG // 8))


def agents(**members: Any) -> Any:
    return assistant(ScriptedModel.forever(says("ok")), **members)


def given(server: Any) -> list[int]:
    """How many bytes wait in the server beneath, for each connection."""
    connections = server._server.server_state.connections
    return [one.transport.get_write_buffer_size() for one in connections]


def kept(server: Any) -> int:
    """How many bytes wait here."""
    return server.app._gate._buffers._in_all


async def until(is_so: Callable[[], bool]) -> None:
    """Let everybody else have their turn until it is so."""
    while True:
        if is_so():
            return
        await asyncio.sleep(0)


async def until_stuck(server: Any, number: int) -> None:
    """Until so many have stopped reading."""
    await until(lambda: sum(size > 0 for size in given(server)) >= number)


async def until_gone(server: Any) -> None:
    await until(lambda: not server._server.server_state.connections)
    await until(lambda: kept(server) == 0)


WAYS = {"sockets": (ROOM, UPGRADE), "requests": (READ, "")}


@pytest.mark.parametrize(("path", "fields"), WAYS.values(), ids=WAYS)
async def test_a_conversation_that_nobody_reads_is_kept_once(serve: Serve, path: str, fields: str) -> None:
    # Given a long conversation, and many who ask for it and read nothing
    server = await serve(cls := agents(), limits=Limits(stall_seconds=1000))
    await talk(server, cls)
    deaf = [Deaf(server, path, fields) for _ in range(20)]
    for one in deaf:
        await one.ask()
    await until_stuck(server, 20)

    # Then there is one copy, and the server beneath has been given a little of it
    assert LONG < kept(server) < 1.1 * LONG
    assert max(given(server)) < 256 * 1024

    # and somebody who reads is served meanwhile
    chat = await server.connect(cls)
    await chat.until(lambda: chat.messages)
    assert len((await server.http(READ)).body) > LONG
    await chat.close()
    for one in deaf:
        one.leave()
    await until_gone(server)


@pytest.mark.parametrize(("path", "fields"), WAYS.values(), ids=WAYS)
async def test_who_takes_nothing_for_a_while_is_cut_off(
    serve: Serve, path: str, fields: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everthink.server.connections.PATIENCE", 0.01)
    server = await serve(cls := agents(), limits=Limits(stall_seconds=0.2))
    await talk(server, cls)
    deaf = [Deaf(server, path, fields) for _ in range(3)]
    for one in deaf:
        await one.ask()
    await until_stuck(server, 3)
    await until_gone(server)
    for one in deaf:
        one.leave()


@pytest.mark.parametrize("way", WAYS)
async def test_many_rooms_that_nobody_reads_are_bounded_in_all(
    serve: Serve, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everthink.server.connections.PATIENCE", 0.01)
    limits = Limits(stall_seconds=1000, buffered_bytes=int(2.5 * LONG))
    server = await serve(cls := agents(), limits=limits)
    rooms = [f"room-{number}" for number in range(6)]
    await talk(server, cls, *rooms)
    path, fields = WAYS[way]
    deaf = [Deaf(server, path.replace("room", room), fields) for room in rooms]
    for number, one in enumerate(deaf):
        await one.ask()
        await until_stuck(server, min(number + 1, 2))
        assert kept(server) <= limits.buffered_bytes
    await until(lambda: len(server._server.server_state.connections) <= 2)
    for one in deaf:
        one.leave()


async def test_stopping_does_not_wait_for_those_who_do_not_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guarded, "GOODBYE", 0.01)
    server = await serve(cls := agents(), limits=Limits(stall_seconds=1000))
    server._server.config.timeout_graceful_shutdown = None  # it would wait for ever
    await talk(server, cls)
    deaf = [Deaf(server, *way) for way in WAYS.values()]
    for one in deaf:
        await one.ask()
    await until_stuck(server, 2)
    await server.stop()
    for one in deaf:
        one.leave()


async def test_a_long_text_reaches_a_slow_reader_whole_with_pongs_between(serve: Serve) -> None:
    server = await serve(cls := agents())
    await talk(server, cls)
    raw = await Raw.open(server)
    raw.write(f"GET {ROOM} HTTP/1.1\r\nHost: {server.host}\r\n{UPGRADE}\r\n".encode())
    await raw.reader.readuntil(b"\r\n\r\n")
    text, opcodes, heads = b"", list[int](), list[int]()
    raw.write(bytes((0x89, 0x80, 0, 0, 0, 0)))
    while not heads or not heads[-1] & 0x80 or opcodes[-1] == 10:
        head = await raw.reader.readexactly(2)
        size = head[1]
        if size == 126:
            size = int.from_bytes(await raw.reader.readexactly(2))
        elif size == 127:
            size = int.from_bytes(await raw.reader.readexactly(8))
        assert size <= 64 * 1024
        payload = await raw.reader.readexactly(size)
        heads.append(head[0])
        opcodes.append(head[0] & 0x0F)
        if opcodes[-1] != 10:
            text += payload
    assert set(opcodes) - {10} == {0, 1}
    assert text.count(b"w") >= LONG
    raw.leave()


# --- the account


class One:
    def __init__(self, buffers: Buffers, *longs: Long) -> None:
        self.buffers, self.longs = buffers, longs
        self.is_gone = False

    def wait(self, own: int = 0) -> None:
        for long in self.longs:
            self.buffers.share(long)
        self.buffers.hold(self.give_up, own, self.longs)

    def give_up(self) -> None:
        self.is_gone = True
        for long in self.longs:
            self.buffers.unshare(long)
        self.buffers.forget(self.give_up)


def test_who_waits_for_what_others_wait_for_costs_a_part_of_it() -> None:
    buffers = Buffers(1000)
    long = Long(b"x" * 600)
    together = [One(buffers, long) for _ in range(10)]
    for one in together:
        one.wait()
    alone = One(buffers)
    alone.wait(300)
    assert buffers._in_all == 900
    another = One(buffers, Long(b"y" * 200))
    another.wait()
    assert alone.is_gone
    assert not any(one.is_gone for one in (*together, another))
    for one in (*together, another):
        one.give_up()
    assert (buffers._in_all, buffers._waiting) == (0, {})


def test_a_conversation_is_encoded_once_while_somebody_waits_for_it() -> None:
    made: list[int] = []

    def encode(messages: Any) -> bytes:
        made.append(len(messages))
        return b"text"

    latest, messages = Latest(), [said("1", "a"), said("2", "b")]
    first = latest.of(messages, encode)
    assert latest.of(list(messages), encode) is first
    changed: list[Message] = [messages[0], said("2", "c")]
    second = latest.of(changed, encode)
    assert second is not first
    assert latest.of(messages[:1], encode) is not second
    del first, second
    latest.of(messages[:1], encode)
    assert made == [2, 2, 1, 1]


# --- bodies


async def read_all(self: Any, request: Any) -> Any:
    return len(await request.body())


async def begin(server: Any, size: int, declared: int, address: str = "127.0.0.1") -> Raw:
    raw = await Raw.open(server, address)
    raw.write(
        f"POST {REQUEST} HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: {declared}\r\n\r\n".encode()
    )
    raw.write(b"z" * size)
    return raw


async def until_arrived(server: Any, size: int) -> None:
    await until(lambda: Arriving.in_all >= size)


async def test_bodies_that_never_end_are_bounded_in_all(serve: Serve) -> None:
    server = await serve(agents(on_request=read_all), limits=Limits(buffered_bytes=1_000_000))
    # Given one who takes long, and another who begins much
    slow = await begin(server, 100_000, 100_005, address="127.0.0.2")
    await until_arrived(server, 100_000)
    bad = [await begin(server, 350_000, 400_000) for _ in range(3)]
    answers = [asyncio.create_task(raw.reader.readuntil(b"\r\n\r\n")) for raw in bad]
    done, waiting = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    first = done.pop().result()
    assert first[9:12] == b"503"
    assert b"retry-after: 10" in first.lower()
    assert Arriving.in_all <= 1_000_000
    # Then the other comes to the end
    slow.write(b"12345")
    assert b" 200 " in await slow.reader.readline()
    for answer in waiting:
        answer.cancel()
    for raw in (slow, *bad):
        raw.leave()
    await until(lambda: Arriving.in_all == 0)


async def test_a_body_has_a_time(serve: Serve) -> None:
    server = await serve(cls := agents(on_request=read_all), limits=Limits(stall_seconds=0.2))
    good = await server.connect(cls)
    silent, drip = await begin(server, 10, 1000), await begin(server, 10, 60_000)
    answers = [asyncio.create_task(raw.reader.readuntil(b"\r\n\r\n")) for raw in (silent, drip)]
    while not all(answer.done() for answer in answers):
        drip.write(b"a")
        await good.settled()
    assert [answer.result()[9:12] for answer in answers] == [b"408", b"408"]
    assert Arriving.in_all == 0
    for raw in (silent, drip):
        raw.leave()


async def test_a_body_that_nobody_reads_to_its_end_is_not_counted_for_ever(serve: Serve) -> None:
    async def on_request(self: Any, request: Any) -> Any:
        async for piece in request.stream():
            return len(piece)

    server = await serve(agents(on_request=on_request))
    raw = await begin(server, 50_000, 60_000)
    assert b" 200 " in await raw.reader.readline()
    assert Arriving.in_all == 0
    raw.leave()


async def test_a_request_whose_body_is_here_may_take_its_time(serve: Serve) -> None:
    async def on_request(self: Any, request: Any) -> Any:
        size, late = len(await request.body()), asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, late.set)
        await late.wait()
        return [size, await request.is_disconnected()]

    server = await serve(agents(on_request=on_request), limits=Limits(stall_seconds=0.1))
    answer = await server.http(REQUEST, method="POST", body=b"x" * 1000)
    assert answer.json == [1000, False]
