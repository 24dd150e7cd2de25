"""What a run gives: the value that was asked for, as the child's own turn has it, or an error in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from everthink import Think, agent_tool, tool
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.hooks import until

pytestmark = pytest.mark.anyio

FITS = '{"answer": "fine"}'


@dataclass
class Report:
    """What is asked for."""

    answer: str


class Auditor(Think):
    """It says something before it calls a tool."""

    model = ScriptedModel()

    @tool
    def look(self, paper: str) -> str:
        """Look at a paper."""
        return f"saw {paper}"

    @tool(needs_approval=True)
    def buy(self, paper: str) -> str:
        """Buy a paper."""
        return f"bought {paper}"


def auditor(*plays: Any) -> type[Think]:
    """An auditor with a script."""

    class Scripted(Auditor):
        model = ScriptedModel(*plays)

    return Scripted


async def test_words_before_a_call_are_no_part_of_the_value_that_is_asked_for(open_app: OpenApp) -> None:
    child = auditor(says("Let me look. ").calls("look", paper="x"), says(FITS))

    class Desk(Think):
        model = ScriptedModel()
        sub_agents = (child,)

    desk = (await open_app(Desk)).agent(Desk)
    result = await desk.run_agent_tool(child, input="?", output=Report)
    assert (result.status, result.output) == ("completed", {"answer": "fine"})
    assert result.summary == f"Let me look. \n{FITS}"


async def test_words_before_an_approval_are_no_part_of_the_value_that_is_asked_for(open_app: OpenApp) -> None:
    child = auditor(says("I must buy it. ").calls("buy", paper="x"), says(FITS))

    class Desk(Think):
        model = ScriptedModel(calls("audit", query="?"), says("Done."))
        audit = agent_tool(child, description="Audit.", output=Report)

    desk = (await open_app(Desk)).agent(Desk)
    await desk.submit_messages("Go", submission_id="s")
    await until(lambda: _asks(desk, child))
    (run,) = await desk.list_agent_tool_runs()
    asking = await desk.sub_agent(child, run.run_id)
    (part,) = (await asking.get_messages())[-1].tool_parts
    await asking.apply_tool_approval(part["toolCallId"], True)
    await asking.continue_last_turn()
    await desk.wait_for_submission("s")
    assert (await desk.get_messages())[-1].tool_parts[0]["output"] == {"answer": "fine"}


async def _asks(desk: Any, child: type[Think]) -> bool:
    runs = await desk.list_agent_tool_runs()
    if not runs:
        return False
    below = await desk.sub_agent(child, runs[0].run_id)
    parts = [part for message in await below.get_messages() for part in message.tool_parts]
    return any(part["state"] == "approval-requested" for part in parts)


def parent_of(child: type[Think]) -> type[Think]:
    """An agent whose tool is a child."""

    class Desk(Think):
        model = ScriptedModel(calls("ask", query="x"), says("Never mind."))
        ask = agent_tool(child, description="Ask.")

    return Desk


def raising(run_id: str) -> Any:
    """A hook that fails."""
    raise ValueError("boom")


RUBBISH = [
    (
        "get_agent_tool_summary",
        lambda self, run_id: raising(run_id),
        "get_agent_tool_summary of Helper raised",
    ),
    ("get_agent_tool_summary", lambda self, run_id: 5, "get_agent_tool_summary returned 5"),
    ("get_agent_tool_output", lambda self, run_id: raising(run_id), "get_agent_tool_output of Helper raised"),
    (
        "get_agent_tool_output",
        lambda self, run_id: object(),
        "get_agent_tool_output of tool 'Helper' returned",
    ),
    (
        "format_agent_tool_input",
        lambda self, given: raising(given),
        "format_agent_tool_input of Helper raised",
    ),
    ("format_agent_tool_input", lambda self, given: 5, "int"),
    ("on_start", lambda self: raising(""), "Helper could not start: ValueError: boom"),
]


@pytest.mark.parametrize(("hook", "body", "words"), RUBBISH)
async def test_a_hook_of_the_child_that_fails_ends_the_run_in_words(
    open_app: OpenApp, hook: str, body: Any, words: str
) -> None:
    child = type("Helper", (Think,), {"model": ScriptedModel(says("done"), says("done")), hook: body})
    cls = parent_of(child)
    app = await open_app(cls)
    desk = app.agent(cls)
    assert (await desk.save_messages("Go")).text == "Never mind."
    told = (await desk.get_messages())[-1].tool_parts[0]["output"]
    assert (told["ok"], told["status"]) == (False, "error")
    assert words in told["error"]
    result = await desk.run_agent_tool(child, input="x", run_id="code")
    assert result.status == "error"
    assert words in (result.error or "")
    assert [run.status for run in await desk.list_agent_tool_runs()] == ["error", "error"]
    if hook in ("format_agent_tool_input", "on_start"):
        assert await desk.list_sub_agents() == []
    assert await desk.clear_agent_tool_runs() == 2


async def test_a_detached_run_whose_hook_fails_is_delivered_as_an_error(open_app: OpenApp) -> None:
    told: list[tuple[str, str | None]] = []
    child = type(
        "Helper", (Think,), {"model": ScriptedModel(says("done")), "get_agent_tool_summary": lambda s, r: 5}
    )

    class Desk(Think):
        model = ScriptedModel()

        def hear(self, run: Any, result: Any) -> None:
            told.append((result.status, result.error))

    desk = (await open_app(Desk)).agent(Desk)
    await desk.run_agent_tool(child, input="x", detached={"on_finish": "hear"})
    await until(lambda: told)
    assert told == [("error", "get_agent_tool_summary returned 5, an int. Return text, or None.")]
