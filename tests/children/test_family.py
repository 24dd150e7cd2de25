"""Children: agents of their own below another one."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Agent, Think, exposed
from everthink.errors import AgentError
from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp

pytestmark = pytest.mark.anyio


class Notes(Agent):
    """A child that keeps something."""

    @exposed
    async def keep(self, what: str) -> list[str]:
        """Keep a text."""
        kept = [*((self.state or {}).get("kept", [])), what]
        await self.set_state({"kept": kept})
        return kept

    async def path(self) -> list[tuple[str, str]]:
        """Whose child it is."""
        return self.parent_path

    async def ask_parent(self) -> str:
        """Ask the parent something."""
        return await self.parent_agent(Desk).called()

    async def below(self, name: str) -> Any:
        """A child of this child."""
        return await (await self.sub_agent(Notes, name)).path()


class Other(Agent):
    """Another class."""


class Desk(Agent):
    """A parent."""

    async def called(self) -> str:
        """Its name."""
        return self.name


async def test_a_child_is_made_when_it_is_first_reached_and_has_its_own_state(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    one = await desk.sub_agent(Notes, "one")
    two = await desk.sub_agent(Notes, "two")
    assert await one.keep("a") == ["a"]
    assert await two.keep("b") == ["b"]
    assert await (await desk.sub_agent(Notes, "one")).keep("c") == ["a", "c"]
    assert one.id == "Desk/d/sub/Notes/one"


async def test_the_same_name_below_two_parents_is_two_children(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    for parent in ("x", "y"):
        child = await app.agent(Desk, parent).sub_agent(Notes, "n")
        assert await child.keep(parent) == [parent]


async def test_a_child_knows_those_above_it_and_asks_them(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Notes, "n")
    assert await child.path() == [("Desk", "d")]
    assert await child.ask_parent() == "d"
    assert await child.below("deep") == [("Desk", "d"), ("Notes", "n")]


async def test_children_are_listed_and_deleted_with_all_below_them(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    desk = app.agent(Desk, "d")
    child = await desk.sub_agent(Notes, "n")
    await child.keep("x")
    await child.below("deep")
    await desk.sub_agent(Other, "o")
    assert [(one.cls_name, one.name) for one in await desk.list_sub_agents()] == [
        ("Notes", "n"),
        ("Other", "o"),
    ]
    assert [one.name for one in await desk.list_sub_agents(Other)] == ["o"]
    assert [one.name for one in await desk.list_sub_agents("notes")] == ["n"]
    assert await desk.has_sub_agent(Notes, "n")
    await desk.delete_sub_agent(Notes, "n")
    await desk.delete_sub_agent(Notes, "n")
    assert not await desk.has_sub_agent("Notes", "n")
    again = await desk.sub_agent(Notes, "n")
    assert await again.keep("y") == ["y"]
    assert await again.list_sub_agents() == []


async def test_an_erased_parent_leaves_nothing_of_its_family(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    child = await app.agent(Desk, "d").sub_agent(Notes, "n")
    await child.keep("x")
    assert await app.erase(Desk, "d") > 0
    store = (await app.open()).store
    assert await store.fetch("SELECT agent FROM agents") == []
    assert await store.fetch("SELECT agent FROM kv") == []


@pytest.mark.parametrize("name", ["a%2Fb", "%", "_", "sub", "a/b", "🦊", "/sub/Notes/x", "ü" * 100])
async def test_a_name_may_be_strange_and_stays_what_it_is(open_app: OpenApp, name: str) -> None:
    app = await open_app(Desk)
    desk = app.agent(Desk, "d")
    child = await desk.sub_agent(Notes, name)
    await child.keep(name)
    other = await desk.sub_agent(Notes, name + "x")
    await other.keep("other")
    assert child.name == name
    await desk.delete_sub_agent(Notes, name)
    assert [one.name for one in await desk.list_sub_agents()] == [name + "x"]
    assert await other.keep("again") == ["other", "again"]


async def test_what_cannot_be_a_child_is_refused_in_words(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")

    class Sub(Agent):
        """Its name parts addresses."""

    for cls, name, words in (
        (Notes, "", "1 to 512"),
        (Notes, "a\x00b", "1 to 512"),
        (Notes, "🦊" * 512, "bytes"),
        (Sub, "x", "/sub/"),
        ("Notes", "x", "in the place of an agent class"),
        (Notes, 5, "in the place of a name"),
    ):
        with pytest.raises(AgentError, match=words):
            await desk.sub_agent(cls, name)  # type: ignore[arg-type]
    assert await desk.list_sub_agents() == []


async def test_children_go_four_levels_deep(open_app: OpenApp) -> None:
    child: Any = (await open_app(Desk)).agent(Desk, "d")
    for _ in range(4):
        child = await child.sub_agent(Notes, "n")
    with pytest.raises(AgentError, match="4 levels"):
        await child.sub_agent(Notes, "n")


async def test_a_child_whose_start_raises_is_not_there(open_app: OpenApp) -> None:
    class Broken(Agent):
        """It does not start."""

        async def on_start(self, props: Any = None) -> None:
            """Raise."""
            raise RuntimeError("no")

    desk = (await open_app(Desk)).agent(Desk, "d")
    with pytest.raises(RuntimeError):
        await desk.sub_agent(Broken, "b")
    assert await desk.list_sub_agents() == []


async def test_an_aborted_child_goes_on_when_it_is_next_reached(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Notes, "n")
    await child.keep("x")
    await desk.abort_sub_agent(Notes, "n")
    assert await child.keep("y") == ["x", "y"]
    assert await child.path() == [("Desk", "d")]


async def test_a_child_that_destroys_itself_is_gone(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Notes, "n")
    await child.keep("x")
    await child.destroy()
    assert await desk.list_sub_agents() == []


async def test_the_parent_is_asked_for_by_its_class(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Other, "o")
    async with child as other, desk as root:
        with pytest.raises(AgentError, match="is a Desk, not"):
            other.parent_agent(Notes)
        with pytest.raises(AgentError, match="nobody's child"):
            root.parent_agent(Desk)
        assert root.parent_path == []
        assert other.self_path == [("Desk", "d"), ("Other", "o")]


async def test_a_child_that_chats_streams_through_its_handle(open_app: OpenApp) -> None:
    class Helper(Think):
        """It chats."""

        model = ScriptedModel(says("Hel", "lo"))

    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Helper, "h")
    assert [piece async for piece in child.chat("Hi").text()] == ["Hel", "lo"]


async def test_an_agent_is_known_once_it_has_a_child(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    await (await app.agent(Desk, "d").sub_agent(Notes, "one")).below("two")
    lines = [line async for line in app.export(Desk, "d")]
    assert [(line["class"], line["name"]) for line in lines if line["kind"] in ("agent", "child")] == [
        ("Desk", "d"),
        ("Notes", "one"),
        ("Notes", "one"),
        ("Notes", "two"),
        ("Notes", "two"),
    ]
    assert await app.erase(Desk, "d") >= 3
