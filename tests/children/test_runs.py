"""A child as a tool: one turn of it, kept with the parent, joined and never begun twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from everthink import Think, agent_tool
from everthink.children import AgentToolResult, AgentToolRun
from everthink.testing import ScriptedModel, calls, fails, says, waits
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio


def parent_of(child: type[Think], *plays: Any, **options: Any) -> type[Think]:
    """An agent whose tool is a child."""

    class Assistant(Think):
        model = ScriptedModel(*plays)
        delegate = agent_tool(child, description="Ask the helper.", **options)

    return Assistant


def helper(*plays: Any) -> type[Think]:
    """A child that follows a script."""

    class Helper(Think):
        model = ScriptedModel(*plays)

    return Helper


async def result_of(agent: Any) -> Any:
    """What the model of the parent read of its call."""
    messages = await agent.get_messages()
    (part,) = [part for message in messages for part in message.parts if "toolCallId" in part]
    return part.get("output", part.get("errorText"))


async def test_a_child_answers_a_call_of_its_parent(open_app: OpenApp) -> None:
    child = helper(says("It rains."))
    cls = parent_of(child, calls("delegate", query="Weather?"), says("Wet."))
    app = await open_app(cls)
    agent = app.agent(cls)
    result = await agent.save_messages("Go")
    assert result.text == "Wet."
    assert await result_of(agent) == "It rains."
    (run,) = await agent.list_agent_tool_runs()
    assert (run.status, run.agent_type, run.input_preview) == ("completed", "Helper", '{"query":"Weather?"}')
    below = await agent.sub_agent(child, run.run_id)
    messages = await below.get_messages()
    assert [message.text for message in messages] == ['{\n  "query": "Weather?"\n}', "It rains."]


async def test_a_failing_child_is_a_result_that_the_parent_goes_on_from(open_app: OpenApp) -> None:
    cls = parent_of(helper(fails("broken")), calls("delegate", query="x"), says("Never mind."))
    agent = (await open_app(cls)).agent(cls)
    assert (await agent.save_messages("Go")).text == "Never mind."
    told = await result_of(agent)
    assert (told["ok"], told["status"], told["retryable"]) == (False, "error", False)


async def test_stopping_the_parent_stops_the_child(open_app: OpenApp) -> None:
    gate = asyncio.Event()
    child = helper(waits(gate).says("late"))
    begun, ended = asyncio.Event(), asyncio.Event()

    class Stopped(Think):
        model = ScriptedModel(calls("delegate", query="x"))
        delegate = agent_tool(child, description="Ask.")

        def on_agent_tool_start(self, run: AgentToolRun) -> None:
            begun.set()

        def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> None:
            ended.set()

    agent = (await open_app(Stopped)).agent(Stopped)
    asked = asyncio.ensure_future(agent.save_messages("Go"))
    async with agent as live:
        await begun.wait()
        await live.abort_all_requests("enough")
        assert (await asked).status == "aborted"
        await ended.wait()
        (run,) = await live.list_agent_tool_runs()
    assert run.status == "aborted"


async def test_a_run_of_code_returns_its_result_and_is_never_begun_twice(open_app: OpenApp) -> None:
    child = helper(says("one"))
    cls = parent_of(child)
    agent = (await open_app(cls)).agent(cls)
    first = await agent.run_agent_tool(child, input="Hi", run_id="r")
    again = await agent.run_agent_tool(child, input="Hi", run_id="r")
    assert first == again
    assert (first.status, first.summary) == ("completed", "one")


async def test_more_runs_than_allowed_are_refused_at_once(open_app: OpenApp) -> None:
    child = helper(says("one"))

    class Capped(Think):
        model = ScriptedModel()
        max_concurrent_agent_tools = 0

    agent = (await open_app(Capped)).agent(Capped)
    result = await agent.run_agent_tool(child, input="Hi")
    assert (result.status, result.error) == ("error", "max_concurrent_agent_tools (0) exceeded")
    assert await agent.list_sub_agents() == []


async def test_a_structured_answer_is_checked(open_app: OpenApp) -> None:
    @dataclass
    class Found:
        """What is found."""

        title: str
        score: int

    good = parent_of(
        helper(says('{"title": "T", "score": 3}')), calls("delegate", query="x"), says("ok"), output=Found
    )
    agent = (await open_app(good)).agent(good)
    await agent.save_messages("Go")
    assert await result_of(agent) == {"title": "T", "score": 3}


async def test_hooks_see_a_run_begin_and_end(open_app: OpenApp) -> None:
    seen: list[Any] = []
    ended = asyncio.Event()
    child = helper(says("hi"))

    class Watching(Think):
        model = ScriptedModel(calls("ask", query="x"), says("ok"))
        ask = agent_tool(child, description="Ask.", display_name="Helper")

        def on_agent_tool_start(self, run: AgentToolRun) -> None:
            seen.append(("start", run.run_id, run.display))

        async def on_agent_tool_finish(self, run: AgentToolRun, result: AgentToolResult) -> None:
            seen.append(("finish", run.status, result.summary))
            ended.set()

    agent = (await open_app(Watching)).agent(Watching)
    await agent.save_messages("Go")
    async with agent as live:
        await live.wait_until_stable()
        await ended.wait()
    assert seen[0][0] == "start"
    assert seen[0][2] == {"name": "Helper"}
    assert seen[1] == ("finish", "completed", "hi")


async def test_an_agent_that_calls_itself_is_bounded(open_app: OpenApp) -> None:
    class Loop(Think):
        model = ScriptedModel(
            *(calls("again", query="x") for _ in range(5)), *(says("end") for _ in range(5))
        )

    Loop.again = agent_tool(Loop, description="Again.", name="again")  # type: ignore[attr-defined]
    agent = (await open_app(Loop)).agent(Loop)
    result = await agent.save_messages("Go")
    assert result.status == "completed"


async def test_a_child_says_how_it_is_asked_and_what_a_run_gave(open_app: OpenApp) -> None:
    class Counter(Think):
        model = ScriptedModel(says("three"))

        def format_agent_tool_input(self, input: Any) -> str:
            return f"Count {input['query']}"

        def get_agent_tool_output(self, run_id: str) -> Any:
            return {"count": 3}

        def get_agent_tool_summary(self, run_id: str) -> str:
            return "counted"

    cls = parent_of(Counter)
    agent = (await open_app(cls)).agent(cls)
    result = await agent.run_agent_tool(Counter, input={"query": "apples"}, run_id="r")
    assert (result.output, result.summary) == ({"count": 3}, "counted")
    child = await agent.sub_agent(Counter, "r")
    assert [message.text for message in await child.get_messages()] == ["Count apples", "three"]
