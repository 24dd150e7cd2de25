"""An agent from outside: what reaches it anywhere, what is answered at once, and what holds it in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from everthink import Agent, AgentError, App, Think
from everthink.errors import AgentNotInMemory
from everthink.testing import ManualClock, ScriptedModel, says
from tests.conftest import OpenApp
from tests.support.agents import live

pytestmark = pytest.mark.anyio


class Desk(Think):
    model = ScriptedModel(says("One."), says("Two."))
    initial_state: ClassVar[Any] = {"open": True}
    drawer: list[str]

    async def on_start(self, props: Any = None) -> None:
        self.drawer = [props or "empty"]

    async def look(self, into: str) -> str:
        return f"{into}: {self.drawer[0]}"

    async def pieces(self, count: int) -> AsyncIterator[int]:
        for number in range(count):
            await asyncio.sleep(0)
            yield number

    def knock(self) -> str:
        return f"{self.name} was knocked at"

    @property
    def size(self) -> int:
        return len(self.drawer)

    @staticmethod
    def height() -> int:
        return 72


async def test_what_is_awaited_or_streamed_reaches_an_agent_that_is_not_in_memory(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    assert await app.agent(Desk, "a", props="pens").look("drawer") == "drawer: pens"
    assert [piece async for piece in app.agent(Desk, "b").pieces(3)] == [0, 1, 2]
    assert (await app.agent(Desk, "c").chat("Hi")).status == "completed"
    assert await app.agent(Desk, "d").cancel_chat("nobody") is False


async def test_a_name_is_known_at_once_and_a_static_method_needs_no_agent(open_app: OpenApp) -> None:
    handle = (await open_app(Desk)).agent(Desk, "a")
    assert (handle.name, handle.id, handle.height()) == ("a", "Desk/a", 72)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("state", "async with handle as agent: agent.state"),
        ("messages", "async with handle as agent: agent.messages"),
        ("session", "agent.session"),
        ("size", "agent.size"),
        ("max_steps", "agent.max_steps"),
        ("drawer", "agent.drawer"),
        ("knock", "agent.knock(…)`, which starts it, or write it as `async def knock`"),
    ],
)
async def test_what_is_answered_at_once_needs_an_agent_in_memory(
    open_app: OpenApp, name: str, words: str
) -> None:
    app = await open_app(Desk)
    for handle in app.agent(Desk, "a"), App(Desk).agent(Desk, "a"):
        with pytest.raises(AgentNotInMemory, match="'Desk/a' is not in memory here") as told:
            getattr(handle, name)
        assert words in str(told.value)
    # and once it is, it is the agent that answers
    agent = await live(app.agent(Desk, "a"))
    assert getattr(app.agent(Desk, "a"), name) == getattr(agent, name)


async def test_a_handle_that_is_entered_is_the_agent_and_stays_in_memory(
    open_app: OpenApp,
) -> None:
    clock = ManualClock()
    app = await open_app(Desk, clock=clock, idle_after=10)
    async with app.agent(Desk, "a") as agent:
        assert isinstance(agent, Desk)
        assert (agent.state, agent.knock(), agent.messages) == ({"open": True}, "a was knocked at", [])
        await clock.advance(100)
        assert app.agent(Desk, "a").drawer is agent.drawer
        # it may be entered again, and by itself
        async with agent as same, app.agent(Desk, "a") as again:
            assert same is again is agent
        await clock.advance(100)
        assert app.agent(Desk, "a").size == 1
    await clock.advance(100)
    with pytest.raises(AgentNotInMemory):
        _ = app.agent(Desk, "a").state


async def test_a_handle_that_two_tasks_enter_holds_for_each_of_them(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    handle, first, second = app.agent(Desk, "a"), asyncio.Event(), asyncio.Event()
    entered = asyncio.Semaphore(0)

    async def stay(leave: asyncio.Event) -> Desk:
        async with handle as agent:
            entered.release()
            await leave.wait()
            return agent

    early = asyncio.create_task(stay(first))
    await entered.acquire()
    agent = await live(handle)
    await app.evict(Desk, "a")
    late = asyncio.create_task(stay(second))
    await entered.acquire()
    first.set()
    assert await early is agent
    held: Any = (await live(handle))._home
    assert held.holds.count == 1
    second.set()
    assert await late is held.agent
    assert held.holds.count == 0


async def test_a_stop_of_an_agent_that_is_not_in_memory_happens_when_it_is_awaited(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    stop = app.agent(Desk, "a").abort_all_requests()
    with pytest.raises(AgentError, match=r"Write await handle\.abort_all_requests\(…\)"):
        bool(stop)
    assert await stop is True
    # where it is in memory it happens at once
    assert app.agent(Desk, "a").abort_all_requests()
    with pytest.warns(RuntimeWarning, match=r"'Desk\.cancel_chat' was never awaited"):
        app.agent(Desk, "b").cancel_chat("r1")  # and nobody keeps it


async def test_a_private_name_is_no_part_of_a_handle(open_app: OpenApp) -> None:
    handle: Any = (await open_app(Desk)).agent(Desk)
    assert not hasattr(handle, "_home")
    assert not hasattr(handle, "__len__")


class Switchboard(Agent):
    """It has names of those that chat, and does not chat."""

    async def chat(self, who: str) -> str:
        return f"chatting with {who}"

    async def regenerate(self) -> AsyncIterator[int]:
        yield 1

    def continue_last_turn(self) -> int:
        return 7


async def test_an_agent_that_does_not_chat_has_its_own_methods_of_those_names(open_app: OpenApp) -> None:
    handle = (await open_app(Switchboard)).agent(Switchboard)
    assert await handle.chat("Ada") == "chatting with Ada"
    assert [piece async for piece in handle.regenerate()] == [1]
    assert handle.continue_last_turn() == 7


class Mute(Agent):
    async def look(self) -> int:
        return 1


async def test_an_agent_that_does_not_chat_says_so(open_app: OpenApp) -> None:
    handle: Any = (await open_app(Mute)).agent(Mute)
    with pytest.raises(AttributeError, match="Mute does not chat"):
        handle.chat("Hi")
    await handle.look()
    with pytest.raises(AttributeError, match="Mute does not chat"):
        handle.chat("Hi")
