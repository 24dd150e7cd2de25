"""Children that cannot be, and runs that go wrong: each is told in words, and nothing half-made is left."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from everthink import Agent, App, Think, agent_tool, tool
from everthink.children.runs import Runs
from everthink.errors import AgentError, InvalidSettings
from everthink.models.port import Request, ToolMessage
from everthink.runtime.erasing import TABLES
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import Play, hangs
from tests.conftest import OpenApp
from tests.runtime.conftest import BOTH, Open
from tests.support.hooks import until
from tests.support.server import served
from tests.support.timers import move, quiet

pytestmark = pytest.mark.anyio


class Notes(Agent):
    """A child."""

    rung: list[Any] = []  # noqa: RUF012 - what all of them did

    async def ring(self, payload: Any) -> None:
        """A timer."""
        self.rung.append(self.self_path)


class Desk(Agent):
    """A parent that declares no children."""

    async def notes(self, name: str) -> Any:
        """The only line that mentions the class."""
        return await self.sub_agent(Notes, name)


@pytest.fixture(autouse=True)
def _nothing_rung() -> None:
    Notes.rung.clear()


async def rows(app: App) -> dict[str, int]:
    """How many rows each table has."""
    store = (await app.open()).store
    return {table.name: (await store.fetch(f"SELECT COUNT(*) FROM {table.name}"))[0][0] for table in TABLES}


# --- names

BAD_NAMES = {
    "empty": "",
    "nul": "a\x00b",
    "half-a-pair": "\ud800",
    "too-long": "x" * 513,
    "too-many-bytes": "🦊" * 512,
    "number": 5,
    "nothing": None,
}


@pytest.mark.agent_case(259)
@pytest.mark.parametrize("url", BOTH, indirect=True)
@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
async def test_a_name_that_is_none_is_refused_wherever_it_is_given(start: Open, name: Any) -> None:
    app = await start(Desk, Notes)
    desk: Any = app.agent(Desk, "d")
    await desk.set_state({"begun": True})
    before = await rows(app)
    for call in (desk.sub_agent, desk.has_sub_agent, desk.abort_sub_agent, desk.delete_sub_agent):
        with pytest.raises(AgentError, match=r"name is text|bytes|in the place of a name"):
            await call(Notes, name)
    if name != BAD_NAMES["too-many-bytes"]:  # no such child is there, and that can be said
        for call in (desk.has_sub_agent, desk.abort_sub_agent, desk.delete_sub_agent):
            with pytest.raises(AgentError, match="name is text"):
                await call("Notes", name)
    assert await desk.list_sub_agents() == []
    assert await rows(app) == before


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_names_that_no_database_can_tell_apart_are_none(start: Open) -> None:
    app = await start(Desk)
    for name in ("\ud800", "a\udfffb"):
        with pytest.raises(AgentError, match="name is text"):
            await app.agent(Desk, name).set_state({"a": 1})
    assert set((await rows(app)).values()) == {0}


@pytest.mark.agent_case(265)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_of_names_that_look_alike_each_is_itself_on_every_engine(start: Open) -> None:
    names = ["a", "a/b", "a%2Fb", "a%", "a_", "%", "_", "sub", "a/sub/Notes/b", "🦊", "🦊" * 200, "';--", "A"]
    app = await start(Desk, Notes)
    desk: Any = app.agent(Desk, "d")
    for name in names:
        await (await desk.sub_agent(Notes, name)).set_state({"name": name})
    left = list(names)
    for name in sorted(names, key=len):
        await desk.delete_sub_agent(Notes, name)
        left.remove(name)
        assert sorted([one.name for one in await desk.list_sub_agents()]) == sorted(left)
        for other in left:
            async with await desk.sub_agent(Notes, other) as child:
                assert child.state == {"name": other}


@pytest.mark.parametrize("run_id", ["a\x00b", "\ud800", "x" * 513], ids=["nul", "half", "long"])
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_what_no_run_can_be_called_is_refused_and_nothing_is_made(start: Open, run_id: str) -> None:
    app = await start(Desk, Helper)
    desk: Any = app.agent(Desk, "d")
    with pytest.raises(InvalidSettings, match="run_id"):
        await desk.run_agent_tool(Helper, input="x", run_id=run_id)
    assert (await desk.list_agent_tool_runs(), await desk.list_sub_agents()) == ([], [])
    await desk.cancel_agent_tool(run_id)  # there is none


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_run_that_no_child_can_be_called_like_is_an_error_and_nothing_is_made(start: Open) -> None:
    app, run_id = await start(Desk, Helper), "🦊" * 512
    desk: Any = app.agent(Desk, "d")
    result = await desk.run_agent_tool(Helper, input="x", run_id=run_id)
    assert (result.status, result.run_id) == ("error", run_id)
    assert "Nothing was made." in result.error
    assert (await desk.list_agent_tool_runs(), await desk.list_sub_agents()) == ([], [])
    await desk.cancel_agent_tool(run_id)  # there is none


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_what_a_run_is_given_wrongly_is_told_before_anything_is_stored(start: Open) -> None:
    app = await start(Desk, Helper)
    desk: Any = app.agent(Desk, "d")
    for options in (
        {"run_id": 5},
        {"parent_tool_call_id": 5},
        {"input_preview": b"x"},
        {"display": "Helper"},
        {"display_order": "first"},
    ):
        with pytest.raises(InvalidSettings, match=f"run_agent_tool: {next(iter(options))} is"):
            await desk.run_agent_tool(Helper, input="x", **options)
    for run in (5, None):
        with pytest.raises(InvalidSettings, match="run_id` of an AgentToolRun"):
            await desk.cancel_agent_tool(run)
    assert set((await rows(app)).values()) == {0}


# --- classes


@pytest.mark.agent_case(259)
@pytest.mark.parametrize("called", ["Sub", "SUB", "sub", "Sub_"])
async def test_a_class_that_is_called_like_what_parts_children_is_none_of_theirs(
    open_app: OpenApp, called: str
) -> None:
    cls = type(called, (Think,), {"model": ScriptedModel()})
    for members in ({"sub_agents": (cls,)}, {"ask": agent_tool(cls, description="Ask.")}):
        with pytest.raises(AgentError, match="/sub/ parts them"):
            App(type("Host", (Think,), {"model": ScriptedModel(), **members}), store=":memory:")
    app = await open_app(Desk)
    desk: Any = app.agent(Desk, "d")
    with pytest.raises(AgentError, match="/sub/ is what parts children"):
        await desk.sub_agent(cls, "x")
    result = await desk.run_agent_tool(cls, input="x")
    assert (result.status, "/sub/ is what parts children" in result.error) == ("error", True)
    assert set((await rows(app)).values()) == {0}


@pytest.mark.agent_case(258)
async def test_what_is_no_class_of_agents_is_no_child(open_app: OpenApp) -> None:
    app = await open_app(Desk)
    desk: Any = app.agent(Desk, "d")
    for given in (int, "Notes", None, Notes.ring):
        with pytest.raises(AgentError, match="in the place of an agent class"):
            await desk.sub_agent(given, "x")
    for given in (int, Notes, "Helper"):
        with pytest.raises(AgentError, match="in the place of a class of agents that chat"):
            await desk.run_agent_tool(given, input="x")
    for given in (int, Notes, "Helper"):
        with pytest.raises(AgentError, match="a child that is a tool chats"):
            agent_tool(given, description="Ask.")  # pyright: ignore[reportArgumentType]
    for given in (int, "Notes", None):
        with pytest.raises(InvalidSettings, match="a tuple of agent classes"):
            type("Host", (Agent,), {"sub_agents": (given,)})
    assert sorted((await app.open()).classes) == ["Desk"]
    assert set((await rows(app)).values()) == {0}


@pytest.mark.agent_case(258)
async def test_of_two_classes_of_one_name_the_second_is_refused_with_where_both_are(
    open_app: OpenApp,
) -> None:
    other = type("Notes", (Agent,), {})
    host = type("Host", (Agent,), {"sub_agents": (other,)})
    app = await open_app(Desk)
    desk: Any = app.agent(Desk, "d")
    await (await desk.notes("n")).set_state({"kept": 1})
    before = await rows(app)
    for cls in (other, host):  # by itself, and as the child of one
        with pytest.raises(AgentError, match="two agent classes of the name Notes") as refused:
            await desk.sub_agent(cls, "n")
        assert f"{Notes.__module__}.Notes" in str(refused.value)
    assert await rows(app) == before
    assert sorted((await app.open()).classes) == ["Desk", "Notes"]
    assert (await desk.notes("n")).state == {"kept": 1}


@pytest.mark.agent_case(258)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_child_of_a_class_that_is_not_known_any_more_is_kept_and_can_be_deleted(start: Open) -> None:
    app = await start(Desk)
    for name in ("one", "two"):
        await (await app.agent(Desk, "d").notes(name)).set_state({"kept": name})
    # When the next process does not know its class
    app = await start(Desk)
    desk: Any = app.agent(Desk, "d")
    assert [(one.cls_name, one.name) for one in await desk.list_sub_agents()] == [
        ("Notes", "one"),
        ("Notes", "two"),
    ]
    assert await desk.has_sub_agent("Notes", "one")
    await desk.delete_sub_agent("Notes", "one")
    assert [one.name for one in await desk.list_sub_agents("Notes")] == ["two"]
    async with served(app, lifespan="off") as server:  # then it is none in an address, either
        answer = await server.http("/agents/desk/d/sub/notes/two/x", method="POST")
        assert (answer.status, answer.text) == (404, "Not implemented")
    assert (await desk.notes("two")).state == {"kept": "two"}


@pytest.mark.agent_case(262)
@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_what_is_due_for_a_class_is_done_once_code_mentions_it(start: Open, clock: ManualClock) -> None:
    app = await start(Desk)
    child = await app.agent(Desk, "d").notes("n")
    other = await app.agent(Desk, "other").notes("n")
    for one in (child, other):
        await one.schedule(10, "ring")
    app = await start(Desk)
    await move(app, clock, 60)
    assert Notes.rung == []
    # When any child of that class is reached
    await app.agent(Desk, "d").notes("another")
    await quiet(app)
    assert sorted(Notes.rung) == [[("Desk", "d"), ("Notes", "n")], [("Desk", "other"), ("Notes", "n")]]


async def test_the_children_of_a_class_are_known_with_it(open_app: OpenApp) -> None:
    class Leaf(Think):
        model = ScriptedModel(says("leaf"))

    class Middle(Think):
        model = ScriptedModel()
        sub_agents = (Leaf,)

    app = await open_app(Desk)
    await app.agent(Desk, "d").sub_agent(Middle, "m")
    async with served(app, lifespan="off") as server:
        tab = await server.connect("/agents/desk/d/sub/middle/m/sub/leaf/l")
        await tab.until_done(await tab.say("Hi"))
        assert tab.text == "leaf"


# --- circles


def asks(name: str, words: str) -> ScriptedModel:
    """A model that calls a tool, and says what it read of it."""

    def play(request: Request) -> Play:
        read = [part for one in request.messages if isinstance(one, ToolMessage) for part in one.content]
        return says(f"{words}({read[-1].output})") if read else calls(name, query="x")

    return ScriptedModel(play, repeat=True)


async def test_an_agent_that_is_its_own_tool_is_bounded_by_its_depth(open_app: OpenApp) -> None:
    class Loop(Think):
        model = asks("again", "loop")

    Loop.again = agent_tool(Loop, description="Again.", name="again")  # type: ignore[attr-defined]
    app = await open_app(Loop)
    result = await app.agent(Loop, "l").save_messages("Go")
    # Then the innermost read why, and all above it answered
    assert result.text.startswith("loop(" * 5 + "{'ok': False, 'status': 'error', ")
    assert "Children go 4 levels deep" in result.text
    assert "Nothing was made." in result.text
    found = await rows(app)
    assert (found["agents"], found["child_runs"], found["turns"]) == (5, 4, 5)


async def test_two_agents_that_are_each_others_tools_are_bounded_too(open_app: OpenApp) -> None:
    class Ping(Think):
        model = asks("pong", "ping")

    class Pong(Think):
        model = asks("ping", "pong")
        ping = agent_tool(Ping, description="Ask.")

    Ping.pong = agent_tool(Pong, description="Ask.", name="pong")  # type: ignore[attr-defined]
    app = await open_app(Ping)
    result = await app.agent(Ping, "p").save_messages("Go")
    assert result.text.startswith("ping(pong(ping(pong(ping({'ok': False")
    found = await rows(app)
    assert (found["agents"], found["child_runs"], found["turns"]) == (5, 4, 5)


async def test_a_child_that_would_wait_for_whoever_waits_for_it_is_refused(open_app: OpenApp) -> None:
    class Kid(Think):
        model = asks("up", "kid")

        @tool
        async def up(self, query: str) -> str:
            """Ask the parent's conversation."""
            return (await self.parent_agent(Mum).save_messages(query)).text

    class Mum(Think):
        model = asks("ask", "mum")
        ask = agent_tool(Kid, description="Ask.")

    app = await open_app(Mum)
    async with asyncio.timeout(10):
        result = await app.agent(Mum, "m").save_messages("Go")
    assert result.text.startswith("mum(kid(")
    assert "cannot be called from inside an active turn" in result.text
    assert len(await app.agent(Mum, "m").get_messages()) == 2


