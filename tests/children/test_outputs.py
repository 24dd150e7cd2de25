"""What a run gives: the value that was asked for, as the child's own turn has it; an error when it gives none."""

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
