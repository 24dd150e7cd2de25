"""What is written wrongly is refused where it is written, in words that name the option."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from everthink import App, Think, agent_tool, tool
from everthink.children import build_path, parse_path
from everthink.errors import (
    AgentError,
    InvalidCallback,
    InvalidSettings,
    RunConflict,
    ToolDefinitionError,
    ToolError,
)
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio


@dataclass
class Topic:
    """What is asked."""

    question: str


class Helper(Think):
    """A child."""

    model = ScriptedModel()


def tool_of(**options: Any) -> Any:
    return agent_tool(Helper, **{"description": "Ask.", **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"description": ""}, "description is ''"),
        ({"icon": 3}, "icon is 3, an int"),
        ({"display": ["a"]}, "display is ['a'], a list. It takes a dict"),
        ({"input": {"type": "array"}}, "The input of an agent tool is an object"),
        ({"input": {"type": "object", "properties": {"a": {"type": "strng"}}}}, "Did you mean 'string'?"),
        ({"input": Topic("a")}, "Give the class, not an instance: Topic."),
        ({"output": {"type": "objct"}}, "Did you mean 'object'?"),
        ({"output": "Report"}, "agent_tool: output is 'Report', a str"),
        ({"output": object()}, "agent_tool: output is <object"),
        ({"name": "my tool"}, f"{__file__}:"),
        ({"name": "my tool"}, "agent_tool(name=...)"),
        ({"name": ""}, "name is ''"),
        ({"display_name": " "}, "display_name is ' '"),
        ({"display": {"name": object()}}, "a dict of JSON values"),
        ({"descripton": "x"}, "agent_tool() has no option 'descripton'. Did you mean 'description'?"),
        ({"input_schema": Topic}, "Did you mean 'input'?"),
        ({"timeout": 3}, "There are: description, input, output, name, display_name, icon, display."),
    ],
)
def test_an_agent_tool_that_cannot_be_is_refused_where_it_is_written(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        tool_of(**options)
    assert words in str(refused.value)
    assert "pydantic.dev" not in str(refused.value)


def test_two_agent_tools_of_one_name_are_told_with_their_lines() -> None:
    def made() -> App:
        class Twice(Think):
            one = tool_of(name="same")
            two = tool_of(name="same")

        return App(Twice, store=":memory:")

    with pytest.raises(ToolDefinitionError, match=r"agent_tool\(Helper, …\) \(.*test_mistakes\.py:\d+\) and"):
        made()


def test_an_attribute_that_hides_a_method_is_renamed_with_agent_tool() -> None:
    with pytest.raises(InvalidSettings, match=r"agent_tool\(name='chat'\) keeps it"):

        class Hiding(Think):
            chat = agent_tool(Helper, description="Ask.")  # type: ignore[assignment]


def test_an_agent_tool_is_no_function() -> None:
    with pytest.raises(ToolError, match=r"run_agent_tool\(Helper, input=…\)"):
        tool_of(name="ask")("x")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: build_path("Helper", "a"), "Write pairs: build_path(("),  # type: ignore[arg-type]
        (lambda: parse_path("/agents/helper/a", Helper), "parse_path(path, [Helper])"),  # type: ignore[arg-type]
    ],
)
def test_paths_say_their_right_form(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(AgentError) as refused:
        call()
    assert words in str(refused.value)


Asking = Callable[[Any], Awaitable[Any]]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda desk: desk.run_agent_tool(Helper, input="x", run_id=""), "run_agent_tool: run_id is ''"),
        (lambda desk: desk.run_agent_tool(Helper, input="x", run_id=" "), "run_agent_tool: run_id is ' '"),
        (lambda desk: desk.run_agent_tool(Helper, input="x", run_id="a\nb"), "no control character"),
        (lambda desk: desk.run_agent_tool(Helper, input="x", run_id="a" * 513), "1 to 512 characters"),
        (lambda desk: desk.run_agent_tool(Helper, input="x", run_id=5), "run_id is 5"),
        (lambda desk: desk.run_agent_tool(Helper, input="x", display_order="1"), "display_order is '1'"),
        (lambda desk: desk.run_agent_tool(Helper, input="x", output="Topic"), "run_agent_tool: output"),
        (
            lambda desk: desk.run_agent_tool(Helper, input="x", signal=3),
            "signal is 3, an int. It takes",
        ),
        (lambda desk: desk.run_agent_tool(Helper, input="x", runid="r"), "Did you mean 'run_id'?"),
        (lambda desk: desk.run_agent_tool(Helper, input="x", notify=True), "detached=Detached(notify=…)"),
        (
            lambda desk: desk.run_agent_tool(Helper, input="x", display={"a": object()}),
            "a dict of JSON values",
        ),
        (lambda desk: desk.has_sub_agent("Helpr", "x"), "Did you mean 'Helper'?"),
        (lambda desk: desk.delete_sub_agent("helpr", "x"), "Did you mean 'helper'?"),
        (lambda desk: desk.list_sub_agents("Helpr"), "no child of one. Nothing was done."),
        (lambda desk: desk.run_agent_tool(Helper, input="x", detached=5), "detached is 5, an int"),
        (
            lambda desk: desk.run_agent_tool(Helper, input="x", detached={"onfinish": "a"}),
            "Did you mean 'on_finish'?",
        ),
        (lambda desk: desk.clear_agent_tool_runs(status="finished"), "status is 'finished'"),
        (lambda desk: desk.clear_agent_tool_runs(older_than=3600), "an aware datetime"),
        (lambda desk: desk.clear_agent_tool_runs(older_than=datetime(2026, 1, 1)), "an aware datetime"),
        (
            lambda desk: desk.run_agent_tool(Helper, input="x", detached={"on_finish": "nope"}),
            "nope(self, run, result)",
        ),
        (lambda desk: desk.sub_agent(Topic, "x"), 'sub_agent(Researcher, "name")'),
    ],
)
async def test_what_is_asked_wrongly_of_children_is_refused(
    open_app: OpenApp, ask: Asking, words: str
) -> None:
    class Desk(Think):
        model = ScriptedModel()
        sub_agents = (Helper,)

    desk = (await open_app(Desk)).agent(Desk)
    with pytest.raises((InvalidSettings, InvalidCallback, AgentError)) as refused:
        await ask(desk)
    assert words in str(refused.value)
    assert await desk.list_agent_tool_runs() == []


async def test_an_input_that_json_cannot_hold_is_told_by_its_name(open_app: OpenApp) -> None:
    class Desk(Think):
        model = ScriptedModel()

    desk = (await open_app(Desk)).agent(Desk)
    result = await desk.run_agent_tool(Helper, input=object())
    assert (result.error or "").startswith("run_agent_tool: input is <object")
    for nothing in (None, "", " "):
        result = await desk.run_agent_tool(Helper, input=nothing)
        assert f"input is {nothing!r}, which asks the child nothing." in (result.error or "")


async def test_progress_beyond_the_end_is_refused(open_app: OpenApp) -> None:
    class Far(Think):
        model = ScriptedModel(calls("report"), says("Done."))

        @tool
        async def report(self) -> str:
            """Report."""
            with pytest.raises(InvalidSettings, match="a number from 0 to 1"):
                await self.report_progress(fraction=5)
            return "refused"

    class Desk(Think):
        model = ScriptedModel()

    desk = (await open_app(Desk)).agent(Desk)
    assert (await desk.run_agent_tool(Far, input="x")).summary == "Done."


async def test_the_id_of_a_run_asks_for_one_thing(open_app: OpenApp) -> None:
    class Answers(Think):
        model = ScriptedModel(says("The moon."))

    class Critic(Think):
        model = ScriptedModel()

    class Desk(Think):
        model = ScriptedModel()

    desk = (await open_app(Desk)).agent(Desk)
    first = await desk.run_agent_tool(Answers, input={"q": "Tides?"}, run_id="1")
    assert await desk.run_agent_tool(Answers, input={"q": "Tides?"}, run_id="1") == first
    with pytest.raises(RunConflict, match="There is a run '1' of Answers"):
        await desk.run_agent_tool(Critic, input={"q": "Tides?"}, run_id="1")
    for other in ({"input": "Another question"}, {"input": {"q": "Tides?"}, "output": Topic}):
        with pytest.raises(RunConflict, match="another input or output"):
            await desk.run_agent_tool(Answers, run_id="1", **other)
        with pytest.raises(RunConflict):
            await desk.run_agent_tool(Answers, run_id="1", detached=True, **other)
    assert len(await desk.list_agent_tool_runs()) == 1


async def test_an_answer_that_does_not_fit_is_told_in_one_sentence(open_app: OpenApp) -> None:
    class Answers(Think):
        model = ScriptedModel(says('{"question": 3}'))

    class Desk(Think):
        model = ScriptedModel()

    desk = (await open_app(Desk)).agent(Desk)
    result = await desk.run_agent_tool(Answers, input="x", output=Topic)
    assert result.error == (
        "Structured output error: the model's answer does not fit 'Topic':"
        " question: Input should be a valid string"
    )
