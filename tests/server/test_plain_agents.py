"""Agents that do not chat: state, methods, timers, jobs, fibers, requests and sockets."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from everthink import Agent, AgentError, App, Think, exposed
from everthink.client import connect
from everthink.errors import CallFailed, InvalidSettings, NotJson, TurnFailed
from everthink.testing import ManualClock, ScriptedModel, says
from tests.server.conftest import Serve
from tests.support.agents import live

pytestmark = pytest.mark.anyio


class Counter(Agent):
    initial_state = {"n": 0}  # noqa: RUF012

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.met: list[str] = []
        self.left, self.ticked = asyncio.Event(), asyncio.Event()

    @exposed
    async def add(self, by: int = 1) -> int:
        """Count."""
        await self.set_state({"n": self.state["n"] + by})
        return self.state["n"]

    @exposed
    def odd(self, kind: str) -> Any:
        """Something that is no JSON, inside of what is."""
        odd = {"set": {1, 2}, "nan": float("nan"), "object": self, "key": {1: 2}, "bytes": b"x"}
        return {"a": [1, {"b": odd[kind]}]}

    @exposed
    async def add_later(self, seconds: float) -> str:
        """Count in a while."""
        return (await self.schedule(seconds, "tick", {"by": 10})).id

    @exposed
    async def add_long(self) -> int:
        """Count as a fiber does."""

        async def work(ctx: Any) -> int:
            await ctx.stash({"by": 100})
            return await self.add(100)

        return await self.run_fiber("long", work)

    @exposed
    async def add_soon(self) -> None:
        """Count when it is its turn."""
        await self.queue("tick", {"by": 1000})

    async def tick(self, payload: Any) -> None:
        await self.add(payload["by"])
        self.ticked.set()

    def on_connect(self, connection: Any, request: Any) -> None:
        self.met.append("came")

    def on_message(self, connection: Any, message: Any) -> None:
        self.heard.append(message)
        connection.send(f"heard {message}")

    def on_close(self, connection: Any, code: int, reason: str) -> None:
        self.met.append("left")
        self.left.set()

    def on_request(self, request: Any) -> Any:
        return {"method": request.method, "n": self.state["n"]}


class Talker(Think):
    model = ScriptedModel(says("Hello."))


async def test_it_is_greeted_with_its_state_and_nothing_of_a_conversation(serve: Serve) -> None:
    server = await serve(Counter)
    tab = await server.connect(Counter, "one")
    await tab.until_frame("cf_agent_mcp_servers")
    assert [frame["type"] for frame in tab.frames] == [
        "cf_agent_identity",
        "cf_agent_state",
        "cf_agent_mcp_servers",
    ]
    assert tab.state == {"n": 0}


async def test_its_methods_are_called_and_everybody_sees_its_state(serve: Serve) -> None:
    server = await serve(Counter)
    tab, other = await server.connect(Counter, "one"), await server.connect(Counter, "one")
    answers = await tab.call("add", 2)
    assert (answers[-1]["success"], answers[-1]["result"]) == (True, 2)
    await other.until(lambda: other.state == {"n": 2})
    await other.set_state({"n": 7})
    await tab.until(lambda: tab.state == {"n": 7})
    assert (await tab.call("on_start"))[-1]["success"] is False


async def test_timers_jobs_and_fibers_work_for_it(serve: Serve) -> None:
    clock = ManualClock()
    server = await serve(Counter, clock=clock)
    tab = await server.connect(Counter, "one")
    await tab.call("add_soon")
    await tab.until(lambda: tab.state == {"n": 1000})
    assert (await tab.call("add_long"))[-1]["result"] == 1100
    await tab.call("add_later", 60)
    await clock.advance(60)
    await tab.until(lambda: tab.state == {"n": 1110})


async def test_what_is_no_frame_for_it_is_its_own_affair(serve: Serve) -> None:
    server = await serve(Counter)
    tab = await server.connect(Counter, "one")
    await tab.send("hello")
    await tab.until(lambda: tab.other == ["heard hello"])
    # A frame about a conversation, which it does not have
    await tab.send({"type": "cf_agent_chat_clear"})
    await tab.until(lambda: len(tab.other) == 2)
    assert "cf_agent_chat_clear" in str(tab.other[1])
    agent = await live(server.app.agent(Counter, "one"))
    await tab.close()
    await agent.left.wait()
    assert agent.met == ["came", "left"]


async def test_requests_below_its_address_are_its_own(serve: Serve) -> None:
    server = await serve(Counter)
    path = f"{server.address(Counter, 'one')}/get-messages"
    # What is only read makes no agent
    assert (await server.http(path)).status == 404
    assert (await server.http(path, method="POST")).json == {"method": "POST", "n": 0}
    assert (await server.http(path)).json == {"method": "GET", "n": 0}


async def test_one_that_chats_is_served_beside_it(serve: Serve) -> None:
    server = await serve(Counter, Talker)
    tab = await server.connect(Talker, "one")
    await tab.until_done(await tab.say("Hi"))
    assert tab.text == "Hello."
    assert await server.app.agent(Counter, "one").add(3) == 3


async def test_it_comes_back_with_its_state_and_its_timers(tmp_path: Path) -> None:
    clock, store = ManualClock(), f"sqlite:///{tmp_path}/everthink.db"
    async with App(Counter, store=store, clock=clock) as app:
        await app.agent(Counter, "one").add(5)
        await app.agent(Counter, "one").add_later(60)
    async with App(Counter, store=store, clock=clock) as app:
        await clock.advance(60)
        agent = await live(app.agent(Counter, "one"))
        await agent.ticked.wait()
        assert agent.state == {"n": 15}
        # All of it is erased, as of any agent
        assert await app.erase(Counter, "one") > 0
        assert await app.agent(Counter, "one").add(1) == 1


async def test_it_has_no_conversation_to_ask_for() -> None:
    async with App(Counter, store=":memory:") as app:
        with pytest.raises(AttributeError, match=r"does not chat.*save_messages"):
            app.agent(Counter).save_messages("Hi")  # pyright: ignore


@pytest.mark.parametrize("cls", [Agent, Think])
def test_what_agents_are_made_of_is_no_agent_itself(cls: Any) -> None:
    with pytest.raises(AgentError, match="is what agents are made of"):
        App(cls)


async def test_the_client_for_programs_talks_to_it_and_is_told_that_it_does_not_chat(serve: Serve) -> None:
    server = await serve(Counter)
    async with connect(f"http://{server.host}", Counter, "one") as room:
        assert await room.call("add", 4) == 4
        assert room.state == {"n": 4}
        with pytest.raises(TurnFailed, match="does not chat"):
            await room.ask("Hi")


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("set", r"result['a'][1]['b'] is a set"),
        ("nan", r"result['a'][1]['b'] is nan"),
        ("object", r"result['a'][1]['b'] is a Counter"),
        ("key", r"a key of result['a'][1]['b'] is an int"),
        ("bytes", r"result['a'][1]['b'] is a bytes"),
    ],
)
async def test_what_a_method_returns_is_json_or_told_with_its_place(
    serve: Serve, kind: str, what: str
) -> None:
    server = await serve(Counter)
    async with connect(f"http://{server.host}", Counter) as client:
        with pytest.raises(CallFailed, match=re.escape(f"@exposed odd: {what}, which JSON does not have")):
            await client.call("odd", kind)
        assert await client.call("add") == 1


async def test_a_client_sends_json_or_is_told_where_it_is_none(serve: Serve) -> None:
    server = await serve(Counter)
    async with connect(f"http://{server.host}", Counter) as client:
        with pytest.raises(NotJson, match=r"set_state: state\['n'\] is \{1\}, a set"):
            await client.set_state({"n": {1}})
        with pytest.raises(NotJson, match=r"add: argument 0\['by'\] is nan"):
            await client.call("add", {"by": float("nan")})
        assert client.state == {"n": 0}


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        ((Counter, 5), {}, "connect: name is 5, an int. It takes text"),
        ((Counter(),), {}, "connect: agent is .* It takes a class of agents"),
        ((Counter,), {"patience": "5"}, "connect: patience is '5', a str. It takes a number of seconds"),
    ],
)
def test_a_client_is_told_at_once_what_an_address_is_made_of(given: Any, options: Any, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        connect("http://127.0.0.1:1", *given, **options)


@pytest.mark.parametrize("answer", [({"x": 1}, 404), 201])
async def test_a_status_that_is_returned_bare_is_told_in_the_log(
    serve: Serve, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    class Desk(Agent):
        def on_request(self, request: Any) -> Any:
            return answer

    server = await serve(Desk)
    for _ in range(2):
        assert (await server.http("/agents/desk/one/x", method="POST")).status == 200
    told = [one.getMessage() for one in caplog.records if "Desk.on_request returned" in one.getMessage()]
    assert len(told) == 1
    assert f"JSONResponse(…, status_code={answer if isinstance(answer, int) else 404})" in told[0]
