"""An agent that is deleted, or leaves memory, while it answers: whoever waits is told, nobody for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink.client import Conversation, connect
from everthink.errors import AgentErased, NotConnected, TurnFailed, TurnInterrupted
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.hooks import until
from tests.support.server import served

pytestmark = pytest.mark.anyio


class Room(Think):
    """It never comes to the end of its answer."""

    model = ScriptedModel(lambda request: says("one ").then_hangs(), repeat=True)


class Leaver(Think):
    """It deletes itself in the middle."""

    model = ScriptedModel(calls("go"), repeat=True)

    @tool
    async def go(self) -> str:
        """Go."""
        await self.destroy()
        return "gone"


class Desk(Think):
    """A parent."""

    model = ScriptedModel()
    sub_agents = (Room,)


async def agent_of(app: App, kind: str) -> Any:
    """An agent that nobody has above it, or a child."""
    return app.agent(Room, "r") if kind == "root" else await app.agent(Desk, "d").sub_agent(Room, "r")


async def delete(app: App, kind: str) -> None:
    """Delete it."""
    await (app.erase(Room, "r") if kind == "root" else app.agent(Desk, "d").delete_sub_agent(Room, "r"))


async def texts(agent: Any) -> list[str]:
    """What is said, as it is said."""
    return [text async for text in agent.chat("Hi").text()]


class Callback:
    """It notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_start(self, *_: Any) -> None:
        """It begins."""
        self.told.append("start")

    def on_event(self, *_: Any) -> None:
        """A piece."""

    def on_done(self, *_: Any) -> None:
        """It ended well."""
        self.told.append("done")


async def asking(agent: Any) -> dict[str, asyncio.Future[Any]]:
    """All ways to wait for a turn: one that runs, and those behind it."""
    await agent.submit_messages("Hi", submission_id="s")
    await until(lambda: is_running(agent))
    waits = {
        "submission": agent.wait_for_submission("s"),
        "save_messages": agent.save_messages("Hi"),
        "chat": agent.chat("Hi"),
        "callback": agent.chat("Hi", Callback()),
        "text": texts(agent),
    }
    found = {name: asyncio.ensure_future(wait) for name, wait in waits.items()}
    await until(lambda: all_accepted(agent, len(found)))
    return found


async def is_running(agent: Any) -> bool:
    """True once it says something."""
    return (await agent.inspect_submission("s")).status == "running"


async def all_accepted(agent: Any, count: int) -> bool:
    """True once so many turns are there."""
    async with agent as live:
        return len(list(live._home.chat.host.turns)) >= count


@pytest.mark.parametrize("kind", ["root", "child"])
async def test_whoever_waits_for_an_agent_that_is_deleted_is_told_that(open_app: OpenApp, kind: str) -> None:
    app = await open_app(Room, Desk)
    agent = await agent_of(app, kind)
    waits = await asking(agent)
    await delete(app, kind)
    for wait in waits.values():
        with pytest.raises(AgentErased, match=r"its agent is deleted\. Nothing of the conversation is kept"):
            await wait
    assert await (await agent_of(app, kind)).get_messages() == []


@pytest.mark.parametrize("kind", ["root", "child"])
async def test_whoever_waits_for_an_agent_that_leaves_memory_is_told_that_it_goes_on(
    open_app: OpenApp, kind: str
) -> None:
    app = await open_app(Room, Desk)
    agent = await agent_of(app, kind)
    waits = await asking(agent)
    await (app.evict(Room, "r") if kind == "root" else app.agent(Desk, "d").abort_sub_agent(Room, "r"))
    for wait in waits.values():
        with pytest.raises(
            TurnInterrupted, match=r"leaves memory\. Everything .* goes on from there"
        ) as told:
            await wait
        assert not isinstance(told.value, AgentErased)
    assert (await agent.inspect_submission("s")).status == "running"


async def test_whoever_waits_for_a_submission_when_the_app_closes_is_told_that(open_app: OpenApp) -> None:
    app = await open_app(Room)
    agent: Any = app.agent(Room, "r")
    await agent.submit_messages("Hi", submission_id="s")
    await until(lambda: is_running(agent))
    async with agent as live:
        wait = asyncio.ensure_future(live.wait_for_submission("s"))
        await asyncio.sleep(0)
    await app.close()
    with pytest.raises(TurnInterrupted, match="the process is stopping"):
        await wait


async def test_an_agent_that_deletes_itself_in_its_turn_is_told_as_deleted(open_app: OpenApp) -> None:
    agent = (await open_app(Leaver)).agent(Leaver, "l")
    with pytest.raises(AgentErased):
        await agent.save_messages("Go")


@pytest.mark.parametrize(("kind", "code"), [("root", 4410), ("child", 1001)])
async def test_windows_hear_the_end_of_what_they_wait_for_before_they_are_closed(
    open_app: OpenApp, kind: str, code: int
) -> None:
    app = await open_app(Room, Desk)
    path = "/agents/room/r" if kind == "root" else "/agents/desk/d/sub/room/r"
    async with served(app, lifespan="off") as server:
        tab = await server.connect(path)
        one = await tab.say("Hi")
        await tab.until_text("one ")
        two = await tab.say("And this?")
        await until(lambda: await_agent(app, kind))
        await delete(app, kind)
        assert (await tab.until_closed())[0] == code
        for request in (one, two):
            last = [(frame["body"], frame.get("error"), frame["done"]) for frame in tab.responses(request)]
            assert ("This conversation was deleted.", True) in [told[:2] for told in last[-2:]]
            assert last[-1][2]
            assert [told[2] for told in last].count(True) == 1


async def await_agent(app: App, kind: str) -> bool:
    """True once both turns are accepted."""
    return await all_accepted(await agent_of(app, kind), 2)


async def back_in(room: Conversation) -> bool:
    """True once the client, whose connection the server closes after its last word, has come back."""
    try:
        await room.set_state({"back": True})
    except NotConnected:
        return False
    return True


async def test_the_python_client_asks_a_deleted_child_nothing_again(open_app: OpenApp) -> None:
    app = await open_app(Room, Desk)
    child: Any = await agent_of(app, "child")
    async with (
        served(app, lifespan="off") as server,
        connect(f"http://127.0.0.1:{server.port}", "desk", "d", sub=[("room", "r")], patience=5) as room,
    ):
        reply = room.say("Hi")
        async for chunk in reply:
            if chunk.type == "text-delta":
                break
        await delete(app, "child")
        with pytest.raises(TurnFailed, match="deleted"):
            await reply
        await until(lambda: back_in(room))
        assert room.messages == []
    assert await child.get_messages() == []
