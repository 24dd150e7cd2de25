"""Children: agents of their own below another one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Agent, Think, exposed
from everthink.errors import AgentError, StoreClosed
from everthink.testing import ScriptedModel, says
from tests.conftest import OpenApp
from tests.runtime.conftest import BOTH, Open

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

    async def keep(self, what: str) -> None:
        """Keep a text."""
        await self.set_state({"other": what})


class Desk(Agent):
    """A parent."""

    async def called(self) -> str:
        """Its name."""
        return self.name


@pytest.mark.agent_case(252, 253)
async def test_a_child_is_made_when_it_is_first_reached_and_has_its_own_state(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    one = await desk.sub_agent(Notes, "one")
    two = await desk.sub_agent(Notes, "two")
    assert await one.keep("a") == ["a"]
    assert await two.keep("b") == ["b"]
    assert await (await desk.sub_agent(Notes, "one")).keep("c") == ["a", "c"]
    assert one.id == "Desk/d/sub/Notes/one"


@pytest.mark.agent_case(261)
async def test_the_same_name_below_two_parents_is_two_children(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    for parent in ("x", "y"):
        child = await app.agent(Desk, parent).sub_agent(Notes, "n")
        assert await child.keep(parent) == [parent]


@pytest.mark.agent_case(261, 271, 276)
async def test_a_child_knows_those_above_it_and_asks_them(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Notes, "n")
    assert await child.path() == [("Desk", "d")]
    assert await child.ask_parent() == "d"
    assert await child.below("deep") == [("Desk", "d"), ("Notes", "n")]


@pytest.mark.agent_case(256, 277)
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


@pytest.mark.agent_case(265)
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


@pytest.mark.agent_case(255)
async def test_an_aborted_child_goes_on_when_it_is_next_reached(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Notes, "n")
    await child.keep("x")
    await desk.abort_sub_agent(Notes, "n")
    assert await child.keep("y") == ["x", "y"]
    assert await child.path() == [("Desk", "d")]


@pytest.mark.agent_case(267)
async def test_a_child_that_destroys_itself_is_gone(open_app: OpenApp) -> None:
    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Notes, "n")
    await child.keep("x")
    await child.destroy()
    assert await desk.list_sub_agents() == []


@pytest.mark.agent_case(271)
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


@pytest.mark.agent_case(252, 285)
async def test_a_child_that_chats_streams_through_its_handle(open_app: OpenApp) -> None:
    class Helper(Think):
        """It chats."""

        model = ScriptedModel(says("Hel", "lo"))

    desk = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Helper, "h")
    assert [piece async for piece in child.chat("Hi").text()] == ["Hel", "lo"]


@pytest.mark.agent_case(277)
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


# --- each of its own


@pytest.mark.agent_case(253)
async def test_children_of_two_classes_and_their_parent_share_a_name_and_nothing_else(
    open_app: OpenApp,
) -> None:
    desk: Any = (await open_app(Desk)).agent(Desk, "n")
    await desk.set_state({"parent": 1})
    await (await desk.sub_agent(Notes, "n")).keep("a")
    await (await desk.sub_agent(Other, "n")).keep("b")
    below = await (await desk.sub_agent(Notes, "n")).sub_agent(Notes, "n")
    states = [one.state for one in (desk, *[await desk.sub_agent(cls, "n") for cls in (Notes, Other)], below)]
    assert states == [{"parent": 1}, {"kept": ["a"]}, {"other": "b"}, None]


@pytest.mark.agent_case(254)
async def test_children_work_at_the_same_time(open_app: OpenApp) -> None:
    together = asyncio.Barrier(4)

    class Worker(Agent):
        async def work(self) -> str:
            await together.wait()  # nobody gets on before all are here
            return self.name

    class Boss(Agent):
        async def all(self) -> list[str]:
            hands = [await self.sub_agent(Worker, f"w{number}") for number in range(4)]
            return await asyncio.gather(*(hand.work() for hand in hands))

    assert await (await open_app(Boss)).agent(Boss, "b").all() == ["w0", "w1", "w2", "w3"]


@pytest.mark.agent_case(257, 276)
async def test_a_child_knows_its_name_and_its_place_from_the_first_moment(open_app: OpenApp) -> None:
    seen: list[Any] = []

    class Curious(Think):
        model = ScriptedModel()

        def __init__(self) -> None:
            seen.append(("made", self.name, self.self_path))

        def configure_session(self, session: Any) -> Any:
            seen.append(("session", self.name, self.self_path))
            return session

        async def on_start(self, props: Any = None) -> None:
            seen.append(("start", self.name, self.self_path))
            assert await self.parent_agent(Desk).called() == "d"

    await (await open_app(Desk)).agent(Desk, "d").sub_agent(Curious, "a/b %")
    path = [("Desk", "d"), ("Curious", "a/b %")]
    assert seen == [(when, "a/b %", path) for when in ("made", "session", "start")]


# --- after a restart, and after an abort


@pytest.mark.agent_case(252, 276)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_family_is_as_it_was_after_a_restart(start: Open) -> None:
    for kept in (["x"], ["x", "x"]):
        app = await start(Desk, Notes)
        child = await app.agent(Desk, "d").sub_agent(Notes, "a/b")
        deep = await child.sub_agent(Notes, "a/b")
        assert await deep.keep("x") == kept
        assert await deep.path() == [("Desk", "d"), ("Notes", "a/b")]
        assert [one.name for one in await child.list_sub_agents()] == ["a/b"]


@pytest.mark.agent_case(255)
async def test_what_still_runs_of_an_aborted_child_writes_nothing(open_app: OpenApp) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Agent):
        async def work(self) -> None:
            began.set()
            await go_on.wait()
            await self.set_state({"by": "the one that was aborted"})

        async def place(self) -> Any:
            return self.self_path, self.state

    desk: Any = (await open_app(Desk)).agent(Desk, "d")
    child = await desk.sub_agent(Slow, "s")
    working = asyncio.ensure_future(child.work())
    await began.wait()
    await desk.abort_sub_agent(Slow, "s")
    await desk.abort_sub_agent("slow", "nobody")
    again = await child.place()
    go_on.set()
    with pytest.raises(StoreClosed, match="has left memory"):
        await working
    assert again == await child.place() == ([("Desk", "d"), ("Slow", "s")], None)


@pytest.mark.agent_case(271)
async def test_each_asks_its_own_parent_also_when_that_is_not_in_memory(open_app: OpenApp) -> None:
    class Inner(Agent):
        async def ask(self, cls: type[Any]) -> Any:
            return await self.parent_agent(cls).path()

    app = await open_app(Desk)
    desk: Any = app.agent(Desk, "d")
    notes = await desk.sub_agent(Notes, "n")
    inner: Any = await notes.sub_agent(Inner, "i")
    for drop in (lambda: desk.abort_sub_agent(Notes, "n"), lambda: app.evict(Desk, "d")):
        await drop()
        assert await inner.ask(Notes) == [("Desk", "d")]
    with pytest.raises(AgentError, match="is a Notes, not"):
        await inner.ask(Desk)  # only who is next above


# --- as code has it


@pytest.mark.agent_case(260)
async def test_functions_and_objects_are_given_to_children_as_they_are(open_app: OpenApp) -> None:
    class Speaker(Agent):
        async def speak(self, times: int, tell: Any) -> None:
            for number in range(times):
                await tell(f"{self.name} {number}")

        async def pieces(self, times: int) -> Any:
            for number in range(times):
                yield f"{self.name} {number}"

    desk: Any = (await open_app(Desk)).agent(Desk, "d")
    heard: dict[str, list[str]] = {"a": [], "b": []}

    async def listen(name: str) -> None:
        async def tell(piece: str) -> None:
            heard[name].append(piece)

        child = await desk.sub_agent(Speaker, name)
        for times in (1, 3):
            await child.speak(times, tell)
        heard[name] += [piece async for piece in child.pieces(2)]

    await asyncio.gather(*map(listen, heard))
    assert heard == {name: [f"{name} {number}" for number in (0, 0, 1, 2, 0, 1)] for name in heard}


@pytest.mark.agent_case(285)
async def test_looking_at_a_child_from_outside_calls_nothing(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    desk: Any = app.agent(Desk, "d")
    child: Any = await desk.sub_agent(Notes, "n")
    await desk.abort_sub_agent(Notes, "n")
    for name in ("__await__", "__aiter__", "_home", "then", "fetch", "__fspath__"):
        assert not hasattr(child, name), name
    assert (repr(child), child.name, child.id) == ("<Notes 'n'>", "n", "Desk/d/sub/Notes/n")
    assert "keep" in dir(child)
    assert [key.name for key in (await app.open())._live] == ["d"]
    # And calls reach it again and again
    assert [await child.keep(what) for what in "ab"] == [["a"], ["a", "b"]]


async def test_what_a_child_raises_arrives_and_it_stays_usable(open_app: OpenApp) -> None:
    class Fails(Agent):
        async def fail(self) -> None:
            raise LookupError("no such thing")

        async def fine(self) -> str:
            return "fine"

    child: Any = await (await open_app(Desk)).agent(Desk, "d").sub_agent(Fails, "f")
    with pytest.raises(LookupError, match="no such thing"):
        await child.fail()
    assert await child.fine() == "fine"
