"""`agent(…)`: an agent class from values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import AgentError, App, ScheduledTask, Think, agent_tool, tool
from everthink.errors import InvalidSettings
from everthink.framework import agent
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp

from .conftest import Write

pytestmark = pytest.mark.anyio


@tool
def ring(times: int) -> str:
    """Ring the bell."""
    return "ring " * times


async def test_values_are_what_methods_would_be(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("ring", times=2), says("Done."))
    desk = agent(
        "Desk",
        model=model,
        prompt="You are a desk.",
        tools=[ring],
        schedules={"tea": ScheduledTask(schedule="every day at 16:00", prompt="Tea.")},
        max_steps=3,
    )
    assert (desk.__name__, desk.__module__, issubclass(desk, Think), desk.max_steps) == (
        "Desk",
        __name__,
        True,
        3,
    )
    app = await open_app(desk)
    result = await app.agent(desk, "a").save_messages("Ring")
    assert result.text == "Done."
    assert "You are a desk." in str(model.requests[0])
    assert "ring ring" in str(model.requests[1])


async def test_functions_are_given_the_agent(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Yes."))
    seen: list[str] = []

    def configured(session: Any, its: Any) -> Any:
        seen.append(its.name)
        return session

    async def prompted(its: Any) -> str:
        return f"You are {its.name}."

    desk = agent(
        "Desk", model=lambda: model, prompt=prompted, tools=lambda its: [ring], configure_session=configured
    )
    app = await open_app(desk)
    await app.agent(desk, "ada").save_messages("Hi")
    assert seen == ["ada"]
    assert "You are ada." in str(model.requests[0])
    assert "Ring the bell." in str(model.requests[0])


@pytest.mark.agent_case(559)
async def test_the_children_of_its_tools_are_its_children(open_app: OpenApp) -> None:
    helper = agent("Helper", model=ScriptedModel(says("42")))
    ask = agent_tool(helper, description="Ask the helper.", name="ask")
    desk = agent("Desk", model=ScriptedModel(calls("ask", query="?"), says("It is 42.")), tools=[ask])
    assert desk.sub_agents == (helper,)
    app = await open_app(desk)
    assert (await app.agent(desk, "a").save_messages("Go")).text == "It is 42."


def test_slips_are_told_as_in_a_class() -> None:
    with pytest.raises(InvalidSettings, match="max_step"):
        agent("Desk", model="demo", max_step=3)
    with pytest.raises(InvalidSettings, match=r"Desk\.max_steps"):
        agent("Desk", model="demo", max_steps="three")
    with pytest.raises(InvalidSettings, match="no setting"):
        agent("Desk", model="demo", before_turn=print)
    with pytest.raises(InvalidSettings, match="in the place of a name"):
        agent("my desk", model="demo")


def test_one_without_a_name_is_refused_in_words() -> None:
    with pytest.raises(AgentError, match="has no name") as refused:
        App(agent(model="demo"), store=":memory:")
    assert 'agent("Support", …)' in str(refused.value)


@pytest.mark.agent_case(540)
def test_files_name_their_agents(write: Write) -> None:
    text = "from everthink.framework import agent\nagent = agent(model='demo', prompt='Hi.')\n"
    folder: Path = write(
        night_desk=text, night_desk__agents__clerk=text, shop__agent=text, shop__agents__clerk=text
    )
    app = App.discover(folder, store=":memory:")
    assert {cls.__name__: [one.__name__ for one in cls.sub_agents] for cls in app.classes} == {
        "NightDesk": ["NightDeskClerk"],
        "Shop": ["ShopClerk"],
    }
