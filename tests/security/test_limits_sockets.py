"""Too many at once, too slow, too new: refused before anything is started, while others are served."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from everthink.access.crowd import Crowd, place_of
from everthink.server import Limits
from everthink.server.arriving import Arriving
from everthink.server.connections import Connection
from everthink.server.waiting import Buffers
from everthink.testing import ManualClock, ScriptedModel, says
from tests.support.agents import live

from ..support.agents import assistant
from ..support.raw import CONTINUED, TEXT, Raw, framed
from ..support.turns import record_events
from .conftest import Serve, ServeOn

pytestmark = pytest.mark.anyio


def agents() -> Any:
    return assistant(ScriptedModel.forever(says("ok")))


async def refused(server: Any, cls: Any, name: str = "room") -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught:
        await server.connect(cls, name)
    return caught.value.response.status_code, (caught.value.response.body or b"").decode()


async def is_served(chat: Any) -> bool:
    return (await chat.until_done(await chat.say("Hi")))["outcome"] == "completed"


# --- sockets


@pytest.mark.parametrize(
    ("limits", "status"),
    [(Limits(sockets_per_address=3), 429), (Limits(sockets=3), 503)],
    ids=["of one address", "in all"],
)
async def test_so_many_sockets_are_open_and_no_more(serve: Serve, limits: Limits, status: int) -> None:
    cls = agents()
    asked: list[Any] = []
    server = await serve(cls, limits=limits, authenticate=lambda request: asked.append(request) or True)
    events = record_events(server.app, "audit")
    first, *others = [await server.connect(cls) for _ in range(3)]
    asked.clear()

    # One more is refused with the number, before anybody is asked who it is or anything is started
    told, text = await refused(server, cls, "elsewhere")
    assert told == status
    assert text.startswith("3 connections")
    assert asked == []
    answer = await server.http("/agents/assistant/elsewhere", method="POST")
    assert answer.status == status
    assert len(await server.app.open()) == 1
    assert [event.payload["allowed"] for event in events][-2:] == [False, False]

    # Those who are here are served, and when one leaves there is room
    assert await is_served(first)
    await others[0].close()
    while True:
        try:
            again = await server.connect(cls)
        except InvalidStatus:
            continue
        assert await is_served(again)
        break


async def test_a_network_that_gives_many_addresses_is_one_place() -> None:
    assert place_of("2001:db8:1:2::1") == place_of("2001:db8:1:2:ffff::9")
    assert place_of("2001:db8:1:2::1") != place_of("2001:db8:1:3::1")
    assert place_of("::ffff:10.0.0.1") == place_of("10.0.0.1") == "10.0.0.1"
    assert place_of(None) == place_of("") == ""
    assert place_of("fe80::1%eth0") == place_of("fe80::2%eth0")
    assert place_of("not:an:address") == "not:an:address"


def test_a_crowd_that_is_gone_leaves_nothing_behind() -> None:
    clock = ManualClock()
    crowd = Crowd(Limits(sockets=1000, agents_per_minute=2), clock)
    for number in range(1000):
        assert crowd.enter(str(number)) is None
        assert crowd.may_create(str(number)) is None
    for number in range(1000):
        crowd.leave(str(number))
    assert crowd._here == {}
    assert crowd._in_all == 0
    assert len(crowd._made) == 1000


async def test_places_that_make_nothing_any_more_are_forgotten() -> None:
    clock = ManualClock()
    crowd = Crowd(Limits(agents_per_minute=2), clock)
    for number in range(100):
        crowd.may_create(str(number))
    await clock.advance(30)
    crowd.may_create("0")
    await clock.advance(30)
    assert crowd.may_create("new") is None
    assert sorted(crowd._made) == ["0", "new"]
    assert crowd.may_create("0") is None
    assert crowd.may_create("0") is not None


# --- slow


async def test_a_head_that_never_ends_is_cut_off(serve: Serve) -> None:
    # Given slow ones that send a byte now and then, one that sends nothing, and one that asked once before
    cls = agents()
    server = await serve(cls, limits=Limits(handshake_seconds=0.2))
    silent, slow, second = [await Raw.open(server) for _ in range(3)]
    slow.write(b"GET /agents/assistant/room HTTP/1.1\r\nX-Slow: ")
    second.write(f"GET /nowhere HTTP/1.1\r\nHost: {server.host}\r\n\r\n".encode())
    await second.reader.readuntil(b"\r\n\r\nNot Found")
    second.write(b"GET /nowhere HTT")
    good = await server.connect(cls)

    # Then each is cut, while others are served
    assert await is_served(good)
    cut = [asyncio.create_task(raw.rest()) for raw in (silent, slow, second)]
    while not all(task.done() for task in cut):
        slow.write(b"a")
        await good.settled()
    assert [task.result() for task in cut] == [b"", b"", b""]
    assert await is_served(good)


async def test_a_request_that_is_being_answered_is_not_cut(serve: Serve) -> None:
    go = asyncio.Event()

    async def on_request(self: Any, request: Any) -> Any:
        await go.wait()
        return "done"

    cls = assistant(ScriptedModel(), on_request=on_request)
    server = await serve(cls, limits=Limits(handshake_seconds=0.05))
    asking = asyncio.create_task(server.http("/agents/assistant/room", method="POST"))
    silent = await Raw.open(server)
    assert await silent.rest() == b""
    assert not asking.done()
    go.set()
    assert (await asking).json == "done"


async def test_a_head_has_a_length(serve: Serve) -> None:
    cls = agents()
    server = await serve(cls, limits=Limits(header_bytes=10_000))
    good = await server.connect(cls)
    bad = await Raw.open(server)
    bad.write(b"GET / HTTP/1.1\r\n")
    for _ in range(100):
        bad.write(b"X-Long: " + b"a" * 1000 + b"\r\n")
        await asyncio.sleep(0)
    assert await bad.rest() == b""
    assert await is_served(good)
    assert (
        await server.http("/agents/assistant/room/get-messages", headers={"X-Fine": "a" * 8000})
    ).status == 200


async def test_a_check_that_takes_too_long_is_a_refusal(serve: Serve) -> None:
    never = asyncio.Event()

    async def authenticate(connection: Any) -> Any:
        if connection.query_params.get("slow"):
            await never.wait()
        return True

    cls = agents()
    server = await serve(cls, limits=Limits(handshake_seconds=0.05), authenticate=authenticate)
    with pytest.raises(InvalidStatus) as caught:
        await server.connect("/agents/assistant/slow?slow=1")
    assert caught.value.response.status_code == 503
    assert (await server.http("/agents/assistant/slow?slow=1", method="POST")).status == 503
    assert len(await server.app.open()) == 0
    assert await is_served(await server.connect(cls))


# --- what waits


async def test_messages_that_never_end_do_not_pile_up(serve: Serve) -> None:
    cls = agents()
    server = await serve(cls, limits=Limits(buffered_bytes=300_000))
    good = await server.connect(cls)
    half = [await Raw.socket(server) for _ in range(5)]
    for raw in half:
        raw.write(framed(TEXT, b"x" * 1000, final=False) + framed(CONTINUED, b"x" * 99_000, final=False))
    closed = [asyncio.create_task(raw.closed()) for raw in half]
    done, _ = await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED)
    assert done.pop().result() == (1013, "Too much is being sent at once")
    assert Arriving.in_all <= 300_000
    # A long message of somebody else comes to its end meanwhile
    await good.set_state("y" * 200_000)
    await (await server.connect(cls)).until(lambda: server.clients[-1].state)
    assert await is_served(good)
    for raw in half:
        raw.leave()
    await asyncio.gather(*closed)
    while Arriving.in_all:
        await good.settled()


async def test_who_begins_many_messages_does_not_end_the_slow_one_of_another(serve: Serve) -> None:
    cls = agents()
    server = await serve(cls, limits=Limits(buffered_bytes=400_000))
    good, slow = await server.connect(cls), await Raw.socket(server, address="127.0.0.2")
    begun = b'{"type":"rpc","id":"1","method":"none","args":["' + b"x" * 150_000
    slow.write(framed(TEXT, begun, final=False))
    while Arriving.in_all < len(begun):
        await good.settled()
    bad = [await Raw.socket(server) for _ in range(4)]
    closed = [asyncio.create_task(raw.closed()) for raw in bad]
    for raw in bad:
        raw.write(framed(TEXT, b"x" * 99_000, final=False))
    done, _ = await asyncio.wait(closed, return_when=asyncio.FIRST_COMPLETED)
    assert done.pop().result() == (1013, "Too much is being sent at once")
    slow.write(framed(CONTINUED, b'"]}', final=True))
    answers = [await slow.frame()]
    while b'"rpc"' not in answers[-1][1]:
        answers.append(await slow.frame())
    assert b'"success":false' in answers[-1][1]
    for raw in (slow, *bad):
        raw.leave()
    await asyncio.gather(*closed)


class Deaf:
    """A socket whose reader does not read."""

    async def send_text(self, data: str) -> None:
        await asyncio.Event().wait()

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        await asyncio.Event().wait()


async def test_what_waits_for_slow_readers_is_bounded_in_all() -> None:
    buffers = Buffers(1_000_000)
    slow = [Connection(str(number), Deaf(), None, buffers=buffers) for number in range(100)]
    for connection in slow[:5]:
        connection.send("x" * 150_000)
    for connection in slow[5:]:
        connection.send("x" * 20_000)
        assert buffers._in_all <= 1_000_000
    # The slowest were let go first
    assert all(connection.is_closing for connection in slow[:5])
    assert sum(connection.is_closing for connection in slow[5:]) < 50
    for connection in slow:
        connection._drop()
    assert (buffers._in_all, buffers._waiting) == (0, {})


# --- agents


async def stored_agents(server: Any) -> list[str]:
    store = (await server.app.open()).store
    return sorted(row[0] for row in await store.fetch("SELECT agent FROM agents"))


async def test_an_address_makes_so_many_agents_in_a_minute(serve: Serve) -> None:
    clock, cls = ManualClock(), agents()
    server = await serve(cls, limits=Limits(agents_per_minute=3), clock=clock)
    events = record_events(server.app, "audit")
    tabs = [await server.connect(cls, f"room-{number}") for number in range(3)]
    for tab in tabs:
        await tab.settled()

    assert await refused(server, cls, "room-4") == (
        429,
        "3 conversations were begun from this address in a minute, and no more may be.",
    )
    answer = await server.http("/agents/assistant/room-4", method="POST")
    assert (answer.status, answer.headers["retry-after"]) == (429, "61")
    assert len(await server.app.open()) == 3
    assert {event.payload["action"] for event in events} == {"create"}

    # Those that exist do not count, and after a minute there may be more
    for _ in range(5):
        assert await is_served(await server.connect(cls, "room-0"))
    await clock.advance(60)
    assert await is_served(await server.connect(cls, "room-4"))


async def test_nothing_is_made_by_looking(serve_on: ServeOn) -> None:
    cls = assistant(ScriptedModel.forever(says("ok")), on_request=lambda self, request: "made")
    server = await serve_on(cls, limits=Limits(agents_per_minute=1))
    for number in range(20):
        read = await server.http(f"/agents/assistant/nobody-{number}/get-messages")
        assert (read.status, read.json) == (200, [])
        looked = await server.http(f"/agents/assistant/nobody-{number}/page")
        assert (looked.status, looked.text[:31]) == (404, "This agent does not exist yet, ")
    assert len(await server.app.open()) == 0
    assert await stored_agents(server) == []
    # Who asks for more makes it
    assert (await server.http("/agents/assistant/somebody", method="POST")).json == "made"
    assert (await server.http("/agents/assistant/somebody")).json == "made"


async def test_a_socket_that_says_nothing_leaves_no_row_behind(serve_on: ServeOn) -> None:
    cls = agents()
    server = await serve_on(cls)
    for number in range(5):
        silent = await server.connect(cls, f"silent-{number}")
        await silent.settled()
        await silent.close()
    assert await stored_agents(server) == []
    assert await is_served(await server.connect(cls, "spoken"))
    stater = await server.connect(cls, "stated")
    await stater.set_state(1)
    await stater.settled()
    assert await stored_agents(server) == ["Assistant/spoken", "Assistant/stated"]


async def test_agents_that_nobody_needs_leave_memory_with_their_halls(serve: Serve) -> None:
    clock, cls = ManualClock(), agents()
    server = await serve(cls, clock=clock, idle_after=60)
    halls: list[Any] = []
    for number in range(10):
        tab = await server.connect(cls, f"room-{number}")
        await tab.settled()
        agent: Any = await live(server.app.agent(cls, f"room-{number}"))
        halls.append(weakref.ref(agent._home.sockets))
        await tab.close()
    del agent, tab
    server.clients.clear()
    directory = await server.app.open()
    while len(directory):
        await clock.advance(30)
    while any(hall() for hall in halls):
        gc.collect()
        await asyncio.sleep(0)
    assert not server.app._gate._met


# --- bodies


async def test_a_body_has_a_length_also_when_it_does_not_say_so(serve: Serve) -> None:
    async def on_request(self: Any, request: Any) -> Any:
        return len(await request.body())

    cls = assistant(ScriptedModel.forever(says("ok")), on_request=on_request)
    server = await serve(cls, limits=Limits(frame_bytes=100_000))
    good = await server.connect(cls)
    path = "/agents/assistant/room"
    assert (await server.http(path, method="POST", body=b"x" * 100_000)).json == 100_000
    answer = await server.http(path, method="POST", body=b"x" * 100_001)
    assert (answer.status, answer.text) == (413, "The body is longer than 100000 bytes.")

    # In pieces, without a length, and without an end
    bad = await Raw.open(server)
    head = f"POST {path} HTTP/1.1\r\nHost: {server.host}\r\nTransfer-Encoding: chunked\r\n\r\n"
    bad.write(head.encode())
    for _ in range(200):
        bad.write(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
    assert b" 413 " in await bad.reader.readuntil(b"\r\n\r\n")
    assert await is_served(good)
    bad.leave()


async def test_a_body_that_never_comes_holds_up_nobody(serve: Serve) -> None:
    async def on_request(self: Any, request: Any) -> Any:
        return len(await request.body())

    cls = assistant(ScriptedModel.forever(says("ok")), on_request=on_request)
    server = await serve(cls)
    slow = await Raw.open(server)
    head = f"POST /agents/assistant/room HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: 1000\r\n\r\n"
    slow.write(head.encode())
    assert await is_served(await server.connect(cls))
    slow.leave()
