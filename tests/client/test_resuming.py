"""A program whose connection is lost: nothing is lost, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from everthink import Think, exposed, tool
from everthink import chunks as ui
from everthink.client import Conversation, Reply
from everthink.errors import NotConnected
from everthink.testing import ScriptedModel, calls, opens, says

from ..support.agents import assistant
from ..support.cable import Cable
from ..support.hooks import until
from ..support.server import Served
from .conftest import Enter, Serve

pytestmark = pytest.mark.anyio

Lay = Callable[[Served], Cable]


class Notices:
    """What the person is told about the connection, and when."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, text: str) -> None:
        self.told.append(text)
        self._more.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(20):
            while not any(text in told for told in self.told):
                self._more.clear()
                await self._more.wait()
        self.told.clear()


async def words(reply: Reply, until: str = "\0") -> list[str]:
    """The pieces of text of an answer, until one of them."""
    found: list[str] = []
    async for chunk in reply:
        if isinstance(chunk, ui.TextDelta):
            found.append(chunk.delta)
            if chunk.delta == until:
                break
    return found


async def stored(server: Served, room: Conversation, count: int) -> None:
    """Return once so many messages are stored."""
    async with asyncio.timeout(20):
        while len((await server.http(f"/agents/{room.agent}/room/get-messages")).json) < count:
            pass


@pytest.mark.parametrize("comes_back", ["while it goes on", "when all is said"])
async def test_an_answer_that_was_cut_off_comes_whole_and_once(
    serve: Serve, enter: Enter, cable_to: Lay, comes_back: str
) -> None:
    # Given an answer that has come to its middle
    go, notices = asyncio.Event(), Notices()
    cls = assistant(ScriptedModel(says("one ", "two ").waits(go).says("three ", "four.")))
    server = await serve(cls)
    cable = cable_to(server)
    room = await enter(cable, cls, notice=notices)
    reply = room.say("Count")
    assert await words(reply, until="two ") == ["one ", "two "]

    # When the connection is lost, and is there again early or late
    cable.pull()
    await notices.until("connection lost")
    if comes_back == "when all is said":
        go.set()
        await stored(server, room, 2)
    cable.plug()
    await notices.until("connected again")
    go.set()

    # Then everything was said once
    assert "".join(await words(reply)) == "one two three four."
    assert (await reply).text == "one two three four."
    assert [m.text for m in room.messages] == ["Count", "one two three four."]


async def test_what_is_said_while_nobody_listens_is_sent_when_somebody_does(
    serve: Serve, enter: Enter, cable_to: Lay
) -> None:
    notices = Notices()
    cls = assistant(ScriptedModel(says("Here.")))
    server = await serve(cls)
    cable = cable_to(server)
    room = await enter(cable, cls, notice=notices)
    cable.pull()
    await notices.until("connection lost")

    reply = room.say("Are you there?")
    cable.plug()

    assert (await asyncio.wait_for(reply.ended(), 20)) == "completed"
    assert [m.text for m in room.messages] == ["Are you there?", "Here."]


async def test_a_request_that_was_lost_is_sent_again_once_others_are_answered(
    serve: Serve, enter: Enter, cable_to: Lay
) -> None:
    # Given somebody else who is being answered
    go, notices = asyncio.Event(), Notices()
    model = ScriptedModel(says("one ").waits(go).says("two."), says("Yours."))
    cls = assistant(model)
    server = await serve(cls)
    other = await enter(server, cls)
    cable = cable_to(server)
    room = await enter(cable, cls, notice=notices)
    theirs = other.say("Count")
    await words(theirs, until="one ")

    # When a message is sent into a connection that is dead and does not know it
    with cable.deaf():
        reply = room.say("And me?")
        assert await asyncio.to_thread(cable.swallowed.wait, 20)
    await notices.until("connected again")
    go.set()

    # Then it is answered after them, once
    assert (await asyncio.wait_for(reply, 20)).text == "Yours."
    assert [m.text for m in room.messages] == ["Count", "one two.", "And me?", "Yours."]
    assert len(model.requests) == 2


