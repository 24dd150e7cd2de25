"""Families on the page: whose children there are, how their runs stand, and all their calls as one tree."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Agent, Think, agent_tool, tool
from everthink.messages import encode_json
from everthink.testing import ScriptedModel, calls, says, waits

from ..support.server import Served
from .conftest import ROOM, Develop

pytestmark = pytest.mark.anyio


def family(*plays: Any, child: tuple[Any, ...] = ()) -> type[Think]:
    """An agent with a helper."""

    class Helper(Think):
        model = ScriptedModel(*child)

        @tool
        def look(self, at: str) -> str:
            """Look."""
            return f"saw {at}"

    class Assistant(Think):
        model = ScriptedModel(*plays)
        delegate = agent_tool(Helper, description="Ask the helper.", display_name="The helper")

    return Assistant


async def stop(server: Served, name: str, run: str) -> Any:
    """What is answered to who wants to stop a run."""
    path = f"/everthink/inspect/assistant/{name}/runs/stop"
    return await server.http(path, method="POST", body=encode_json({"id": run}))


async def test_the_runs_of_an_agent_are_told_with_times_and_tokens(develop: Develop) -> None:
    said = (calls("look", at="it").uses(7, 3), says("Seen.").uses(9, 2))
    cls = family(calls("delegate", query="x"), says("Done."), child=said)
    server = await develop(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Go"))
    told = (await server.http(ROOM)).json
    [run] = told["runs"]
    assert (run["title"], run["kebab"], run["status"], run["preview"]) == (
        "The helper",
        "helper",
        "completed",
        '{"query":"x"}',
    )
    assert run["run_id"] == f"agent-tool:{run['call_id']}"
    assert run["answer_id"] == chat.messages[-1].id
    assert run["started_at"] <= run["ended_at"] <= told["now"]
    assert run["usage"] == {"input_tokens": 16, "output_tokens": 5, "total_tokens": 21}


async def test_a_child_has_a_journal_and_events_of_its_own(develop: Develop) -> None:
    cls = family(calls("delegate", query="x"), says("Done."), child=(calls("look", at="it"), says("Seen.")))
    server = await develop(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Go"))
    [run] = (await server.http(ROOM)).json["runs"]
    place = f"/sub/helper/{run['run_id'].replace(':', '%3A')}"
    journal = (await server.http(ROOM + place)).json
    assert [call["tool"] for call in journal["calls"]] == ["look"]
    assert [turn["trigger"] for turn in journal["turns"]] == ["agent-tool"]
    assert len(journal["turns"][0]["steps"]) == 2
    assert (await server.http(f"{ROOM}{place}/memory")).status == 200
    events = await server.connect(f"/everthink/events/assistant/room{place}")
    await events.until(lambda: any(one["type"] == "chat:turn:finish" for one in events.frames))


async def test_a_family_is_one_tree_of_calls(develop: Develop) -> None:
    cls = family(calls("delegate", query="x"), says("Done."), child=(calls("look", at="it"), says("Seen.")))
    server = await develop(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Go"))
    tree = (await server.http(f"{ROOM}/family")).json
    [turn] = tree["turns"]
    [delegate] = turn["calls"]
    [run] = delegate["runs"]
    [below] = run["child"]["turns"]
    [look] = below["calls"]
    assert [delegate["tool"], run["title"], look["tool"], look["runs"]] == [
        "delegate",
        "The helper",
        "look",
        [],
    ]
    assert turn["started_at"] <= delegate["started_at"] <= run["started_at"] <= look["started_at"]
    assert look["settled_at"] <= run["ended_at"] <= delegate["settled_at"] <= turn["ended_at"]
    assert (tree["members"], tree["is_cut"], tree["runs"], tree["children"]) == (2, False, [], [])
    place = f"{ROOM}/sub/helper/{run['run_id']}"
    assert (await server.http(f"{place}/family")).json == tree, "a child shows the family that it is of"


async def test_conversations_are_listed_with_their_children(develop: Develop) -> None:
    cls = family(calls("delegate", query="x"), says("Done."), child=(says("Seen."),))
    server = await develop(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Go"))
    [one] = (await server.http("/everthink/conversations/assistant")).json["conversations"]
    [child] = one["children"]
    [run] = (await server.http(ROOM)).json["runs"]
    assert child["path"] == [{"agent": "helper", "name": run["run_id"]}]
    assert (child["class"], child["title"], child["status"]) == ("Helper", "The helper", "completed")


async def test_one_run_is_stopped_and_its_parent_goes_on(develop: Develop) -> None:
    gate = asyncio.Event()
    cls = family(calls("delegate", query="x"), says("Without it, then."), child=(waits(gate).says("late"),))
    server = await develop(cls)
    chat = await server.connect(cls)
    asked = await chat.say("Go")
    told = await chat.until_frame("agent-tool-event")
    answer = await stop(server, "room", told["event"]["runId"])
    assert answer.status == 200
    await chat.until_done(asked)
    assert chat.messages[-1].text == "Without it, then."
    [run] = (await server.http(ROOM)).json["runs"]
    assert (run["status"], run["error"]) == ("aborted", "A person stopped it.")
    assert (await stop(server, "nobody", "x")).status == 404


async def test_who_may_only_look_stops_nothing(develop: Develop) -> None:
    cls = family()
    server = await develop(cls, authenticate=lambda _: "eve", authorize=lambda _, action: action == "inspect")
    assert (await server.http(f"{ROOM}/family")).status == 200
    assert (await stop(server, "room", "x")).status == 403


async def test_an_address_that_can_be_no_childs_is_refused(develop: Develop) -> None:
    class Counter(Agent):
        """Does not chat."""

    class Assistant(Think):
        model = ScriptedModel()
        sub_agents = (Counter,)

    server = await develop(Assistant)
    assert (await server.http(f"{ROOM}/sub/assistant/%00")).status == 400
    deep = "/sub/assistant/a" * 6
    assert (await server.http(ROOM + deep)).status == 400
    assert (await server.http(f"{ROOM}/sub/counter/c")).status == 404
