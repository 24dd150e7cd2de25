"""Whatever a client sends: nothing breaks, nothing grows, nobody else notices."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import tracemalloc
from typing import Any

import pytest

from everthink import Think
from everthink.limits import Limits
from everthink.runtime.rpc import exposed
from everthink.server.chat_sockets import ChatSockets
from everthink.server.connections import Connection
from everthink.testing import ScriptedModel, says
from everthink.wire.codec import Refused, decode

from ..conftest import OpenApp
from ..support.frames import frames
from ..support.samples import sample
from ..support.turns import all_over, home_of
from .conftest import Serve

pytestmark = pytest.mark.anyio

MANY = sample(10_000, 50_000)


class Target(Think):
    model = ScriptedModel.forever(says("ok"))
    heard: list[Any]

    def __init__(self) -> None:
        self.heard = []

    @exposed
    def add(self, a: Any, b: Any) -> Any:
        return [a, b]

    def on_message(self, connection: Any, message: Any) -> None:
        self.heard.append(message)


class Sink:
    """A socket that takes everything and keeps whether it was JSON."""

    def __init__(self) -> None:
        self.count = 0
        self.closed: Any = None

    async def send_text(self, data: str) -> None:
        json.loads(data)
        self.count += 1

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        self.closed = (code, reason)


def is_refused(text: str) -> bool:
    return isinstance(decode(text, Limits()), Refused)


@pytest.mark.slow
async def test_thousands_of_hostile_frames_change_nothing(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    app = await open_app(Target)
    home = await home_of(app, Target)
    hall = home.sockets = ChatSockets(home, home.chat, app.access)
    target: Any = home.agent
    sinks, tabs, pumps = [Sink(), Sink()], list[Any](), list[Any]()

    async def come(place: int) -> None:
        """Connect, or connect anew after a frame that was over a bound."""
        if tabs[place:]:
            await pumps[place]
            await hall.leave(tabs[place], *sinks[place].closed)
            assert sinks[place].closed[0] == 1008
        sinks[place] = Sink()
        tabs[place : place + 1] = [Connection(str(place), sinks[place], None)]
        pumps[place : place + 1] = [asyncio.create_task(tabs[place].pump())]
        await hall.join(tabs[place], None)

    await come(0)
    await come(1)

    async def fire(seed: int, count: int) -> None:
        foreign: list[Any] = []
        for number, frame in enumerate(frames(seed, count)):
            if isinstance(frame, bytes) or decode(frame, Limits()) is None:
                foreign.append(frame)
            await hall.receive(tabs[number % 2], frame)
            if tabs[number % 2].is_closing:
                await come(number % 2)
            if number % 500 == 499:
                await asyncio.sleep(0)
                # The application saw what is not ours, unchanged and in order, and nothing else.
                assert target.heard == foreign
                target.heard.clear()
                foreign.clear()
        await hall.receive(tabs[0], '{"type":"cf_agent_chat_clear"}')
        await all_over(app, Target)
        await hall.receive(tabs[0], '{"type":"cf_agent_state","state":{"count":1}}')
        target.heard.clear()
        while home._tasks:
            await asyncio.wait(home._tasks)

    await fire(1, MANY - 10_000)
    gc.collect()
    tracemalloc.start()
    await fire(2, 5_000)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    await fire(3, 5_000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown < 300_000
    assert sorted(tab.id for tab in hall.connections) == ["0", "1"]
    assert not hall.audience.held
    assert not hall.audience.parked
    assert not hall.state.accepted
    assert hall.state.active is None
    assert len(hall.state.over) <= 100
    assert len(home.chat.browser.tools) <= 1
    assert not home.chat.host.aborts._controllers
    assert [record for record in caplog.records if "raised" in record.message] == []
    assert [sink.closed for sink in sinks] == [None, None]
    # and the agent is well
    result = await app.agent(Target).save_messages("Still there?")
    assert result.status == "completed"
    for pump in pumps:
        pump.cancel()


async def test_hostile_frames_over_a_socket_disturb_nobody(serve: Serve) -> None:
    server = await serve(Target)
    bad, good = await server.connect(Target, id="bad"), await server.connect(Target, id="good")
    for frame in frames(7, 500):
        text = frame if isinstance(frame, bytes) else frame.encode("utf-8", "replace").decode()
        if isinstance(text, str) and is_refused(text):
            continue  # its sender would be closed
        await bad.send(text)
    await bad.settled()
    await good.clear()
    await good.settled()
    await good.until_done(await good.say("Hi", id="honest"))
    assert good.text == "ok"
    assert bad.closed is None
    assert good.closed is None


async def test_a_text_that_is_not_unicode_closes_only_its_own_socket(serve: Serve) -> None:
    server = await serve(Target)
    bad, good = await server.connect(Target), await server.connect(Target)
    await bad._connection._socket.send(b"\xff\xfe", text=True)
    assert (await bad.until_closed())[0] == 1007
    await good.until_done(await good.say("Hi"))
    assert good.text == "ok"
