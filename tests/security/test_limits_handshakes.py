"""Handshakes that are none, heads that are too long, methods and addresses that mean nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.server import Limits
from everthink.testing import ScriptedModel, calls, says

from ..support.agents import assistant
from ..support.raw import Raw
from .conftest import Serve
from .doors import READ, REQUEST, ROOM, socket
from .strangers import by_token, people, shop

pytestmark = pytest.mark.anyio

UPGRADE = (
    f"GET {{path}} HTTP/1.1\r\nHost: {{host}}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n"
)
BODIES = {
    "a length and a body": b"Content-Length: 5\r\n\r\nabcde",
    "a length and no body": b"Content-Length: 5\r\n\r\n",
    "pieces": b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
    "a long line": b"X-Long: " + b"a" * 9000 + b"\r\n\r\n",
    "many lines": b"X-Many: a\r\n" * 200 + b"\r\n",
}


async def shake(server: Any, rest: bytes, path: str = ROOM) -> Raw:
    raw = await Raw.open(server)
    raw.write(UPGRADE.format(path=path, host=server.host).encode() + rest)
    return raw


def agents(**members: Any) -> Any:
    return assistant(ScriptedModel.forever(says("ok")), **members)


@pytest.mark.parametrize("rest", BODIES.values(), ids=BODIES)
async def test_a_handshake_that_is_none_is_answered_and_closed_at_once(serve: Serve, rest: bytes) -> None:
    server = await serve(cls := agents())
    for path in (ROOM, "/nowhere"):
        raw = await shake(server, rest, path)
        said = await raw.rest()
        assert said[9:12] in (b"400", b"431")
    assert not server._server.server_state.connections
    chat = await server.connect(cls)
    assert (await chat.until_done(await chat.say("Hi")))["outcome"] == "completed"


async def test_a_handshake_with_a_body_does_not_cut_what_an_approved_call_does_when_the_server_stops(
    serve: Serve,
) -> None:
    # Given an approved refund that runs, and a socket that is no socket
    running, go = asyncio.Event(), asyncio.Event()
    cls = shop(ScriptedModel(calls("refund", {"order": "A", "amount": 7}, id="c1"), says("Done.")))

    async def slow(self: Any, call: Any) -> None:
        running.set()
        await go.wait()

    cls.before_tool_call = slow  # type: ignore[method-assign]
    server = await serve(cls, authenticate=by_token, grace=30.0)
    [ada] = await people(server, cls, "ada")
    await ada.until_done(await ada.say("Refund A"))
    raw = await shake(server, BODIES["a length and no body"], "/nowhere")
    await ada.approve("c1")
    await running.wait()

    # When the server is told to stop
    stopping = asyncio.create_task(server.stop())
    await ada.until_closed()
    go.set()
    await stopping

    # Then nothing raised, and the money was paid
    assert cls.paid == [("A", 7)]
    raw.leave()


async def test_a_socket_that_cannot_be_closed_in_order_does_not_stop_the_end(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    def shutdown(self: Any) -> None:
        raise AssertionError

    server = await serve(cls := agents())
    chat = await server.connect(cls)
    await chat.settled()
    monkeypatch.setattr(WebSocketsSansIOProtocol, "shutdown", shutdown)
    await server.stop()
    await chat.until_closed()


# --- heads


@pytest.mark.parametrize("is_socket", [True, False], ids=["socket", "request"])
async def test_a_head_that_is_too_long_is_refused_also_when_it_comes_at_once(
    serve: Serve, is_socket: bool
) -> None:
    asked: list[Any] = []
    server = await serve(
        agents(),
        limits=Limits(header_bytes=10_000),
        authenticate=lambda request: asked.append(request) or True,
    )
    fields = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 1000) for number in range(12))
    if is_socket:
        raw = await shake(server, fields + b"\r\n")
    else:
        raw = await Raw.open(server)
        raw.write(
            f"GET {READ} HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\n".encode() + fields + b"\r\n"
        )
    said = await raw.rest()
    assert said[9:12] == b"431"
    assert b"at most 10000 bytes" in said
    assert asked == []


async def test_a_head_behind_a_request_that_is_being_answered_has_an_end_too(serve: Serve) -> None:
    never = asyncio.Event()

    async def on_request(self: Any, request: Any) -> Any:
        await never.wait()

    server = await serve(
        agents(on_request=on_request), limits=Limits(header_bytes=10_000, handshake_seconds=0.2)
    )
    first = f"POST {REQUEST} HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: 0\r\n\r\n".encode()
    slow, long = await Raw.open(server), await Raw.open(server)
    slow.write(first + b"GET / HTTP/1.1\r\nX-Slow: a")
    assert await slow.rest() == b""
    long.write(first)
    for _ in range(100):
        long.write(b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 1000)
        await asyncio.sleep(0)
    assert await long.rest() == b""
    never.set()  # or the server waits for its answers as long as it may


# --- methods, origins, addresses


async def test_a_conversation_is_only_read(serve: Serve) -> None:
    server = await serve(cls := agents())
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hi"))
    for method in ("PUT", "DELETE", "PATCH", "TRACE", "OPTIONS"):
        answer = await server.http(READ, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST"), method
        assert "Hi" not in answer.text
    assert len((await server.http(READ)).json) == 2


async def test_a_page_of_another_origin_asks_for_no_options(serve: Serve) -> None:
    reached: list[str] = []

    def on_request(self: Any, request: Any) -> Any:
        reached.append(request.method)
        return "here"

    server = await serve(agents(on_request=on_request), allow_origins=["https://friend.example"])
    assert (await server.http(REQUEST, method="POST")).status == 200
    reached.clear()
    answer = await server.http(REQUEST, method="OPTIONS", headers={"Origin": "https://evil.example"})
    assert answer.status == 403
    assert reached == []
    for headers in ({}, {"Origin": "https://friend.example"}):
        assert (await server.http(REQUEST, method="OPTIONS", headers=headers)).json == "here"


async def test_an_address_below_an_agent_is_not_that_agent(serve: Serve) -> None:
    server = await serve(cls := agents(on_request=lambda self, request: "ada"))
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hi"))
    below = f"{ROOM}/sub/assistant/bob"
    # Its class is not that of a child of this agent, and nobody made one.
    tab = await server.connect(below)
    assert await tab.until_closed() == (4404, "Sub-agent connection rejected (404)")
    for path in (below, f"{below}/get-messages"):
        assert (await server.http(path)).status == 404, path
    # A path of one's own is the agent's to answer
    assert await socket(server, f"{ROOM}/other") == (101, "")
    assert (await server.http(f"{ROOM}/subject")).json == "ada"