async def test_an_approval_that_was_lost_is_given_again(serve: Serve, enter: Enter, cable_to: Lay) -> None:
    class Careful(Think):
        model = ScriptedModel(calls("delete", {}, id="c1"), says("Gone."))

        @tool(needs_approval=True)
        def delete(self) -> str:
            """Delete it."""
            return "gone"

    server = await serve(Careful)
    cable = cable_to(server)
    room = await enter(cable, Careful)
    await room.ask("Delete it")

    with cable.deaf():
        deciding = asyncio.create_task(room.approve("c1"))
        assert await asyncio.to_thread(cable.swallowed.wait, 20)
    reply = await asyncio.wait_for(deciding, 20)

    assert (await asyncio.wait_for(reply, 20)).text == "Gone."


async def test_a_call_that_was_cut_off_is_not_made_again(serve: Serve, enter: Enter, cable_to: Lay) -> None:
    go, ran = asyncio.Event(), list[str]()

    class Desk(Think):
        model = ScriptedModel()

        @exposed
        async def slow(self) -> str:
            ran.append("slow")
            begun.set()
            await go.wait()
            return "done"

    begun = asyncio.Event()
    cable = cable_to(await serve(Desk))
    room = await enter(cable, Desk)
    call = asyncio.create_task(room.call("slow"))
    await begun.wait()
    cable.pull()
    with pytest.raises(NotConnected, match="Whether it ran is not known"):
        await call
    cable.plug()
    go.set()
    assert ran == ["slow"]


@pytest.mark.parametrize(
    ("code", "comes_back"),
    [(1012, True), (1013, True), (1011, True), (1008, False), (4401, False), (4000, False)],
)
async def test_a_client_comes_back_or_stays_away_as_the_code_says(
    serve: Serve, enter: Enter, code: int, comes_back: bool
) -> None:
    notices, met = Notices(), list[Any]()

    class Door(Think):
        model = ScriptedModel(says("Hello."))

        def on_connect(self, connection: Any, request: Any) -> None:
            met.append(connection)

    room = await enter(await serve(Door), Door, notice=notices)
    met[0].close(code, "Because")

    if comes_back:
        await notices.until("connected again")
        assert (await room.ask("Hi")).text == "Hello."
    else:
        await notices.until(f"closed the conversation with code {code}: Because")
        with pytest.raises(NotConnected) as raised:
            room.say("Hi")
        assert raised.value.code == code
        assert len(met) == 1


async def test_patience_has_an_end_when_it_was_given_one(serve: Serve, enter: Enter, cable_to: Lay) -> None:
    cls = assistant(ScriptedModel(says("Never.").then_hangs()))
    cable = cable_to(await serve(cls))
    room = await enter(cable, cls, patience=0.01)
    reply = room.say("Hi")
    await words(reply, until="Never.")
    cable.pull()
    with pytest.raises(NotConnected, match="Nobody answers"):
        await asyncio.wait_for(reply.ended(), 20)
    assert isinstance(room.refusal, NotConnected)


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize("words_said", ["Half ", ""])
async def test_a_turn_that_is_stopped_while_we_are_away_is_told_as_stopped(
    serve: Serve, enter: Enter, cable_to: Lay, words_said: str, is_forgotten: bool
) -> None:
    # Given an answer that hangs, and a connection that is lost
    model = ScriptedModel(says(words_said).then_hangs() if words_said else opens().then_hangs())
    cls = assistant(model)
    server = await serve(cls)
    cable, notices = cable_to(server), Notices()
    room = await enter(cable, cls, notice=notices)
    reply = room.say("Hi")
    await until(lambda: model.asked == 1 and reply.text == words_said)
    cable.pull()
    await notices.until("connection lost")

    # When somebody stops it meanwhile, perhaps in an earlier process
    async with server.app.agent(cls, "room") as live:
        await live.abort_all_requests("enough")
        await live.wait_until_stable()
        if is_forgotten:
            live._home.sockets.state.over.clear()
    cable.plug()

    # Then that is how it ended
    assert await asyncio.wait_for(reply.ended(), 20) == "aborted"
    assert (reply.text, reply.error) == (words_said, None)