@pytest.mark.agent_case(271)
async def test_starts_that_would_wait_for_each_other_are_refused(open_app: OpenApp) -> None:
    class Kid(Agent):
        async def on_start(self, props: Any = None) -> None:
            await self.parent_agent(Mum).set_state({"kid": self.name})

    class Mum(Agent):
        makes = True

        async def on_start(self, props: Any = None) -> None:
            if self.makes:
                await self.sub_agent(Kid, "k")

    app = await open_app(Mum)
    mum = app.agent(Mum, "m")
    async with asyncio.timeout(10):
        with pytest.raises(AgentError, match="has not started yet, and its start waits"):
            await mum.list_sub_agents()
    assert set((await rows(app)).values()) == {0}
    # Once the parent is there it may be asked
    Mum.makes = False
    assert await mum.list_sub_agents() == []
    await mum.sub_agent(Kid, "k")
    assert mum.state == {"kid": "k"}


async def test_an_agent_that_reaches_itself_in_its_start_is_refused(open_app: OpenApp) -> None:
    class Vain(Agent):
        async def on_start(self, props: Any = None) -> None:
            await apps[0].agent(Vain, self.name).set_state({})

    apps = [await open_app(Vain)]
    async with asyncio.timeout(10):
        with pytest.raises(AgentError, match="has not started yet"):
            await apps[0].agent(Vain, "v").list_sub_agents()


