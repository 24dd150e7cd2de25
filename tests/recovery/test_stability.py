"""Stability: no turn runs or waits, and nothing waits for a person."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, Think, tool
from everthink import chunks as ui
from everthink.door.chat_request import ChatRequest
from everthink.messages import Message, user_message
from everthink.testing import ManualClock, Play, ScriptedModel, calls, hangs, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.cuts import Reports, cut
from tests.support.turns import Witness, accept_request, all_over, follow, home_of

pytestmark = pytest.mark.anyio

PICK = {"name": "pick", "description": "Pick a file.", "parameters": {"type": "object"}}


@tool(needs_approval=True)
def delete() -> str:
    """Delete."""
    return "deleted"


@tool
async def dig() -> str:
    """Dig, for ever."""
    await asyncio.get_running_loop().create_future()
    return "gold"


class Room:
    """An agent whose browser offers `pick`."""

    def __init__(self, app: App, cls: type[Think], model: ScriptedModel, clock: ManualClock) -> None:
        self.app, self.cls, self.model, self.clock = app, cls, model, clock

    async def ask(self, text: str = "Go") -> Any:
        home = await home_of(self.app, self.cls, "room")
        messages = [user_message(text, id=f"u-{text}")]
        return await accept_request(home, ChatRequest(f"r-{text}", messages, client_tools=[PICK]))

    async def instance(self) -> Any:
        return await live(self.app.agent(self.cls, "room"))

    async def waiting(self, **options: Any) -> asyncio.Task[bool]:
        """Somebody who waits for stability, once they do."""
        agent = await self.instance()
        readers, sleepers = len(agent._home.feed), self.clock.waiting + bool(options)
        task = follow(agent.wait_until_stable(**options))
        while len(agent._home.feed) == readers or self.clock.waiting < sleepers:
            assert not task.done()
            await asyncio.sleep(0)
        return task


@pytest.fixture
def room(open_app: OpenApp) -> Any:
    async def open_(*plays: Play, **members: Any) -> Room:
        clock, model = ManualClock(), ScriptedModel(*plays)
        members.setdefault("get_tools", lambda self: [delete, dig])
        cls = assistant(model, **members)
        return Room(await open_app(cls, clock=clock), cls, model, clock)

    return open_


@pytest.mark.case(497)
@pytest.mark.parametrize("timeout", [None, 0, 5.0])
async def test_nothing_running_and_nothing_pending_is_stable_at_once(
    room: Any, timeout: float | None
) -> None:
    at_rest = await room(says("Hello."))
    agent = await at_rest.instance()
    assert await agent.wait_until_stable(timeout=timeout) is True
    await (await at_rest.ask()).result()
    assert await agent.wait_until_stable(timeout=timeout) is True
    # The clock stood still, and nobody waits on it
    await asyncio.sleep(0)
    assert at_rest.clock.waiting == 0


@pytest.mark.case(498)
async def test_a_call_for_the_browser_is_not_stable_until_its_result(room: Any) -> None:
    at_work = await room(calls("pick", id="c1"))
    await (await at_work.ask()).result()
    agent = await at_work.instance()
    assert agent.has_pending_interaction()
    waits = await at_work.waiting()
    await at_work.clock.advance(3600)
    assert not waits.done()
    assert await agent.apply_tool_result("c1", "a.txt")
    assert await waits is True
    assert not agent.has_pending_interaction()


@pytest.mark.case(498)
async def test_so_it_is_after_a_restart(room: Any) -> None:
    at_work = await room(calls("pick", id="c1"))
    await (await at_work.ask()).result()
    await cut(at_work.app, at_work.cls)
    agent = await at_work.instance()
    assert agent.has_pending_interaction()
    waits = await at_work.waiting()
    await agent.apply_tool_result("c1", "a.txt")
    assert await waits is True


@pytest.mark.case(499)
@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_is_not_stable_until_it_is_answered(room: Any, approved: bool) -> None:
    at_work = await room(calls("delete", id="c1"))
    await (await at_work.ask()).result()
    agent = await at_work.instance()
    assert agent.has_pending_interaction()
    waits = await at_work.waiting()
    assert await agent.apply_tool_approval("c1", approved)
    assert await waits is True
    assert not agent.has_pending_interaction()


@pytest.mark.case(500)
async def test_a_call_of_ours_that_died_is_stable(room: Any) -> None:
    # Given a conversation with a call of the server's that nobody runs any more
    at_rest = await room()
    agent = await at_rest.instance()
    part = {"type": "tool-dig", "toolCallId": "c1", "state": "input-available", "input": {}}
    await agent.add_messages([user_message("Dig", id="u1"), Message("a1", "assistant", [part])])
    assert not agent.has_pending_interaction()
    assert await agent.wait_until_stable() is True


@pytest.mark.case(501, 503)
async def test_what_waits_in_the_running_answer_is_seen_until_it_is_settled(room: Any) -> None:
    at_work = await room(calls("pick", id="c1").says("and ").then_hangs())
    await at_work.ask()
    await at_work.model.until_silent()
    agent = await at_work.instance()
    await Witness(agent._home).until(lambda: agent._home.chat.host.turns.answer.call("c1") is not None)
    assert agent.messages[-1].role == "user"
    assert agent.has_pending_interaction()
    assert await agent.apply_tool_result("c1", "a.txt")
    assert not agent.has_pending_interaction()
    # The turn still runs
    assert not (await at_work.waiting()).done()
    agent.abort_all_requests()


@pytest.mark.case(502)
async def test_a_call_of_ours_in_the_running_answer_waits_for_nobody(room: Any) -> None:
    at_work = await room(calls("dig", id="c1"))
    witness = Witness(await home_of(at_work.app, at_work.cls, "room"))
    await at_work.ask()
    await witness.until(lambda: any(isinstance(c, ui.ToolInputAvailable) for c in witness.chunks))
    agent = await at_work.instance()
    assert agent._home.chat.host.turns.answer.call("c1")["state"] == "input-available"
    assert not agent.has_pending_interaction()
    agent.abort_all_requests()


@pytest.mark.case(504)
async def test_a_deadline_is_kept(room: Any) -> None:
    at_work = await room(hangs(), hangs())
    await at_work.ask()
    await at_work.model.until_silent()

    # Without one it waits; with one it is false when that has passed, and nothing else happened
    endless, limited = await at_work.waiting(), await at_work.waiting(timeout=5.0)
    await at_work.clock.advance(4.9)
    assert not limited.done()
    await at_work.clock.advance(0.2)
    assert await limited is False
    await at_work.clock.advance(240)
    assert not endless.done()

    # In time it is true, and leaves no timer behind
    limited = await at_work.waiting(timeout=5.0)
    agent = await at_work.instance()
    agent.abort_all_requests()
    assert await limited is True
    assert await endless is True
    await asyncio.sleep(0)
    assert at_work.clock.waiting == 0


@pytest.mark.case(504)
@pytest.mark.parametrize("timeout", [0, -1.0])
async def test_a_deadline_that_has_passed_is_over_at_once(room: Any, timeout: float) -> None:
    at_work = await room(hangs())
    await at_work.ask()
    await at_work.model.until_silent()
    waits = await at_work.waiting(timeout=timeout)
    await at_work.clock.advance(0)
    assert await waits is False
    (await at_work.instance()).abort_all_requests()


@pytest.mark.case(505)
async def test_it_goes_on_waiting_while_more_turns_come_whatever_becomes_of_them(room: Any) -> None:
    # Given a turn that runs, one that waits, and one that will fail
    go = asyncio.Event()
    at_work = await room(says("one ").waits(go).says("."), says("two ").then_fails("no"), says("three."))
    await at_work.ask("first")
    await at_work.model.until_silent()
    agent = await at_work.instance()
    waits = await at_work.waiting()
    for text in ("second", "third"):
        await agent.submit_messages(text)
    go.set()
    assert await waits is True

    # Then all of them are over
    assert [m.text for m in agent.messages if m.role == "assistant"] == ["one .", "two ", "three."]


@pytest.mark.case(505)
async def test_it_stops_waiting_when_everything_is_cleared(room: Any) -> None:
    at_work = await room(calls("pick", id="c1"), hangs())
    await (await at_work.ask()).result()
    agent = await at_work.instance()
    waits = await at_work.waiting()
    await agent.clear_messages()
    assert await waits is True


async def test_a_turn_that_was_cut_off_and_is_put_off_is_not_stable(room: Any) -> None:
    refuses = [True]

    def on_chat_recovery(agent: Think, ctx: Any) -> None:
        if refuses:
            refuses.pop()
            raise RuntimeError("not now")

    at_work = await room(says("Half ").then_hangs(), says("whole."), on_chat_recovery=on_chat_recovery)
    reports = Reports(at_work.app)
    await at_work.ask()
    await at_work.model.until_silent()
    await cut(at_work.app, at_work.cls)
    await reports.until("failed")
    await at_work.clock.until_waiting()
    waits = await at_work.waiting()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waits.done()
    await at_work.clock.advance(30)
    await all_over(at_work.app, at_work.cls, "room")
    assert await waits is True
