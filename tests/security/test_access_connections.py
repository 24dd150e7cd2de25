"""A connection's id belongs to a person, and a connection that was let in for a while ends by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from everthink.server import Granted
from everthink.testing import ManualClock, ScriptedModel, calls, says
from everthink.testing.client import Client
from tests.support.agents import live

from ..support.agents import assistant
from ..support.browser import CONTINUE, TOOLS, quiet
from ..support.turns import record_events
from .conftest import Serve
from .doors import ROOM, audits, socket

pytestmark = pytest.mark.anyio


def by_query(connection: Any) -> Any:
    """`authenticate`: who it is stands in the query."""
    return {"id": connection.query_params["me"], "seen": connection.query_params.get("seen")}


async def tab(server: Any, cls: Any, me: str, id: str = "tab", **options: Any) -> Client:
    query = {"me": me, **options.pop("query", {})}
    client = await server.connect(cls, id=id, query=query, **options)
    await client.until_frame("mcp_servers")
    return client


async def ids(server: Any, cls: Any) -> list[str]:
    return [c.id for c in (await live(server.app.agent(cls, "room"))).connections]


# --- whose id it is


async def test_another_persons_id_is_not_given_again(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls, authenticate=by_query)
    await tab(server, cls, "ada")
    await tab(server, cls, "eve")
    first, second = await ids(server, cls)
    assert first == "tab"
    assert second not in ("", "tab")


async def test_whoever_comes_back_keeps_their_id_although_the_old_socket_is_still_there(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls, authenticate=by_query)
    await tab(server, cls, "ada", query={"seen": "today"})
    await tab(server, cls, "ada", query={"seen": "tomorrow"})  # the rest of an identity may change
    assert await ids(server, cls) == ["tab", "tab"]


@pytest.mark.parametrize("id", ["a\nb", "a\x1b[31mb", "\u202e"], ids=ascii)
async def test_an_id_that_is_not_printable_is_replaced(serve: Serve, id: str) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    await (await server.connect(cls, id=id)).settled()
    await (await server.connect(cls, id="y" * 128)).settled()
    one, two = await ids(server, cls)
    assert one != id
    assert len(one) == 36
    assert two == "y" * 128


@pytest.mark.parametrize("restarts", [False, True])
async def test_nobody_owns_a_continuation_by_calling_themselves_like_its_owner(
    serve: Serve, restarts: bool
) -> None:
    clock = ManualClock()
    cls = assistant(ScriptedModel(calls("where", id="c1"), says("In Paris.")))
    server = await serve(cls, clock=clock, authenticate=by_query)
    ada, eve = await tab(server, cls, "ada"), await tab(server, cls, "eve")
    await ada.until_done(await ada.say("Where?", **TOOLS))
    await ada.answer("c1", "Paris", **CONTINUE)
    await ada.until_frame("message_updated")
    if restarts:
        await server.app.evict(cls, "room")
        eve, ada = await tab(server, cls, "eve"), await tab(server, cls, "ada")
    # What goes on is Ada's: she is told to wait for it, and Eve that there is nothing for her
    await ada.probe("mine?")
    await eve.probe("mine?")
    await ada.until_frame("stream_pending")
    assert (await eve.until_frame("stream_resume_none"))["probeId"] == "mine?"
    await quiet(clock)
    await eve.until(lambda: eve.text == "In Paris.")
    assert eve.of("stream_resuming") == []


async def test_nobody_is_left_out_because_another_uses_their_id(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Noted.")), initial_state={"count": 0})
    server = await serve(cls, authenticate=by_query)
    ada, eve = await tab(server, cls, "ada"), await tab(server, cls, "eve")
    await eve.until_done(await eve.say("Send all the money", message_id="m1"))
    await ada.until(lambda: [m.id for m in ada.messages][:1] == ["m1"])
    await eve.set_state({"count": 1})
    await ada.until(lambda: ada.state == {"count": 1})
    agent = await live(server.app.agent(cls, "room"))
    agent.broadcast("only for Ada", without=[agent.connections[1].id])
    await ada.until(lambda: ada.other == ["only for Ada"])
    await eve.clear()
    await ada.until_frame("chat_clear")


async def test_what_is_meant_for_one_does_not_reach_another_of_the_same_id(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("One.").then_hangs(), says("Three.")), message_concurrency="latest")
    server = await serve(cls, authenticate=by_query)
    ada, eve = await tab(server, cls, "ada"), await tab(server, cls, "eve")
    first = await ada.say("One")
    await ada.until_text("One.")
    second = await ada.say("Two")
    third = await ada.say("Three")
    await ada.cancel(first)
    await ada.until_done(third)
    assert (await ada.until_done(second))["outcome"] == "skipped"
    await eve.until_done(third)
    await eve.settled()
    assert eve.responses(second) == []


# --- until when


def until(moment: Any) -> Any:
    return lambda connection: Granted("ada", until=moment)


@pytest.mark.parametrize("kind", ["seconds", "a datetime"])
async def test_a_connection_ends_when_its_time_is_over(serve: Serve, kind: str) -> None:
    clock = ManualClock()
    ends = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(minutes=10)
    cls = assistant(ScriptedModel(says("Half").then_hangs()), model_timeout=0)
    options: Any = {"authenticate": until(ends if kind == "a datetime" else ends.timestamp())}
    server = await serve(cls, clock=clock, **options)
    ada = await server.connect(cls)
    await ada.say("Go")
    await ada.until_text("Half")
    await clock.advance(599)
    await ada.settled()
    await clock.advance(1)
    assert await ada.until_closed() == (4401, "Session expired")
    # Nothing stops because somebody's time is over, and nobody comes in any more
    assert len((await live(server.app.agent(cls, "room")))._home.chat.host.turns) == 1
    assert await socket(server, ROOM) == (401, "Session expired")
    assert (await server.http(f"{ROOM}/get-messages")).status == 401


async def test_a_long_session_is_not_cut_short(serve: Serve) -> None:
    clock = ManualClock()
    cls = assistant(ScriptedModel())
    server = await serve(cls, clock=clock, authenticate=until(clock.now_ms() / 1000 + 30 * 86400))
    ada = await server.connect(cls)
    for _ in range(29):
        await clock.advance(86400)
    await ada.settled()
    await clock.advance(86400)
    assert (await ada.until_closed())[0] == 4401


async def test_what_arrives_after_the_end_is_not_heard(serve: Serve) -> None:
    heard: list[Any] = []
    clock = ManualClock()
    cls = assistant(
        ScriptedModel(says("No.")), on_message=lambda self, connection, message: heard.append(message)
    )
    server = await serve(cls, clock=clock, authenticate=lambda connection: "ada")
    events = record_events(server.app, "audit")
    ada = await server.connect(cls, id="a")
    await ada.settled()
    agent = await live(server.app.agent(cls, "room"))
    # A machine that slept: the time is over, and no timer has told so
    agent.connections[0].until = clock.now_ms() / 1000 - 1
    for message in ("hello", '{"type":"cf_agent_state","state":{"evil":true}}', "again"):
        await ada.send(message)
    assert await ada.until_closed() == (4401, "Session expired")
    assert heard == []
    assert agent.state is None
    assert audits(events) == [("connect", False, "expired", "ada", "room")]


async def test_whoever_was_closed_and_does_not_go_is_not_heard(serve: Serve) -> None:
    heard: list[Any] = []

    def on_message(self: Any, connection: Any, message: Any) -> None:
        heard.append(message)
        connection.close(4001, "out")

    cls = assistant(ScriptedModel(), on_message=on_message)
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.settled()
    connection = (await live(server.app.agent(cls, "room"))).connections[0]
    hall = (await live(server.app.agent(cls, "room")))._home.sockets
    for _ in range(3):
        await hall.receive(connection, "hello")
    assert heard == ["hello"]
    assert await chat.until_closed() == (4001, "out")


@pytest.mark.parametrize("moment", [datetime(2030, 1, 1), "tomorrow", True, float("nan")], ids=repr)
async def test_a_moment_that_is_none_lets_nobody_in(
    serve: Serve, moment: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(assistant(ScriptedModel()), authenticate=until(moment))
    assert (await socket(server, ROOM))[0] == 500
    assert "Granted(until=" in caplog.text