# --- runs that go wrong


class Helper(Think):
    """A child that is not asked."""

    model = ScriptedModel()


def parent_of(child: type[Think], **options: Any) -> type[Think]:
    """An agent whose tool is a child, and which says what it read."""

    class Assistant(Think):
        model = asks("ask", "read")
        ask = agent_tool(child, description="Ask.", **options)

    return Assistant


async def read_of(agent: Any) -> dict[str, Any]:
    """What the model of the parent read of its last call."""
    (part,) = (await agent.get_messages())[-1].tool_parts
    return part["output"]


async def test_a_child_without_a_model_is_told_and_its_parent_goes_on(open_app: OpenApp) -> None:
    class Bare(Think):
        """It names no model."""

    cls = parent_of(Bare)
    app = await open_app(cls)
    agent: Any = app.agent(cls, "a")
    assert (await agent.save_messages("Go")).status == "completed"
    told = await read_of(agent)
    assert (told["ok"], told["status"], told["retryable"]) == (False, "error", False)
    assert "Bare names no model" in told["error"]
    (run,) = await agent.list_agent_tool_runs()
    assert (run.status, run.completed_at is not None) == ("error", True)
    # And the child is at rest, with what it was asked
    child = await agent.sub_agent(Bare, run.run_id)
    assert await child.wait_until_stable()
    assert [message.role for message in await child.get_messages()] == ["user"]
    result = await agent.run_agent_tool(Bare, input="Hi")
    assert (result.status, "get_model()" in result.error) == ("error", True)
    assert (await rows(app))["turns"] == 3


