"""Children over sockets and HTTP: their own addresses, and what windows of the parent are told of runs."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from everthink import Think, agent_tool
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
