"""The agent's state over sockets: shown at connect, set from either side, kept."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

from everthink import AgentError, Think
from everthink.errors import InvalidSettings, NotJson, StoreError
from everthink.runtime.rpc import exposed
from everthink.testing import ScriptedModel
from tests.support.agents import live

from ..conftest import OpenApp
from ..support.agents import assistant
from .conftest import Serve

pytestmark = pytest.mark.anyio


class Counter(Think):
    """Counts upwards only; some connections may only look."""

    model = ScriptedModel()
    initial_state: Any = {"count": 0}  # noqa: RUF012 - copied by the framework

    def validate_state_change(self, state: Any, source: Any) -> None:
        if state["count"] < 0:
            raise ValueError("secret: count must not be negative")

    def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("readonly") == "1"

    async def should_send_protocol_messages(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("noproto") != "1"

    @exposed
    async def bump(self) -> int:
        count = self.state["count"] + 1
        await self.set_state({"count": count})
        return count

    @exposed(reads=True)
    def look(self) -> Any:
        return self.state


class Point:
    """Something that is no JSON."""


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (
            {"users": [{"born": date(1815, 12, 10)}]},
            "state['users'][0]['born'] is datetime.date(1815, 12, 10), a date",
        ),
        ({"seen": {1, 2}}, "state['seen'] is {1, 2}, a set"),
        ({"data": b"x"}, "state['data'] is b'x', a bytes"),
        ({"mean": float("nan")}, "state['mean'] is nan"),
        ({"by_id": {7: "x"}}, "a key of state['by_id'] is 7, an int"),
        (Point(), "a Point"),
        ([(), [Point]], "state[1][0] is <class"),
    ],
)
async def test_a_state_that_is_no_json_is_refused_where_it_is_set(
    open_app: OpenApp, state: Any, told: str
) -> None:
    app = await open_app(cls := assistant(ScriptedModel(), initial_state={"fine": True}))
    agent = await live(app.agent(cls))
    with pytest.raises(AgentError) as refused:
        await agent.set_state(state)
    assert str(refused.value).startswith("set_state: ")
    assert told in str(refused.value)
    assert "Nothing was changed." in str(refused.value)
    assert agent.state == {"fine": True}


def test_an_initial_state_that_is_no_json_is_refused_where_its_class_is_written() -> None:
    with pytest.raises(InvalidSettings, match=r"Assistant\.initial_state\['since'\] is datetime.date"):
        assistant(ScriptedModel(), initial_state={"since": date(2026, 1, 1)})
    with pytest.raises(InvalidSettings, match=r"Assistant\.initial_state\['tags'\] is \{'a'\}, a set"):
        assistant(ScriptedModel(), initial_state={"tags": {"a"}})


async def test_an_initial_state_that_a_property_makes_is_refused_at_the_start(open_app: OpenApp) -> None:
    state = property(lambda self: {"since": date(2026, 1, 1)})
    app = await open_app(cls := assistant(ScriptedModel(), initial_state=state))
    with pytest.raises(NotJson, match=r"^Assistant\.initial_state\['since'\] is datetime.date"):
        await live(app.agent(cls))


@pytest.mark.parametrize("how", ["initial_state", "set_state"])
async def test_a_state_with_tuples_is_the_same_before_and_after_a_restart(
    open_app: OpenApp, how: str
) -> None:
    given = {"at": (1, 2), "tags": [("a", "b")], "half": "\ud83d"}
    seen: list[Any] = []
    cls = assistant(
        ScriptedModel(),
        initial_state=given if how == "initial_state" else {},
        validate_state_change=lambda self, state: seen.append(state),
    )
    app = await open_app(cls)
    agent = await live(app.agent(cls))
    if how == "set_state":
        await agent.set_state(given)
    before = agent.state
    await app.close()
    after = (await live((await open_app(cls)).agent(cls))).state
    assert repr(before) == repr(after) == repr(seen[-1])
    assert before == {"at": [1, 2], "tags": [["a", "b"]], "half": "\ufffd"}


async def test_every_json_value_is_a_state(open_app: OpenApp) -> None:
    app = await open_app(cls := assistant(ScriptedModel()))
    agent = await live(app.agent(cls))
    for state in (None, True, 0, 1.5, "", [], {}, {"a": [{"b": None}]}, 2**80):
        await agent.set_state(state)
        assert agent.state == state


async def test_the_state_follows_the_identity(serve: Serve) -> None:
    server = await serve(Counter)
    chat = await server.connect(Counter, "a-room")
    await chat.until_frame("mcp_servers")
    assert [f["type"] for f in chat.frames] == [
        "cf_agent_chat_messages",
        "cf_agent_identity",
        "cf_agent_state",
        "cf_agent_mcp_servers",
    ]
    assert chat.identity == {
        "type": "cf_agent_identity",
        "name": "a-room",
        "agent": "counter",
        "stateFollows": True,
    }
    assert chat.state == {"count": 0}


async def test_without_a_state_none_is_promised(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.until_frame("mcp_servers")
    assert chat.identity == {"type": "cf_agent_identity", "name": "room", "agent": "assistant"}
    assert chat.of("state") == []


async def test_a_state_set_by_one_tab_goes_to_the_others_and_is_kept(serve: Serve) -> None:
    server = await serve(Counter)
    one, two = await server.connect(Counter, id="a"), await server.connect(Counter, id="b")
    twin = await server.connect(Counter, id="a")
    await asyncio.gather(*(tab.until_frame("mcp_servers") for tab in (one, two, twin)))
    await one.set_state({"count": 5})
    await two.until(lambda: two.state == {"count": 5})
    await one.settled()
    await twin.settled()
    assert len(one.of("state")) == 1
    assert len(twin.of("state")) == 1  # shares the sender's id
    assert (await one.call("look"))[-1]["result"] == {"count": 5}

    await server.leave()
    await server.stop()
    again = await (await serve(Counter)).connect(Counter)
    await again.until_frame("state")
    assert again.state == {"count": 5}


async def test_a_state_the_agent_refuses_changes_nothing_and_says_little(serve: Serve) -> None:
    server = await serve(Counter)
    one, two = await server.connect(Counter, id="a"), await server.connect(Counter, id="b")
    await two.until_frame("mcp_servers")
    for bad in ({"count": -1}, {}, 7, None):
        await one.set_state(bad)
    await one.until_frame("state_error", count=4)
    assert one.of("state_error")[0] == {"type": "cf_agent_state_error", "error": "State update rejected"}
    assert len(one.of("state")) == 1
    await two.settled()
    assert len(two.of("state")) == 1
    assert (await one.call("look"))[-1]["result"] == {"count": 0}


async def test_a_state_set_by_the_agent_goes_to_all_before_the_answer(serve: Serve) -> None:
    server = await serve(Counter)
    one, two = await server.connect(Counter, id="a"), await server.connect(Counter, id="b")
    await two.until_frame("mcp_servers")
    await one.call("bump")
    await two.until(lambda: two.state == {"count": 1})
    assert [f["type"] for f in one.frames[-2:]] == ["cf_agent_state", "rpc"]
    assert one.frames[-1]["result"] == 1


async def test_changes_at_the_same_time_are_all_counted(serve: Serve) -> None:
    # Reading, changing and setting is one step, although storing takes a while.
    server = await serve(Counter)
    one, two = await server.connect(Counter, id="a"), await server.connect(Counter, id="b")
    await two.until_frame("mcp_servers")
    for tab in (one, two):
        for _ in range(10):
            await tab.start_call("bump")
    await asyncio.gather(*(tab.until(lambda tab=tab: len(tab.of("rpc")) == 10) for tab in (one, two)))
    assert sorted(frame["result"] for tab in (one, two) for frame in tab.of("rpc")) == list(range(1, 21))
    assert [frame["state"]["count"] for frame in one.of("state")] == list(range(21))


async def test_a_state_is_stored_and_told_though_its_setter_stops_waiting(serve: Serve) -> None:
    server = await serve(Counter)
    chat = await server.connect(Counter)
    await chat.until_frame("mcp_servers")
    agent = await live(server.app.agent(Counter, "room"))
    setting = asyncio.ensure_future(agent.set_state({"count": 4}))
    await asyncio.sleep(0)
    setting.cancel()
    await chat.until(lambda: chat.state == {"count": 4})
    await server.app.evict(Counter, "room")
    assert (await live(server.app.agent(Counter, "room"))).state == {"count": 4}


async def test_a_state_that_cannot_be_stored_is_taken_back(serve: Serve) -> None:
    server = await serve(Counter)
    agent = await live(server.app.agent(Counter, "room"))
    await server.app.close()
    with pytest.raises(StoreError):
        await agent.set_state({"count": 9})
    assert agent.state == {"count": 0}


async def test_a_readonly_connection_may_call_what_reads_and_change_no_state(serve: Serve) -> None:
    server = await serve(Counter)
    reader = await server.connect(Counter, query={"readonly": "1"})
    writer = await server.connect(Counter)
    await reader.set_state({"count": 9})
    refused = await reader.until_frame("state_error")
    assert refused["error"] == "Connection is readonly"
    answers = await reader.call("bump")
    assert answers[-1]["success"] is False
    assert "Connection is readonly" in answers[-1]["error"]
    assert (await reader.call("look"))[-1]["result"] == {"count": 0}
    await writer.set_state({"count": 1})
    await reader.until(lambda: reader.state == {"count": 1})


async def test_a_connection_without_protocol_gets_chat_and_answers_only(serve: Serve) -> None:
    server = await serve(Counter)
    bare = await server.connect(Counter, query={"noproto": "1"})
    other = await server.connect(Counter)
    await other.set_state({"count": 3})
    await other.settled()
    assert (await bare.call("look"))[-1]["result"] == {"count": 3}
    assert [f["type"] for f in bare.frames] == ["cf_agent_chat_messages", "rpc"]


@pytest.mark.parametrize("state", [None, 0, "", False, [], {}])
async def test_an_empty_looking_state_is_a_state(serve: Serve, state: Any) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    one, two = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await two.until_frame("mcp_servers")
    await one.set_state(state)
    assert (await two.until_frame("state"))["state"] == state
    await server.leave()
    await server.stop()
    again = await (await serve(cls)).connect(cls)
    assert (await again.until_frame("state"))["state"] == state
    assert again.identity is not None
    assert again.identity["stateFollows"] is True


async def test_a_stored_state_wins_over_the_initial_one(serve: Serve) -> None:
    cls = assistant(ScriptedModel(), initial_state={"seeded": True})
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.set_state(None)
    await chat.settled()
    await server.app.evict(cls, "room")
    again = await server.connect(cls)
    assert (await again.until_frame("state"))["state"] is None


async def test_the_initial_state_is_a_copy_for_each_agent(serve: Serve) -> None:
    server = await serve(Counter)
    agent = await live(server.app.agent(Counter, "one"))
    agent.state["count"] = 99
    assert agent.state == {"count": 0}
    assert Counter.initial_state == {"count": 0}


async def test_the_hook_sees_each_new_state_and_its_source(serve: Serve) -> None:
    seen: list[Any] = []
    told = asyncio.Event()

    async def on_state_changed(self: Any, state: Any, source: Any) -> None:
        seen.append((state, source if source == "server" else source.id))
        told.set()
        raise RuntimeError("ignored")

    cls = assistant(ScriptedModel(), on_state_changed=on_state_changed)
    server = await serve(cls)
    chat = await server.connect(cls, id="tab")
    await chat.set_state(1)
    await told.wait()
    await server.app.agent(cls, "room").set_state(2)
    await chat.until(lambda: chat.state == 2)
    await chat.settled()
    assert seen == [(1, "tab"), (2, "server")]


async def test_a_state_frame_without_a_state_goes_to_the_application(serve: Serve) -> None:
    heard: list[Any] = []
    cls = assistant(ScriptedModel(), on_message=lambda self, connection, message: heard.append(message))
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.send('{"type":"cf_agent_state"}')
    await chat.settled()
    assert heard == ['{"type":"cf_agent_state"}']
    assert chat.of("state", "state_error") == []