@dataclass
class Found:
    """What is found."""

    title: str
    score: int


MISFITS = {
    "words": ("I found nothing.", "Found"),
    "other-type": ('{"title": "T", "score": "many"}', "score"),
    "a-part": ('{"title": "T"}', "score"),
    "nothing": ("", "output"),
    "list": ("[]", "Found"),
}


@pytest.mark.parametrize(("said", "word"), MISFITS.values(), ids=MISFITS)
@pytest.mark.parametrize("way", ["tool", "code"])
async def test_an_answer_that_does_not_fit_is_an_error_that_is_kept(
    open_app: OpenApp, said: str, word: str, way: str
) -> None:
    class Finder(Think):
        model = ScriptedModel(says(said))

    cls = parent_of(Finder, output=Found)
    app = await open_app(cls)
    agent: Any = app.agent(cls, "a")
    if way == "tool":
        assert (await agent.save_messages("Go")).status == "completed"
        told = await read_of(agent)
        assert (told["ok"], told["status"], told["retryable"]) == (False, "error", False)
        error = told["error"]
    else:
        result = await agent.run_agent_tool(Finder, input="x", output=Found, run_id="r")
        assert (result.status, result.output) == ("error", None)
        error = result.error
        again = await agent.run_agent_tool(Finder, input="x", output=Found, run_id="r")
        assert (again.status, again.error) == ("error", error)
    assert word in error
    (run,) = await agent.list_agent_tool_runs()
    assert run.status == "error"
    # What it said is there for whoever looks
    child = await agent.sub_agent(Finder, run.run_id)
    assert "".join(message.text for message in (await child.get_messages())[1:]) == said


