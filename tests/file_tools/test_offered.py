"""Which tools for files a model is offered, and what it is told of them."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, TurnConfig, tool
from everthink.file_tools import BashOptions, create_workspace_tools
from everthink.file_tools import tools as file_tools
from everthink.testing.scripted import calls
from tests.file_tools.support import MakeDesk

pytestmark = pytest.mark.anyio

FILES = ["read", "write", "edit", "list", "find", "grep", "delete"]


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra was there, wherever these tests run."""
    monkeypatch.setattr(file_tools, "has_bash", lambda: True)
    file_tools.tools_of_agents.cache_clear()


async def offered(desk: MakeDesk, **members: Any) -> tuple[list[str], str]:
    """The names of the tools, and the system prompt."""
    agent = await desk(**members)
    await agent.turn()
    request = agent.model.last_request
    return [spec.name for spec in request.tools], str(request.system)


async def test_every_agent_has_eight_tools_and_is_told_of_its_files(desk: MakeDesk) -> None:
    names, system = await offered(desk)
    assert names == [*FILES, "bash"]
    assert system.count("You have a private workspace") == 1
    assert system.count("bash scripts run over the files") == 1


@pytest.mark.parametrize("setting", [False, True, BashOptions(timeout=5), {"timeout": 5}])
async def test_bash_is_offered_unless_it_is_switched_off(desk: MakeDesk, setting: Any) -> None:
    names, system = await offered(desk, workspace_bash=setting)
    assert ("bash" in names) == (setting is not False)
    assert ("bash scripts" in system) == (setting is not False)


async def test_without_the_extra_there_is_no_bash(desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_tools, "has_bash", lambda: False)
    names, system = await offered(desk)
    assert names == FILES
    assert "bash" not in system
    assert list(create_workspace_tools()) == FILES


async def test_without_the_tools_nobody_speaks_of_files(desk: MakeDesk) -> None:
    names, system = await offered(desk, include_workspace_tools=False)
    assert names == []
    assert "workspace" not in system


async def test_a_turn_may_be_given_fewer_and_is_told_of_these(desk: MakeDesk) -> None:
    names, system = await offered(
        desk, before_turn=lambda self, turn: TurnConfig(active_tools=["read", "find"])
    )
    assert sorted(names) == ["find", "read"]
    assert "private workspace" in system
    assert "bash" not in system


async def test_a_tool_of_ones_own_with_such_a_name_takes_its_place(desk: MakeDesk) -> None:
    @tool
    def read(path: str) -> str:
        """Read something else."""
        return f"my own {path}"

    agent = await desk(get_tools=lambda self: [read])
    assert await agent.call("read", path="/a") == "my own /a"
    assert [spec.name for spec in agent.model.last_request.tools].count("read") == 1


async def test_the_tools_are_made_once_for_all_agents_with_the_same_settings() -> None:
    first = file_tools.tools_of_agents(BashOptions(), is_once=True)
    assert file_tools.tools_of_agents(BashOptions(), is_once=True) is first
    assert file_tools.tools_of_agents(None, is_once=True) is not first


def test_what_a_crash_cut_off_is_run_again_only_where_that_does_no_harm() -> None:
    own = file_tools.tools_of_agents(BashOptions(), is_once=True)
    others = file_tools.tools_of_agents(BashOptions(), is_once=False)
    assert {tool.on_interrupt for tool in own.values()} == {"rerun"}
    assert {name for name, tool in others.items() if tool.on_interrupt == "report"} == {"edit", "bash"}


async def test_agents_of_one_class_have_their_own_files(desk: MakeDesk) -> None:
    agent = await desk()
    agent.model.add(calls("write", path="/a", content="x"))
    await agent.turn()
    other: Think = agent.app.agent(agent.cls, "other")
    async with other as live:
        assert await live.workspace.glob("*") == []
    assert [entry.path for entry in await (await agent.files()).glob("*")] == ["/a"]


async def test_tools_outside_of_an_agent_say_what_is_missing() -> None:
    from everthink.errors import ToolError
    from everthink.tools.context import ToolContext

    with pytest.raises(ToolError, match="outside of an agent"):
        await create_workspace_tools()["read"].call({"path": "/a"}, ToolContext())
