"""Asking for too much: turns, calls, replays, a state. The bound is in the words, and others are served."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import Think
from everthink.messages import user_message
from everthink.runtime.rpc import exposed
from everthink.server import Limits
from everthink.testing import ScriptedModel, says
from everthink.wire.offers import MOST_STREAMS, Offers
from tests.support.agents import live

from ..support.agents import assistant
from ..support.turns import record_events
from .conftest import Serve

pytestmark = pytest.mark.anyio


# --- turns that wait


async def test_a_client_may_not_pile_up_turns(serve: Serve) -> None:
    # Given one turn that runs and as many as may wait
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("One.").waits(go), *[says("More.")] * 4))
    server = await serve(cls, limits=Limits(waiting_turns=2))
    bad, good = await server.connect(cls, id="bad"), await server.connect(cls, id="good")
    requests = [await bad.request([user_message(str(n), id=f"u{n}")]) for n in range(3)]
    await bad.settled()

    # When one more is asked for
    refused = await bad.until_done(await bad.request([user_message("too many", id="u9")]))

    # Then it is refused with the number, and nothing of it is stored
    assert refused["error"] is True
    assert "2 requests wait here already, and 2 may." in refused["body"]
    # and the application's own turns are not bound by that
    agent = server.app.agent(cls, "room")
    own = asyncio.create_task(agent.save_messages("From code"))
    go.set()
    for request in requests:
        assert (await bad.until_done(request))["outcome"] == "completed"
    assert (await own).status == "completed"
    stored = [message.text for message in await agent.get_messages() if message.role == "user"]
    assert stored == ["0", "1", "2", "From code"]
    # and when there is room again, it is taken
    go.clear()
    assert (await good.until_done(await good.say("Now"))).get("outcome") != "error"


async def test_what_waits_for_one_agent_is_nothing_to_another(serve: Serve) -> None:
    go = asyncio.Event()
    cls = assistant(ScriptedModel.forever(says("Hi.").waits(go)))
    server = await serve(cls, limits=Limits(waiting_turns=1))
    bad = await server.connect(cls, "crowded")
    for number in range(5):
        await bad.request([user_message("x", id=f"u{number}")], id=f"r{number}")
    await bad.until_done("r4")
    go.set()
    good = await server.connect(cls, "elsewhere")
    assert (await good.until_done(await good.say("Hi")))["outcome"] == "completed"


# --- calls


class Desk(Think):
    model = ScriptedModel.forever(says("ok"))
    go: asyncio.Event
    touched: list[str]

    def __init__(self) -> None:
        self.go, self.touched = asyncio.Event(), []

    @exposed
    async def wait(self) -> str:
        await self.go.wait()
        return "done"

    @exposed
    def add(self, secret_a: int, secret_b: int = 0) -> int:
        return secret_a + secret_b

    @exposed
    def inside(self) -> None:
        int([])  # type: ignore[call-overload]

    @property
    def balance(self) -> int:
        self.touched.append("balance")
        return 7

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name != "touched":
            self.touched.append(name)
        raise AttributeError(name)

    def hidden(self) -> None:
        self.touched.append("hidden")


async def test_a_connection_has_so_many_calls_at_once(serve: Serve) -> None:
    server = await serve(Desk, limits=Limits(calls_at_once=3))
    bad, good = await server.connect(Desk, id="bad"), await server.connect(Desk, id="good")
    waiting = [await bad.start_call("wait") for _ in range(3)]
    [refused] = await bad.call("add", 1)
    assert refused["success"] is False
    assert refused["error"] == "3 calls of this connection run already; wait for one of them"
    # Another connection has its own
    assert (await good.call("add", 1, 2))[-1]["result"] == 3
    agent: Any = await live(server.app.agent(Desk, "room"))
    agent.go.set()
    for call in waiting:
        await bad.until(lambda call=call: bad.answers(call))
    assert (await bad.call("add", 1, 2))[-1]["result"] == 3


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("balance", "Method balance does not exist"),
        ("anything", "Method anything does not exist"),
        ("touched", "Method touched does not exist"),
        ("__init__", "Method __init__ does not exist"),
        ("hidden", "Method hidden is not callable"),
        ("set_state", "Method set_state is not callable"),
    ],
)
async def test_looking_for_a_method_runs_nothing_of_the_agent(serve: Serve, method: str, error: str) -> None:
    server = await serve(Desk)
    bad = await server.connect(Desk)
    await bad.settled()
    agent: Any = await live(server.app.agent(Desk, "room"))
    agent.touched.clear()
    [answer] = await bad.call(method)
    assert (answer["success"], answer["error"]) == (False, error)
    assert agent.touched == []


@pytest.mark.parametrize("args", [(), (1, 2, 3), ("x",) * 100])
async def test_arguments_that_do_not_fit_tell_how_many_do_and_no_more_of_the_method(
    serve: Serve, args: Any
) -> None:
    server = await serve(Desk)
    bad = await server.connect(Desk)
    [answer] = await bad.call("add", *args)
    assert answer["error"] == f"Method add takes other arguments than these {len(args)}: it takes 1 to 2"


async def test_a_type_error_inside_a_method_is_not_about_its_arguments(serve: Serve) -> None:
    server = await serve(Desk)
    chat = await server.connect(Desk)
    [answer] = await chat.call("inside")
    assert "takes other arguments" not in answer["error"]


# --- replays


def replayed(tab: Any, request: str) -> int:
    return sum(frame.get("replayComplete", False) for frame in tab.responses(request))


async def test_a_stream_is_replayed_once_for_each_offer(serve: Serve) -> None:
    # Given a long answer in the middle of its stream
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("x" * 50_000).waits(go).says("the end")))
    server = await serve(cls, limits=Limits(replays=3))
    owner = await server.connect(cls, id="owner")
    request = await owner.say("Talk")
    await owner.until(lambda: len(owner.text) == 50_000)
    bad = await server.connect(cls, id="bad")
    await bad.until_frame("stream_resuming")

    # When somebody acks it again and again, it is told once
    for _ in range(200):
        await bad.ack(request)
    await bad.settled()
    assert replayed(bad, request) == 1

    # and when they ask for an offer each time, so often and no more
    for _ in range(50):
        await bad.probe("again")
        await bad.ack(request)
    await bad.settled()
    assert replayed(bad, request) == 3

    # Then everybody goes on live, and nobody missed anything
    await bad.ack(request)
    await bad.set_state("acked")
    await owner.until_frame("state")
    go.set()
    assert (await owner.until_done(request))["outcome"] == "completed"
    await bad.until_done(request)
    assert owner.text == "x" * 50_000 + "the end"
    assert "the end" in "".join(frame["body"] for frame in bad.responses(request))


async def test_a_failure_is_told_once_for_each_offer(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("x" * 50_000).then_fails("broken")))
    server = await serve(cls, limits=Limits(replays=2))
    owner = await server.connect(cls, id="owner")
    request = await owner.say("Talk")
    await owner.until_done(request)
    bad = await server.connect(cls, id="bad")
    for _ in range(20):
        await bad.ack(request)
    await bad.settled()
    assert sum(frame["done"] for frame in bad.responses(request)) == 1
    for _ in range(20):
        await bad.probe("again")
        await bad.ack(request)
    await bad.settled()
    assert sum(frame["done"] for frame in bad.responses(request)) == 2


FLOODS: dict[str, Any] = {
    "probes": {"type": "cf_agent_stream_resume_request", "probeId": "p" * 128},
    "acks of what nobody knows": {"type": "cf_agent_stream_resume_ack", "id": "x" * 128},
    "acks of what is over": {"type": "cf_agent_stream_resume_ack", "id": "over"},
    "cancels": {"type": "cf_agent_chat_request_cancel", "id": "x" * 128},
    "states": {"type": "cf_agent_state", "state": "x" * 200},
    "transcripts": {"type": "cf_agent_chat_messages", "messages": ["x" * 200]},
    "calls": {"type": "rpc", "id": "1", "method": "x" * 128, "args": []},
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_no_frame_makes_the_server_say_much_more_than_was_said_to_it(serve: Serve, flood: str) -> None:
    # Given a conversation with something in it
    cls = assistant(ScriptedModel.forever(says("word " * 2000)))
    server = await serve(cls)
    good, bad = await server.connect(cls, id="good"), await server.connect(cls, id="bad")
    await good.until_done(await good.say("Talk", id="over"))
    await bad.settled()
    before = len(bad.frames)

    text = json.dumps(FLOODS[flood])
    for _ in range(300):
        await bad.send(text)
    await bad.settled()
    told = sum(len(json.dumps(frame)) for frame in bad.frames[before:])
    assert told <= 2 * 300 * len(text) + 1000
    assert (await good.until_done(await good.say("Still there?")))["outcome"] == "completed"


def test_offers_remember_the_latest_streams_only() -> None:
    offers = Offers()
    for number in range(1000):
        offers.offer(str(number))
        assert offers.take(str(number), 1)
    assert len(offers._streams) == MOST_STREAMS
    assert not offers.take("999", 9)
    offers.offer("999")
    assert not offers.take("999", 1)


# --- state


async def test_a_state_has_a_size(serve: Serve) -> None:
    cls = assistant(ScriptedModel.forever(says("ok")))
    server = await serve(cls, limits=Limits(state_bytes=10_000))
    events = record_events(server.app, "audit")
    bad, good = await server.connect(cls, id="bad"), await server.connect(cls, id="good")
    for size in (10_001, 200_000):
        await bad.set_state("x" * (size - 2))
        errors = len(bad.of("state_error"))
        await bad.until(lambda errors=errors: len(bad.of("state_error")) > errors or errors == 2)
    assert all("longer than" in frame["error"] for frame in bad.of("state_error"))
    assert {event.payload["action"] for event in events} <= {"state", "frame"}
    assert good.of("state") == []
    # What is honest passes
    await bad.set_state("x" * 9_998)
    await good.until_frame("state")
    # and the application may keep what it likes
    agent: Any = await live(server.app.agent(cls, "room"))
    await agent.set_state("y" * 100_000)
    await good.until_frame("state", count=2)
