"""Calls on an agent with something else in the place of what they take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import AgentError, App, Think
from everthink.abort import AbortController
from everthink.errors import InvalidFiber, InvalidSettings, InvalidTurn
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(open_app: OpenApp) -> App:
    return await open_app(assistant(ScriptedModel(says("One."), says("Two."))))


@pytest.fixture
async def agent(app: App) -> Any:
    return await live(app.agent(app.classes[0], "room"))


@pytest.mark.parametrize("signal", [asyncio.Event(), 5, AbortController()])
async def test_a_signal_that_is_none_is_refused_and_holds_up_nobody(agent: Any, signal: Any) -> None:
    for ask in agent.save_messages, agent.chat:
        with pytest.raises(InvalidTurn, match=r"signal is .*not an AbortSignal\. Nothing was stored\."):
            await ask("Hi", signal=signal)
    async with asyncio.timeout(10):
        assert (await agent.save_messages("Hi")).text == "One."
    assert [message.text for message in agent.messages] == ["Hi", "One."]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda agent: agent.list_submissions(status="complete"), "status is 'complete'.* mean 'completed'"),
        (lambda agent: agent.list_submissions(status=["pending", "x"]), "'x'.*There are: pending, running"),
        (lambda agent: agent.delete_submissions(status="done"), "status is 'done'"),
        (lambda agent: agent.list_fibers(status="intrrupted"), "Did you mean 'interrupted'"),
        (lambda agent: agent.delete_fibers(status=5), "status is 5"),
        (lambda agent: agent.list_schedules(type="crn"), "type is 'crn'.*Did you mean 'cron'"),
    ],
)
async def test_a_word_that_is_none_of_those_there_are_is_told(agent: Any, ask: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        await ask(agent)


@pytest.mark.parametrize("fn", ["work", lambda ctx, more: None])
async def test_a_fiber_that_cannot_be_called_is_refused_before_it_is_stored(agent: Any, fn: Any) -> None:
    for start in agent.run_fiber, agent.start_fiber, agent.resume_fiber:
        with pytest.raises(InvalidFiber, match=r"Nothing was stored\..*fn\(ctx\)"):
            await start("x", fn)
    assert await agent.list_fibers() == []


async def test_what_is_no_text_is_not_broadcast(agent: Any) -> None:
    with pytest.raises(AgentError, match=r"broadcast sends text, .*json\.dumps"):
        agent.broadcast({"a": 1})
    with pytest.raises(AgentError, match=r"Write without=\['c1'\]"):
        agent.broadcast("x", without="c1")
    for wrong in ([5], object(), [None]):
        with pytest.raises(AgentError, match=r"names no connection.*without=\[connection\]"):
            agent.broadcast("x", without=wrong)


async def test_client_tools_are_answered_by_a_function_that_may_take_less(open_app: OpenApp) -> None:
    cls = assistant(ScriptedModel(calls("locate"), says("Rome.")))
    agent = (await open_app(cls)).agent(cls)
    given: Any = {"client_tools": [{"name": "locate"}]}
    with pytest.raises(InvalidSettings, match=r"on_client_tool_call is 'x'.*\(name, input, call_id\)"):
        await agent.chat("Where?", on_client_tool_call="x", **given)
    result = await agent.chat("Where?", on_client_tool_call=lambda name: f"{name}: Rome", **given)
    assert result.message is not None
    assert result.message.tool_parts[0]["output"] == "locate: Rome"


@pytest.mark.parametrize("method", ["evict", "erase", "release", "export"])
async def test_a_text_in_the_place_of_a_class_is_told_everywhere(app: App, method: str) -> None:
    async def ask() -> None:
        found = getattr(app, method)("Assistant", "room")
        if hasattr(found, "__aiter__"):
            async for _ in found:
                pass
        else:
            await found

    with pytest.raises(AgentError, match=rf'Write app\.{method}\(Assistant, "name"\)'):
        await ask()


async def test_a_name_that_is_no_text_is_told_at_once(app: App) -> None:
    for name in None, 5:
        with pytest.raises(AgentError, match="in the place of a name"):
            app.agent(Think, name)  # type: ignore[arg-type]


async def test_a_subscriber_is_a_function(app: App) -> None:
    with pytest.raises(TypeError, match="in the place of a function"):
        app.events.subscribe("print")  # type: ignore[call-overload]
