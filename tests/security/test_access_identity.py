"""Who asked is kept with the turn, and reaches whoever decides about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from everthink import Think, ToolContext, client_tool, tool
from everthink.runtime.rpc import exposed
from everthink.server import Granted
from everthink.testing import ManualClock, ScriptedModel, calls, fails, says
from tests.support.agents import live

from ..support.browser import CONTINUE, quiet
from ..support.server import open_app, served
from ..support.turns import all_over, record_events
from .conftest import Serve, ServeOn

pytestmark = pytest.mark.anyio

ADA, BOB = {"id": "ada", "team": 1}, {"id": "bob", "team": 2}


def by_query(connection: Any) -> Any:
    return {"ada": ADA, "bob": BOB}.get(connection.query_params.get("me"))


class Desk(Think):
    """Writes down whom it works for."""

    seen: list[Any]

    async def before_turn(self, turn: Any) -> None:
        self.seen.append(("before_turn", turn.identity))

    async def before_tool_call(self, call: Any) -> None:
        self.seen.append(("before_tool_call", call.identity))

    async def after_tool_call(self, outcome: Any) -> None:
        self.seen.append(("after_tool_call", outcome.identity))

    async def on_chat_response(self, result: Any) -> None:
        self.seen.append(("on_chat_response", result.identity))

    def on_chat_error(self, error: Any, ctx: Any) -> None:
        self.seen.append(("on_chat_error", ctx.identity))

    @tool
    async def look(self, ctx: ToolContext) -> str:
        """Look."""
        self.seen.append(("tool", ctx.identity))
        return "seen"

    @exposed
    async def ask(self, text: str) -> str:
        return (await self.save_messages(text)).text

    @exposed
    async def ask_later(self, text: str) -> str:
        return (await self.submit_messages(text)).submission_id


def desk(*plays: Any, **members: Any) -> type[Desk]:
    return type("Desk", (Desk,), {"model": ScriptedModel(*plays), "seen": [], **members})


def where(self: Any) -> list[Any]:
    """`get_tools`: a tool that runs in any window."""
    return [client_tool("where")]


async def test_hooks_tools_and_events_know_who_asked(serve: Serve) -> None:
    cls = desk(calls("look", id="c1"), says("Done."), fails("down"))
    server = await serve(cls, authenticate=by_query)
    events = record_events(server.app, "chat:turn:*")
    ada, bob = await server.connect(cls, query={"me": "ada"}), await server.connect(cls, query={"me": "bob"})
    await ada.until_done(await ada.say("Look"))
    await all_over(server.app, cls, "room")
    hooks = ("before_turn", "before_tool_call", "tool", "after_tool_call", "on_chat_response")
    assert cls.seen == [(hook, ADA) for hook in hooks]
    cls.seen.clear()
    await bob.until_done(await bob.say("Fail"))
    await all_over(server.app, cls, "room")
    assert [entry for entry in cls.seen if entry[0] == "on_chat_error"] == [("on_chat_error", BOB)]
    assert [event.payload["identity"] for event in events] == [ADA, ADA, BOB, BOB]


async def test_nobody_in_particular_is_none(serve: Serve) -> None:
    cls = desk(says("Hi."), says("Hi."))
    server = await serve(cls)
    events = record_events(server.app, "chat:turn:start")
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hello"))
    await server.app.agent(cls, "room").save_messages("Hello")
    assert {identity for _, identity in cls.seen} == {None}
    assert all("identity" not in event.payload for event in events)


async def test_what_goes_on_belongs_to_whoever_answered(serve: Serve) -> None:
    clock = ManualClock()
    cls = desk(calls("where", id="c1"), calls("look", id="c2"), says("Done."), get_tools=where)
    server = await serve(cls, clock=clock, authenticate=by_query)
    ada, bob = await server.connect(cls, query={"me": "ada"}), await server.connect(cls, query={"me": "bob"})
    await ada.until_done(await ada.say("Where?"))
    await bob.until(lambda: len(bob.messages) == 2)
    cls.seen.clear()
    await bob.answer("c1", "Rome", **CONTINUE)
    await bob.until_frame("message_updated")
    await quiet(clock)
    await bob.until_text("Done.")
    await all_over(server.app, cls, "room")
    assert {identity["id"] for _, identity in cls.seen} == {"bob"}


@pytest.mark.parametrize("stops", ["evicted", "restarted"])
async def test_a_turn_that_was_cut_off_still_knows_who_asked(tmp_path: Path, stops: str) -> None:
    cls = desk(says("Half").then_hangs(), says(" of it."))
    async with served(open_app(tmp_path, cls, authenticate=by_query)) as server:
        ada = await server.connect(cls, query={"me": "ada"})
        await ada.say("Go")
        await ada.until_text("Half")
        cls.seen.clear()
        if stops == "evicted":
            await server.app.evict(cls, "room")
            again = await server.connect(cls, query={"me": "bob"}, resumes=True)
            await again.until_text("Half of it.")
            await all_over(server.app, cls, "room")
    if stops == "restarted":
        async with served(open_app(tmp_path, cls, authenticate=by_query)) as server:
            again = await server.connect(cls, query={"me": "bob"}, resumes=True)
            await again.until_text("Half of it.")
            await all_over(server.app, cls, "room")
    assert cls.seen
    assert {identity["id"] for _, identity in cls.seen} == {"ada"}


async def test_an_answer_before_a_restart_is_still_whose_it_was(serve_on: ServeOn) -> None:
    clock = ManualClock()
    cls = desk(calls("where", id="c1"), says("Done."), get_tools=where)
    server = await serve_on(cls, clock=clock, authenticate=by_query)
    ada, bob = await server.connect(cls, query={"me": "ada"}), await server.connect(cls, query={"me": "bob"})
    await ada.until_done(await ada.say("Where?"))
    await bob.until(lambda: len(bob.messages) == 2)
    await bob.answer("c1", "Rome", **CONTINUE)
    await bob.until_frame("message_updated")
    await server.app.evict(cls, "room")
    cls.seen.clear()
    again = await server.connect(cls, query={"me": "ada"})
    await again.until_frame("mcp_servers")
    await quiet(clock)
    await again.until_text("Done.")
    await all_over(server.app, cls, "room")
    assert {identity["id"] for _, identity in cls.seen} == {"bob"}


async def test_what_a_method_asks_for_is_asked_by_whoever_called_it(serve: Serve) -> None:
    cls = desk(says("One."), says("Two."), says("Three."))
    server = await serve(cls, authenticate=by_query)
    ada = await server.connect(cls, query={"me": "ada"})
    assert (await ada.call("ask", "Hello"))[-1]["result"] == "One."
    await ada.call("ask_later", "And later")
    await ada.until_text("Two.")
    await all_over(server.app, cls, "room")
    assert {identity["id"] for _, identity in cls.seen} == {"ada"}
    # Code of the application asks for nobody
    cls.seen.clear()
    await server.app.agent(cls, "room").save_messages("Good night")
    assert {identity for _, identity in cls.seen} == {None}


@pytest.mark.parametrize(
    ("identity", "kept"),
    [
        ("ada", "ada"),
        (42, 42),
        ({"sub": "ada", "scopes": ["a"]}, {"sub": "ada", "scopes": ["a"]}),
        (
            type("User", (), {"id": 7, "password": "hunter2", "__str__": lambda self: "hunter2"})(),
            {"id": "7"},
        ),
    ],
)
async def test_any_identity_can_be_kept(serve: Serve, identity: Any, kept: Any) -> None:
    cls = desk(says("Hi."))
    server = await serve(cls, authenticate=lambda connection: Granted(identity))
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hello"))
    agent = await live(server.app.agent(cls, "room"))
    assert agent.connections[0].identity is identity
    assert cls.seen[0] == ("before_turn", kept)