@pytest.mark.parametrize("url", BOTH, indirect=True)
async def test_a_call_id_that_comes_again_in_another_turn_is_another_run(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(runs: Runs, cut: Any = ()) -> None:
        """The runs of a cleared conversation are not gone yet when it comes again."""

    monkeypatch.setattr(Runs, "forget", later)

    class Answers(Think):
        model = ScriptedModel(says("one"), says("two"), says("three"))

    class Assistant(Think):
        model = ScriptedModel(*[calls("ask", query="x", id="c1"), says("Done.")] * 3)
        ask = agent_tool(Answers, description="Ask.")

    app = await start(Assistant)
    agent: Any = app.agent(Assistant, "a")
    read: list[Any] = []
    for _ in range(3):
        await agent.save_messages("Go")
        read.append(await read_of(agent))
        await agent.clear_messages()  # else the id would be known, and replaced
    assert read == ["one", "two", "three"]
    runs = await agent.list_agent_tool_runs()
    assert [(run.status, run.parent_tool_call_id) for run in runs] == [("completed", "c1")] * 3
    ids = sorted(run.run_id for run in runs)
    assert ids[0] == "agent-tool:c1"
    assert all(id.startswith("agent-tool:c1:") for id in ids[1:])
    # Each has a child of its own, with one question and one answer
    children = [await agent.sub_agent(Answers, id) for id in ids]
    said = [[one.text for one in await child.get_messages()][1:] for child in children]
    assert sorted(said) == [["one"], ["three"], ["two"]]


async def test_a_run_whose_class_is_not_known_yet_is_joined_once_code_names_it(
    start: Open, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()

    class Late(Think):
        model = ScriptedModel(lambda request: says("Late.") if gate.is_set() else hangs(), repeat=True)

    app = await start(Desk)
    asked = asyncio.ensure_future(app.agent(Desk, "d").run_agent_tool(Late, input="x", run_id="r"))
    await until(app.agent(Desk, "d").list_agent_tool_runs)
    # When the next process does not know the class of the child, its parent is there all the same
    app = await start(Desk)
    asked.cancel()
    gate.set()
    desk: Any = app.agent(Desk, "d")

    async def is_left() -> bool:
        (run,) = await desk.list_agent_tool_runs()
        return run.status == "interrupted"

    await until(is_left)
    result = await desk.run_agent_tool(Late, input="x", run_id="r")
    assert (result.status, result.summary) == ("completed", "Late.")
    child = await desk.sub_agent(Late, "r")
    assert [message.role for message in await child.get_messages()] == ["user", "assistant"]
    assert "sub_agents = (Late,)" in caplog.text
