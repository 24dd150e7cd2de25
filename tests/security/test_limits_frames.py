"""Frames that are too much: refused where the sender sees it, while others are served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import Think
from everthink.runtime.rpc import exposed
from everthink.server import Limits
from everthink.testing import ScriptedModel, says
from tests.support.agents import live

from ..support.raw import BINARY, CONTINUED, PING, PONG, TEXT, Raw, framed
from ..support.turns import record_events
from .conftest import Serve

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


class Assistant(Think):
    model = ScriptedModel.forever(says("ok"))
    heard: list[Any]

    def __init__(self) -> None:
        self.heard = []

    @exposed
    def size(self, value: Any) -> int:
        return len(value)

    def on_message(self, connection: Any, message: Any) -> None:
        self.heard.append(message)


def request(id: str, body: str) -> str:
    return json.dumps(
        {"type": "cf_agent_use_chat_request", "id": id, "init": {"method": "POST", "body": body}}
    )


async def is_served(chat: Any) -> bool:
    """Whether somebody else gets an answer."""
    return (await chat.until_done(await chat.say("Hi")))["outcome"] == "completed"


BOMBS = {
    "lists": "[]," * 400_000 + "[]",
    "objects": '{"":1},' * 200_000 + "1",
    "texts": '"",' * 400_000 + '""',
    "numbers": "1," * 400_000 + "1",
    "slow numbers": "1.2345678901234567e-300," * 198_000 + "1",
    "few bytes of slow numbers": "1e300," * 250 + "1",
    "long numbers": ("9" * 4200 + ",") * 1800 + "1",
    "a long number": "9" * 41,
    "levels": "[" * 500 + "]" * 500,
    "endless levels": "[" * 1_000_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_frame_that_would_unfold_is_refused_where_its_sender_sees_it(serve: Serve, bomb: str) -> None:
    server = await serve(Assistant)
    events = record_events(server.app, "audit")
    bad, good = await server.connect(Assistant, id="bad"), await server.connect(Assistant, id="good")

    await bad.send('{"type":"cf_agent_state","state":[' + BOMBS[bomb] + "]}")
    told = await bad.until_frame("state_error")
    assert told["error"].startswith("This frame ")
    assert told["error"].endswith("Nothing was done.")

    await bad.send('{"type":"rpc","id":"c1","method":"size","args":[[' + BOMBS[bomb] + "]]}")
    if bomb != "endless levels":  # nobody can tell its id
        answer = await bad.until_frame("rpc")
        assert answer["id"] == "c1"
        assert answer["success"] is False
    else:
        assert (await bad.until_closed())[0] == 1008

    assert await is_served(good)
    refused = [event for event in events if event.payload["action"] == "frame"]
    assert [event.payload["target"] for event in refused] == ["cf_agent_state", "rpc"]
    assert {event.payload["connectionId"] for event in refused} == {"bad"}
    assert not any(event.payload["allowed"] for event in refused)


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_request_whose_body_would_unfold_is_an_error_of_that_request(serve: Serve, bomb: str) -> None:
    server = await serve(Assistant)
    bad, good = await server.connect(Assistant, id="bad"), await server.connect(Assistant, id="good")
    await bad.send(request("r1", '{"messages":[' + BOMBS[bomb] + "]}"))
    done = await bad.until_done("r1")
    assert done["error"] is True
    assert bad.closed is None
    assert await is_served(good)
    assert [message.text for message in good.messages] == ["Hi", "ok"]


SLOW = "1.7976931348623157e308," * 70_000 + "1"


@pytest.mark.parametrize(
    "part",
    [
        '"parts":[{"type":"text","text":"x"},{"type":"data-x","data":[%s]}]',
        '"parts":[],"metadata":{"x":[%s]}',
    ],
    ids=["data", "metadata"],
)
async def test_slow_numbers_in_a_message_are_never_stored(serve: Serve, part: str) -> None:
    server = await serve(Assistant)
    bad, good = await server.connect(Assistant, id="bad"), await server.connect(Assistant, id="good")
    await bad.send(request("r1", '{"messages":[{"id":"u1","role":"user",' + part % SLOW + "}]}"))
    done = await bad.until_done("r1")
    assert done["error"] is True
    assert "slow to read" in done["body"]
    assert await is_served(good)
    assert [message.text for message in good.messages] == ["Hi", "ok"]


async def test_slow_numbers_as_the_result_of_a_tool_end_the_socket(serve: Serve) -> None:
    server = await serve(Assistant)
    bad, good = await server.connect(Assistant, id="bad"), await server.connect(Assistant, id="good")
    await bad.send('{"type":"cf_agent_tool_result","toolCallId":"c1","output":[' + "1e300," * 250 + "1]}")
    code, reason = await bad.until_closed()
    assert code == 1008
    assert "slow to read" in reason
    assert await is_served(good)


async def test_a_frame_longer_than_the_bound_ends_its_socket_with_the_bound(serve: Serve) -> None:
    server = await serve(Assistant, limits=Limits(frame_bytes=100_000))
    bad, good = await server.connect(Assistant, id="bad"), await server.connect(Assistant, id="good")
    await bad.send("x" * 100_001)
    code, reason = await bad.until_closed()
    assert code == 1009
    assert "100000" in reason
    assert await is_served(good)


async def test_fragments_count_together_and_cannot_go_on_for_ever(serve: Serve) -> None:
    server = await serve(Assistant, limits=Limits(frame_bytes=100_000))
    good = await server.connect(Assistant)
    bad = await Raw.socket(server)
    bad.write(framed(TEXT, b"x" * 1000, final=False))
    for _ in range(200):
        bad.write(framed(CONTINUED, b"x" * 1000, final=False))
    assert (await bad.closed() or (0, ""))[0] == 1009
    assert await is_served(good)


async def test_empty_fragments_pile_nothing_up(serve: Serve) -> None:
    # Given a message that goes on without an end and without a byte
    server = await serve(Assistant)
    good = await server.connect(Assistant, id="good")
    bad = await Raw.socket(server)
    bad.write(framed(TEXT, b"he", final=False) + framed(CONTINUED, final=False) * 20_000)
    assert await is_served(good)
    agent: Any = await live(server.app.agent(Assistant, "room"))
    [socket] = [one for one in agent.connections if one.id != "good"]
    assert len(socket._now.__self__._protocol.frames) == 1
    # When it ends after all, it is one message of what was in it
    bad.write(framed(CONTINUED, b"llo") + framed(TEXT, b"again"))
    while len(agent.heard) < 2:
        await good.settled()
    assert agent.heard == ["hello", "again"]
    bad.leave()


@pytest.mark.slow
async def test_a_flood_of_small_frames_keeps_nobody_waiting(serve: Serve) -> None:
    # Given a hundred thousand frames of seven bytes, in one go
    server = await serve(Assistant)
    good = await server.connect(Assistant)
    bad = await Raw.socket(server)
    bad.write(framed(TEXT, b"x") * 100_000)
    # Then others have their turn long before the last of them is read
    agent: Any = await live(server.app.agent(Assistant, "room"))
    assert await is_served(good)
    assert len(agent.heard) < 75_000
    while len(agent.heard) < 100_000:
        await good.settled()
    bad.leave()


async def test_a_flood_of_pings_keeps_nobody_waiting_and_is_answered_while_it_is_read(serve: Serve) -> None:
    server = await serve(Assistant)
    good = await server.connect(Assistant)
    bad = await Raw.socket(server)
    bad.write(framed(PING, b"p" * 100) * 2000)
    for _ in range(2000):
        while (await bad.frame())[0] != PONG:
            pass
    # Nobody reads these
    bad.reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(100):
        bad.write(framed(PING, b"p" * 125) * 1000)
        await asyncio.sleep(0)
    assert await is_served(good)
    bad.leave()


async def test_binary_frames_are_the_applications_own(serve: Serve) -> None:
    server = await serve(Assistant)
    bad = await Raw.socket(server)
    bad.write(framed(BINARY, b'{"type":"cf_agent_chat_clear"}') + framed(BINARY, b"\xff" * 70_000))
    good = await server.connect(Assistant)
    assert await is_served(good)
    agent: Any = await live(server.app.agent(Assistant, "room"))
    while len(agent.heard) < 2:
        await good.settled()
    assert agent.heard == [b'{"type":"cf_agent_chat_clear"}', b"\xff" * 70_000]
    assert [message.text for message in good.messages] == ["Hi", "ok"]
    bad.leave()


async def test_long_texts_reach_the_application_as_text(serve: Serve) -> None:
    server = await serve(Assistant)
    chat = await server.connect(Assistant)
    long = "\U0001f600 not a frame " * 10_000
    await chat.send(long)
    await chat.settled()
    agent: Any = await live(server.app.agent(Assistant, "room"))
    assert (agent.heard == [long]) is True


async def test_a_long_text_that_is_not_unicode_harms_nobody(serve: Serve) -> None:
    server = await serve(Assistant)
    good = await server.connect(Assistant)
    bad = await Raw.socket(server)
    bad.write(framed(TEXT, b'{"type":"rpc","id":"1","method":"size","args":["' + b"\xff" * 100_000 + b'"]}'))
    bad.write(framed(TEXT, b"\xff" * 100_000))
    assert (await bad.closed() or (0, ""))[0] == 1007
    assert await is_served(good)


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "cf_agent_use_chat_request", "id": "x" * 129, "init": {"method": "POST", "body": "{}"}},
        {"type": "cf_agent_chat_request_cancel", "id": "x" * 129},
        {"type": "cf_agent_stream_resume_ack", "id": "x" * 129},
        {"type": "cf_agent_stream_resume_request", "probeId": "x" * 129},
        {"type": "cf_agent_tool_result", "toolCallId": "x" * 129, "output": 1},
        {"type": "cf_agent_tool_approval", "toolCallId": "x" * 129, "approved": True},
        {"type": "rpc", "id": "x" * 129, "method": "size", "args": [[]]},
        {"type": "rpc", "id": "x", "method": "x" * 129, "args": [[]]},
    ],
    ids=lambda frame: frame["type"],
)
async def test_an_id_has_128_characters_at_most(serve: Serve, frame: dict[str, Any]) -> None:
    server = await serve(Assistant)
    bad, good = await server.connect(Assistant, id="bad"), await server.connect(Assistant, id="good")
    await bad.send(json.loads(json.dumps(frame).replace("x" * 129, "x" * 128)))
    await bad.settled()
    await bad.send(frame)
    code, reason = await bad.until_closed()
    assert code == 1008
    assert "128 characters" in reason
    assert await is_served(good)


async def test_a_connection_with_a_long_id_is_refused(serve: Serve) -> None:
    server = await serve(Assistant)
    answer = await server.http(
        "/agents/assistant/room?_pk=" + "x" * 129,
        headers={
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": "A" * 22 + "==",
            "Sec-WebSocket-Version": "13",
        },
    )
    assert answer.status == 400
    assert "128 characters" in answer.text
    assert await is_served(await server.connect(Assistant, id="x" * 128))


async def test_what_is_honest_passes_at_its_full_size(serve: Serve) -> None:
    server = await serve(Assistant)
    chat = await server.connect(Assistant)
    assert (await chat.call("size", "\U0001f600" + "x" * (15 * MIB)))[-1]["result"] == 15 * MIB + 1
    assert (await chat.call("size", list(range(70_000))))[-1]["result"] == 70_000
    assert (await chat.call("size", [n / 7 for n in range(3072)]))[-1]["result"] == 3072
    deep: Any = []
    for _ in range(120):
        deep = [deep]
    assert (await chat.call("size", deep))[-1]["result"] == 1
    assert await is_served(chat)
