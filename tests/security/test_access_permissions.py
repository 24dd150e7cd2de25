"""What a connection may do: each permission alone, none, and how they come together."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, tool
from everthink.runtime.rpc import exposed
from everthink.server import Granted
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.client import Client
from tests.support.agents import live

from ..support.browser import CONTINUE, TOOLS
from ..support.turns import record_events
from .conftest import Serve, ServeOn
from .doors import audits, socket

pytestmark = pytest.mark.anyio

ALL = ("ask", "answer", "cancel", "clear", "state", "call")


class Room(Think):
    """Has something for each permission."""

    initial_state: Any = {"count": 0}  # noqa: RUF012 - copied by the framework
    called: list[str]

    def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("readonly") == "1"

    @tool(needs_approval=True)
    async def pay(self) -> str:
        """Pay."""
        self.called.append("pay")
        return "paid"

    @exposed
    def write(self) -> str:
        self.called.append("write")
        return "written"

    @exposed(reads=True)
    def look(self) -> str:
        self.called.append("look")
        return "seen"


def room(*plays: Any) -> type[Room]:
    return type("Room", (Room,), {"model": ScriptedModel(*plays), "called": []})


def by_query(connection: Any) -> Granted:
    """Who it is and what they may do stands in the query."""
    query = connection.query_params
    may = query.get("may")
    return Granted(query.get("me", "ada"), permissions=None if may is None else may.split(",") if may else [])


async def guest(server: Any, cls: Any, *may: str, **query: str) -> Client:
    client = await server.connect(cls, id=f"guest-{'-'.join(may)}", query={"may": ",".join(may), **query})
    await client.until_frame("mcp_servers")
    return client


async def snapshot(client: Client) -> list[Any]:
    await client.settled()
    return [message.to_json() for message in client.messages]


@pytest.mark.parametrize("missing", ALL)
async def test_what_is_not_granted_is_refused_and_changes_nothing(serve: Serve, missing: str) -> None:
    # Given a call that waits for the browser, one that waits for a yes, and an answer that streams
    cls = room(calls("where", id="c1").calls("pay", id="c2"), says("So far").then_hangs())
    server = await serve(cls, clock=ManualClock(), authenticate=by_query)
    owner = await server.connect(cls, id="owner")
    await owner.until_done(await owner.say("Pay", **TOOLS))
    streams = await owner.say("Go on")
    await owner.until_text("So far")
    before = await snapshot(owner)
    events = record_events(server.app, "audit")

    # When somebody does all they can, but for one thing that they may not
    eve = await guest(server, cls, *(p for p in ALL if p != missing), me="eve")
    frames = len(owner.frames)
    match missing:
        case "ask":
            refused = await eve.until_done(await eve.say("Hello", message_id="evil"))
            assert (refused["error"], refused["done"]) == (True, True)
            assert refused["body"] == "You may read this conversation, but not write in it."
            again = await eve.until_done(await eve.request(eve.messages, trigger="regenerate-message"))
            assert again["error"] is True
        case "answer":
            await eve.answer("c1", "Rome", **CONTINUE)
            await eve.approve("c2")
        case "cancel":
            await eve.cancel(streams)
        case "clear":
            await eve.clear()
        case "state":
            await eve.set_state({"count": 9})
            assert (await eve.until_frame("state_error"))["error"] == "Not allowed"
        case _:
            [answer] = await eve.call("write")
            assert (answer["success"], answer["error"]) == (False, "Not allowed")
            assert (await eve.call("look"))[-1]["result"] == "seen"
    await eve.settled()

    # Then nothing has changed, nobody else noticed, and it is told
    assert await snapshot(owner) == before
    assert [f for f in owner.frames[frames:] if f["type"] != "cf_agent_stream_resuming"] == []
    agent = await live(server.app.agent(cls, "room"))
    assert agent.state == {"count": 0}
    assert "pay" not in cls.called
    assert "write" not in cls.called
    refusals = [audit for audit in audits(events) if not audit[1]]
    assert set(refusals) == {(missing, False, "no permission", "eve", "room")}


@pytest.mark.parametrize("given", ALL)
async def test_one_permission_is_enough_for_what_it_names(serve: Serve, given: str) -> None:
    clock = ManualClock()
    cls = room(calls("where", id="c1"), says("Fine."))
    server = await serve(cls, clock=clock, authenticate=by_query)
    owner = await server.connect(cls, id="owner")
    await owner.until_done(await owner.say("Where?", **TOOLS))
    bob = await guest(server, cls, given)
    match given:
        case "ask":
            await bob.until_done(await bob.say("Hello"))
            await owner.until(lambda: owner.text == "Fine.")
        case "answer":
            await bob.answer("c1", "Rome")
            await owner.until_frame("message_updated")
        case "cancel":
            await bob.cancel("nothing")
            await bob.settled()
        case "clear":
            await bob.clear()
            await owner.until_frame("chat_clear")
        case "state":
            await bob.set_state({"count": 3})
            await owner.until(lambda: owner.state == {"count": 3})
        case _:
            assert (await bob.call("write"))[-1]["result"] == "written"


async def test_a_tab_that_answered_too_soon_is_shown_how_things_are(serve: Serve) -> None:
    cls = room(calls("where", id="c1").calls("pay", id="c2"))
    clock = ManualClock()
    server = await serve(cls, clock=clock, authenticate=by_query)
    owner = await server.connect(cls, id="owner")
    await owner.until_done(await owner.say("Pay", **TOOLS))
    eve = await guest(server, cls)
    # Her own window believes her already; a flood of answers is corrected at most once in a second
    for _ in range(50):
        await eve.approve("c2")
    await eve.settled()
    assert len(eve.of("chat_messages")) == 2
    await clock.advance(1)
    await eve.until_frame("chat_messages", count=3)
    await clock.advance(10)
    await eve.settled()
    assert len(eve.of("chat_messages")) == 3
    assert eve.of("chat_messages")[-1]["messages"] == await snapshot(owner)


async def test_what_is_granted_authorized_and_not_readonly_is_what_one_may(serve: Serve) -> None:
    seen: dict[str, Any] = {}

    def authorize(identity: Any, action: str, agent: Any) -> Any:
        return ["ask", "answer", "state"] if action == "connect" and identity == "bob" else True

    cls = room()
    server = await serve(cls, authenticate=by_query, authorize=authorize)
    for me, may, query in (
        ("ada", ALL, {}),
        ("bob", ALL, {}),
        ("bob", ("ask", "clear"), {}),
        ("bob", ("clear",), {}),
        ("bob", ALL, {"readonly": "1"}),
        ("ada", ("read",), {}),
    ):
        await guest(server, cls, *may, me=me, **query)
        connection = (await live(server.app.agent(cls, "room"))).connections[-1]
        seen[f"{me} {','.join(may)} {''.join(query)}".strip()] = {p for p in ALL if connection.may(p)}
    every = ",".join(ALL)
    assert seen == {
        f"ada {every}": set(ALL),
        f"bob {every}": {"ask", "answer", "state"},
        "bob ask,clear": {"ask"},
        "bob clear": set(),
        f"bob {every} readonly": set(),
        "ada read": set(),
    }


async def test_no_permissions_at_all_is_read_only_in_words_and_deeds(serve: Serve) -> None:
    cls = room()
    server = await serve(cls, authenticate=by_query)
    eve = await guest(server, cls)
    await eve.set_state({"count": 9})
    assert (await eve.until_frame("state_error"))["error"] == "Connection is readonly"
    assert (await eve.call("write"))[-1]["error"] == "Connection is readonly"
    assert (await eve.call("look"))[-1]["result"] == "seen"
    assert eve.state == {"count": 9}  # in her own window only
    assert (await live(server.app.agent(cls, "room"))).state == {"count": 0}


async def test_a_permission_that_does_not_exist_lets_nobody_in(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    cls = room()
    server = await serve(cls, authenticate=by_query)
    assert await socket(server, "/agents/room/room?may=aks") == (500, "Internal Server Error")
    assert "'aks' is no permission. Nobody was let in. Did you mean 'ask'?" in caplog.text
    text = await serve(cls, store=":memory:", authenticate=lambda c: Granted("ada", permissions="ask"))  # type: ignore[arg-type]
    assert (await socket(text, "/agents/room/room"))[0] == 500
    assert "Write a list: ['ask']" in caplog.text


async def test_each_call_is_authorized(serve: Serve) -> None:
    may = {"calls": True}

    async def authorize(identity: Any, action: str, agent: Any) -> Any:
        return action != "call" or may["calls"]

    cls = room()
    server = await serve(cls, authenticate=by_query, authorize=authorize)
    events = record_events(server.app, "audit")
    ada = await server.connect(cls, query={"me": "ada"})
    assert (await ada.call("write"))[-1]["result"] == "written"
    for method in ("set_state", "nothing"):
        assert (await ada.call(method))[-1]["success"] is False
    may["calls"] = False
    for method in ("write", "look"):
        [answer] = await ada.call(method)
        assert (answer["success"], answer["error"]) == (False, "Not allowed")
    assert cls.called == ["write"]
    assert audits(events) == [
        ("call", True, None, "ada", "room"),
        ("call", False, "not callable", "ada", "room"),
        ("call", False, "not callable", "ada", "room"),
        ("call", False, "not authorized", "ada", "room"),
        ("call", False, "not authorized", "ada", "room"),
    ]
    assert [event.payload["target"] for event in events] == ["write", "set_state", "nothing", "write", "look"]


async def test_an_authorize_that_breaks_calls_nothing_and_tells_nobody_why(serve: Serve) -> None:
    def authorize(identity: Any, action: str, agent: Any) -> Any:
        if action == "call":
            raise RuntimeError("secret")
        return True

    cls = room()
    server = await serve(cls, authorize=authorize)
    chat = await server.connect(cls)
    [answer] = await chat.call("write")
    assert answer["success"] is False
    assert "secret" not in answer["error"]
    assert cls.called == []


async def test_who_clears_and_who_approves_is_told(serve: Serve) -> None:
    cls = room(calls("pay", id="c1"), says("Paid."))
    clock = ManualClock()
    server = await serve(cls, clock=clock, authenticate=by_query)
    events = record_events(server.app, "audit")
    ada = await server.connect(cls, id="a", query={"me": "ada"})
    await ada.until_done(await ada.say("Pay"))
    bob = await server.connect(cls, id="b", query={"me": "bob"})
    await bob.approve("c1", auto_continue=False)
    await bob.until_frame("message_updated")
    await ada.clear()
    await ada.settled()
    assert audits(events) == [
        ("approval", True, None, "bob", "room"),
        ("clear", True, None, "ada", "room"),
    ]
    told = events[0].payload
    assert (told["target"], told["connectionId"], told["address"]) == ("c1", "b", "127.0.0.1")


async def test_a_flood_of_refusals_is_told_in_number_and_hides_nobody_elses(serve: Serve) -> None:
    clock = ManualClock()
    cls = room()
    server = await serve(cls, clock=clock, authenticate=by_query)
    events = record_events(server.app, "audit")
    eve = await guest(server, cls)
    for _ in range(100):
        await eve.cancel("x" * 100)
    await eve.settled()
    assert len(events) == 20
    assert all(len(event.payload["target"]) <= 128 for event in events)
    other = (await live(server.app.agent(cls, "room"))).connections[0]
    other.address = "203.0.113.9"
    await eve.cancel("y")
    await eve.settled()
    assert len(events) == 21
    await clock.advance(1)
    assert events[-1].payload["reason"] == "80 more were refused and not told one by one"
    await eve.cancel("z")
    await eve.settled()
    assert events[-1].payload["target"] == "z"


async def test_permissions_are_asked_again_after_a_restart(serve_on: ServeOn) -> None:
    cls = room(calls("pay", id="c1"), says("Paid."))
    server = await serve_on(cls, authenticate=by_query)
    owner = await server.connect(cls, id="owner")
    await owner.until_done(await owner.say("Pay"))
    eve = await guest(server, cls, me="eve")
    await server.app.evict(cls, "room")
    assert (await eve.until_closed())[0] == 1012

    # She comes back with the same id, and replays what the owner would have said
    again = await guest(server, cls, me="eve")
    before = await snapshot(again)
    await again.approve("c1")
    await again.settled()
    assert await snapshot(again) == before
    assert cls.called == []
    owner = await server.connect(cls, id="owner")
    await owner.until_frame("mcp_servers")
    await owner.approve("c1")
    await owner.until(lambda: cls.called == ["pay"])
