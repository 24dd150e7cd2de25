"""Deleting children, also while they run: nothing of them is left anywhere, and of others everything."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import App, Think, agent_tool
from everthink.models.port import Request, ToolMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play, hangs
from tests.conftest import OpenApp
from tests.support.hooks import until

pytestmark = pytest.mark.anyio


def above(words: str) -> ScriptedModel:
    """A model that asks the one below, and says something once it has answered."""

    def play(request: Request) -> Play:
        is_answered = any(isinstance(message, ToolMessage) for message in request.messages)
        return says(words) if is_answered else calls("ask", query="x")

    return ScriptedModel(play, repeat=True)


class Low(Think):
    """It never answers."""

    model = ScriptedModel(lambda request: hangs(), repeat=True)


class Middle(Think):
    """It waits for it."""

    model = above("Middle.")
    ask = agent_tool(Low, description="Ask.")


class Top(Think):
    """And this one for that."""

    model = above("Top.")
    ask = agent_tool(Middle, description="Ask.")


async def left_of(app: App, id: str) -> dict[str, int]:
    """How many rows each table has of an agent and all below it."""
    store = (await app.open()).store
    tables = await store.fetch("SELECT name FROM sqlite_master WHERE type = 'table'")
    found: dict[str, int] = {}
    for (table,) in tables:
        columns = {row[0] for row in await store.fetch(f"SELECT name FROM pragma_table_info('{table}')")}
        if "agent" in columns:
            sql = f"SELECT COUNT(*) FROM {table} WHERE agent = ? OR substr(agent, 1, ?) = ?"
            [(count,)] = await store.fetch(sql, id, len(id) + 5, f"{id}/sub/")
            found |= {table: count} if count else {}
    return found


async def running(app: App) -> tuple[Any, Any]:
    """The outermost of three, and the one below it, once the innermost runs."""
    top: Any = app.agent(Top, "t")
    await top.submit_messages("Go", submission_id="s")
    store = (await app.open()).store

    async def all_run() -> bool:
        return len(await store.fetch("SELECT 1 FROM turns WHERE status = 'running'")) == 3

    await until(all_run)
    (run,) = await top.list_agent_tool_runs()
    return top, await top.sub_agent(Middle, run.run_id)


@pytest.mark.agent_case(256)
async def test_a_child_that_is_deleted_while_it_runs_is_a_failure_its_parent_goes_on_from(
    open_app: OpenApp,
) -> None:
    app = await open_app(Top)
    top, middle = await running(app)
    await top.delete_sub_agent(Middle, middle.name)
    async with asyncio.timeout(10):
        assert (await top.wait_for_submission("s")).status == "completed"
    messages = await top.get_messages()
    (part,) = messages[1].tool_parts
    assert part["output"]["error"] == "The sub-agent was deleted before it could finish."
    assert messages[1].text == "Top."
    assert await left_of(app, middle.id) == {}
    assert [run.status for run in await top.list_agent_tool_runs()] == ["error"]
    # And one of that name begins from nothing
    again = await top.sub_agent(Middle, middle.name)
    assert await again.get_messages() == []
    assert await again.list_sub_agents() == []


async def test_a_root_that_is_erased_takes_running_children_along(open_app: OpenApp) -> None:
    app = await open_app(Top)
    top, _ = await running(app)
    other = await app.agent(Top, "t2").sub_agent(Low, "l")
    assert await app.erase(Top, "t") > 0
    assert await left_of(app, top.id) == {}
    assert await left_of(app, other.id) == {"agents": 1}
    assert await top.get_messages() == []
    assert await top.list_sub_agents() == []


@pytest.mark.parametrize(
    "names",
    [("a", "ab"), ("a", "a/sub/Low/b"), ("a", "a%"), ("a_", "ab"), ("%", "a")],
    ids="-".join,
)
@pytest.mark.agent_case(265)
async def test_one_of_two_of_like_names_is_deleted(open_app: OpenApp, names: tuple[str, str]) -> None:
    app = await open_app(Top)
    top: Any = app.agent(Top, "t")
    for name in names:
        child = await top.sub_agent(Middle, name)
        await child.add_messages([f"I am {name}."])
        await (await child.sub_agent(Low, "b")).add_messages(["Below."])
    await top.delete_sub_agent(Middle, names[0])
    assert [child.name for child in await top.list_sub_agents()] == [names[1]]
    kept = await top.sub_agent(Middle, names[1])
    assert [message.text for message in await kept.get_messages()] == [f"I am {names[1]}."]
    below = await kept.sub_agent(Low, "b")
    assert [message.text for message in await below.get_messages()] == ["Below."]
    again = await top.sub_agent(Middle, names[0])
    assert await again.get_messages() == []


async def test_a_child_that_deletes_itself_in_its_turn_is_told_to_its_parent(
    open_app: OpenApp,
) -> None:
    class Ends(Think):
        model = ScriptedModel(calls("end"), says("not said"))

        def get_tools(self) -> Any:
            from everthink import tool

            @tool
            async def end() -> str:
                """End it."""
                await self.destroy()
                return "gone"

            return [end]

    class Parent(Think):
        model = above("So be it.")
        ask = agent_tool(Ends, description="Ask.")

    app = await open_app(Parent)
    parent: Any = app.agent(Parent, "p")
    async with asyncio.timeout(20):
        assert (await parent.save_messages("Go")).text == "So be it."
    assert await parent.list_sub_agents() == []


async def test_a_child_that_is_deleted_is_there_again_only_when_it_is_listed(open_app: OpenApp) -> None:
    app = await open_app(Top)
    top: Any = app.agent(Top, "t")

    async def is_there() -> tuple[bool, int]:
        return await top.has_sub_agent(Low, "l"), len(await top.list_sub_agents())

    assert await is_there() == (False, 0)
    child = await top.sub_agent(Low, "l")
    assert await is_there() == (True, 1)
    # While it is deleted whoever asks waits for that
    deleting = asyncio.ensure_future(top.delete_sub_agent(Low, "l"))
    await asyncio.sleep(0)
    assert await is_there() == (False, 0)
    await deleting
    # Looking at what is not there makes nothing
    assert await child.get_messages() == []
    assert await is_there() == (False, 0)
    await child.add_messages(["Back."])
    assert await is_there() == (True, 1)
    await top.delete_sub_agent(Low, "l")
    assert await is_there() == (False, 0)
    assert await (await top.sub_agent(Low, "l")).get_messages() == []
    assert await is_there() == (True, 1)


async def test_a_child_below_one_that_is_deleted_is_not_there_either(open_app: OpenApp) -> None:
    app = await open_app(Top)
    top: Any = app.agent(Top, "t")
    middle = await top.sub_agent(Middle, "m")
    await middle.sub_agent(Low, "l")
    deleting = asyncio.ensure_future(top.delete_sub_agent(Middle, "m"))
    await asyncio.sleep(0)
    assert not await middle.has_sub_agent(Low, "l")
    await deleting
    assert await left_of(app, middle.id) == {}
