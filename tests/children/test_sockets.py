"""Children over sockets and HTTP: their own addresses, and what windows of the parent are told of runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from everthink import Agent, Think, agent_tool, exposed
from everthink.children.showing import RunViews
from everthink.journal.feed import RunTold
from everthink.testing import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.server import served

pytestmark = pytest.mark.anyio


def family(*plays: Any, child: tuple[Any, ...] = ()) -> tuple[type[Think], type[Think]]:
    """A parent, and the class of its child."""

    class Helper(Think):
        model = ScriptedModel(*child)

    class Assistant(Think):
        model = ScriptedModel(*plays)
        delegate = agent_tool(Helper, description="Ask the helper.")

    return Assistant, Helper


def events(client: Any) -> list[tuple[int, str, bool]]:
    """What a window was told of runs: number, kind, and whether it was told again."""
    found = [frame for frame in client.frames if frame["type"] == "agent-tool-event"]
    return [(one["sequence"], one["event"]["kind"], one.get("replay", False)) for one in found]


@pytest.mark.agent_case(378)
async def test_windows_are_told_of_a_run_live_and_later_in_the_same_numbers(open_app: OpenApp) -> None:
    parent, _ = family(calls("delegate", query="x"), says("Done."), child=(says("Hel", "lo"),))
    app = await open_app(parent)
    async with served(app) as server:
        one = await server.connect(parent)
        await one.until_done(await one.say("Go"))
        live = events(one)
        assert [number for number, _, _ in live] == list(range(len(live)))
        assert live[0][1] == "started"
        assert live[-1][1] == "finished"
        assert {kind for _, kind, _ in live[1:-1]} == {"chunk"}
        late = await server.connect(parent)
        await late.until(lambda: events(late)[-1:] and events(late)[-1][1] == "finished")
        assert events(late) == [(number, kind, True) for number, kind, _ in live]
        told = {frame["sequence"]: frame["event"] for frame in one.frames if "sequence" in frame}
        again = {frame["sequence"]: frame["event"] for frame in late.frames if "sequence" in frame}
        assert told == again


@pytest.mark.agent_case(278)
async def test_a_child_has_an_address_of_its_own(open_app: OpenApp) -> None:
    parent, helper = family(child=(says("I am the child."),))
    app = await open_app(parent)
    async with served(app) as server:
        tab = await server.connect("/agents/assistant/room/sub/helper/h%201")
        identity = await tab.until_frame("cf_agent_identity")
        assert (identity["agent"], identity["name"]) == ("helper", "h 1")
        await tab.until_done(await tab.say("Hi"))
        told = (await server.http("/agents/assistant/room/sub/helper/h%201/get-messages")).json
        assert [message["role"] for message in told] == ["user", "assistant"]
        assert (await server.http("/agents/assistant/room/get-messages")).json == []
        assert (await server.http("/agents/assistant/room/sub/nope/x/get-messages")).json == []
        assert [one.name for one in await app.agent(parent, "room").list_sub_agents(helper)] == ["h 1"]


@pytest.mark.agent_case(280)
async def test_a_parent_decides_who_reaches_its_children(open_app: OpenApp) -> None:
    class Helper(Think):
        model = ScriptedModel()

    class Strict(Think):
        model = ScriptedModel()
        sub_agents = (Helper,)

        async def on_before_sub_agent(self, request: Any, cls: type[Any], name: str) -> Any:
            if not await self.has_sub_agent(cls, name):
                return PlainTextResponse("There is no such child", 404)
            return None

    app = await open_app(Strict)
    async with served(app) as server:
        await server.connect(Strict)
        answer = await server.http("/agents/strict/room/sub/helper/h/get-messages")
        assert (answer.status, answer.text) == (404, "There is no such child")
        tab = await server.connect("/agents/strict/room/sub/helper/h")
        assert await tab.until_closed() == (4404, "Sub-agent connection rejected (404)")
        await app.agent(Strict, "room").sub_agent(Helper, "h")
        assert (await server.http("/agents/strict/room/sub/helper/h/get-messages")).status == 200


async def test_a_class_that_is_no_child_of_the_parent_is_not_made_by_an_address(open_app: OpenApp) -> None:
    parent, _ = family()

    class Admin(Think):
        model = ScriptedModel()

    app = await open_app(parent, Admin)
    async with served(app) as server:
        answer = await server.http("/agents/assistant/room/sub/admin/x/get-messages")
        assert answer.status == 404


async def test_a_window_is_told_how_a_run_goes_on_that_was_interrupted() -> None:
    sent: list[tuple[int, str]] = []

    class Window:
        """A connected client."""

    def send(windows: Any, frames: Any) -> None:
        sent.extend((frame.sequence, frame.event["kind"]) for frame in frames)

    window, views = Window(), RunViews[Window](send)

    def tell(number: int, kind: str, **fields: Any) -> None:
        views.tell(RunTold("r", None, number, {"kind": kind, "runId": "r", **fields}), [window])

    for number, kind in [(0, "started"), (1, "chunk"), (2, "interrupted"), (2, "interrupted")]:
        tell(number, kind)
    # It is followed again from its start; the piece after its end has the number that the end had.
    for number, kind in [(0, "started"), (1, "chunk"), (2, "chunk"), (3, "finished"), (3, "finished")]:
        tell(number, kind)
    assert sent == [(0, "started"), (1, "chunk"), (2, "interrupted"), (2, "chunk"), (3, "finished")]


async def test_a_window_is_told_of_the_fifty_latest_runs_in_their_order(open_app: OpenApp) -> None:
    parent, child = family(child=tuple(says(f"{number}") for number in range(52)))
    app = await open_app(parent)
    agent = app.agent(parent, "room")
    for number in range(52):
        await agent.run_agent_tool(child, input="Hi", run_id=f"r{number}")
    async with served(app) as server:
        tab = await server.connect(parent)
        await tab.until(lambda: len([one for one in events(tab) if one[1] == "finished"]) == 50)
        told = [frame["event"] for frame in tab.of("agent-tool-event")]
        begun = [event["runId"] for event in told if event["kind"] == "started"]
        assert begun == [f"r{number}" for number in range(2, 52)]
        assert "parentToolCallId" not in tab.of("agent-tool-event")[0]
        # All of a run comes before the next.
        assert [event["runId"] for event in told] == sorted(
            (event["runId"] for event in told), key=lambda run: int(run[1:])
        )


@pytest.mark.agent_case(331, 332)
async def test_runs_of_a_grandchild_are_told_to_the_windows_of_its_own_parent(open_app: OpenApp) -> None:
    class Leaf(Think):
        model = ScriptedModel(says("leaf"))

    class Middle(Think):
        model = ScriptedModel(calls("ask", query="x", id="m1"), says("middle"))
        ask = agent_tool(Leaf, description="Ask the leaf.")

    class Top(Think):
        model = ScriptedModel(calls("ask", query="x", id="t1"), says("top"))
        ask = agent_tool(Middle, description="Ask the middle.")

    app = await open_app(Top)
    async with served(app) as server:
        top = await server.connect(Top)
        await top.until_done(await top.say("Go"))
        assert {frame["event"]["runId"] for frame in top.of("agent-tool-event")} == {"agent-tool:t1"}
        middle = await server.connect("/agents/top/room/sub/middle/agent-tool%3At1")
        await middle.until(lambda: events(middle)[-1:] and events(middle)[-1][1] == "finished")
        assert {frame["event"]["runId"] for frame in middle.of("agent-tool-event")} == {"agent-tool:m1"}
        leaf = await server.connect("/agents/top/room/sub/middle/agent-tool%3At1/sub/leaf/agent-tool%3Am1")
        await leaf.until_frame("cf_agent_chat_messages")
        assert leaf.text == "leaf"
        assert leaf.of("agent-tool-event") == []


# --- what happens over a socket


@pytest.mark.agent_case(273)
@pytest.mark.parametrize("where", ["message", "call", "connect", "request"])
async def test_a_child_is_made_while_somebody_is_served(open_app: OpenApp, where: str) -> None:
    class Kid(Agent):
        async def on_start(self, props: Any = None) -> None:
            await self.set_state({"made": self.name})
            self.broadcast("nobody hears it yet")

    class Host(Agent):
        sub_agents = (Kid,)

        async def make(self, name: str) -> Any:
            return (await self.sub_agent(Kid, name)).state

        @exposed
        async def made(self, name: str) -> Any:
            return await self.make(name)

        async def on_message(self, connection: Any, message: Any) -> None:
            connection.send(f"{await self.make(message)}")

        async def on_connect(self, connection: Any, request: Any) -> None:
            if request.query_params.get("make"):
                connection.send(f"{await self.make('connect')}")

        async def on_request(self, request: Any) -> Any:
            return await self.make("request")

    app = await open_app(Host)
    async with served(app, lifespan="off") as server:
        tab = await server.connect(Host, query={"make": "1"} if where == "connect" else None)
        if where == "call":
            (answer,) = await tab.call("made", "call")
            assert answer["result"] == {"made": "call"}
        elif where == "request":
            answer = await server.http("/agents/host/room/x", method="POST")
            assert answer.json == {"made": "request"}
        else:
            if where == "message":
                await tab.send("message")
            await tab.until(lambda: tab.other)
            assert tab.other == [f"{{'made': '{where}'}}"]
        assert [one.name for one in await app.agent(Host, "room").list_sub_agents()] == [where]


@pytest.mark.agent_case(274)
async def test_a_child_speaks_and_has_a_state_though_nobody_is_connected(open_app: OpenApp) -> None:
    class Kid(Agent):
        async def on_start(self, props: Any = None) -> None:
            self.broadcast("hello")
            await self.set_state({"here": [one.id for one in self.connections]})

    class Host(Agent):
        sub_agents = (Kid,)

    app = await open_app(Host)
    async with served(app, lifespan="off") as server:
        parent = await server.connect(Host)
        await parent.until_frame("cf_agent_identity")
        kid = await app.agent(Host, "room").sub_agent(Kid, "k")
        assert kid.state == {"here": []}
        await app.agent(Host, "room").set_state({"parent": 1})
        await parent.until(lambda: parent.state == {"parent": 1})
        assert parent.other == []


@pytest.mark.agent_case(286)
async def test_a_connection_of_a_child_is_the_same_object_from_its_first_to_its_last(
    open_app: OpenApp,
) -> None:
    seen: list[Any] = []
    gone = asyncio.Event()

    class Kid(Agent):
        def on_connect(self, connection: Any, request: Any) -> None:
            connection.state = {"who": request.query_params["who"]}
            seen.append(connection)

        def on_message(self, connection: Any, message: Any) -> None:
            seen.append(connection)
            connection.send(f"{connection.state['who']} said {message}")

        @exposed
        def count(self) -> int:
            return len(self.connections)

        def on_close(self, connection: Any, code: int, reason: str) -> None:
            seen.append(connection)
            gone.set()

    class Host(Agent):
        sub_agents = (Kid,)

        def on_connect(self, connection: Any, request: Any) -> None:
            raise AssertionError("it is not its parent that is connected to")

    app = await open_app(Host)
    async with served(app, lifespan="off") as server:
        tab = await server.connect("/agents/host/room/sub/kid/k", query={"who": "ada"})
        for word in ("hello", "again"):
            await tab.send(word)
        await tab.until(lambda: len(tab.other) == 2)
        assert tab.other == ["ada said hello", "ada said again"]
        assert (await tab.call("count"))[0]["result"] == 1
        await tab.close()
        await asyncio.wait_for(gone.wait(), 10)
    assert len(seen) == 4
    assert all(one is seen[0] for one in seen)


@pytest.mark.agent_case(288)
async def test_marks_of_a_childs_sockets_are_made_anew_when_they_come_back(open_app: OpenApp) -> None:
    class Kid(Agent):
        initial_state: Any = {"n": 0}  # noqa: RUF012 - copied by the framework

        def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
            return request.query_params.get("readonly") == "1"

    class Host(Agent):
        sub_agents = (Kid,)

    app = await open_app(Host)
    async with served(app, lifespan="off") as server:
        for _ in range(2):
            tab = await server.connect("/agents/host/room/sub/kid/k", query={"readonly": "1"})
            await tab.set_state({"n": 1})
            assert (await tab.until_frame("cf_agent_state_error"))["error"]
            # When the child leaves memory, its clients come back to it
            await app.agent(Host, "room").abort_sub_agent(Kid, "k")
            assert (await tab.until_closed())[0] == 1012
