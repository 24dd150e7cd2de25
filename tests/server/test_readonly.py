"""A client that may only read does nothing else, and a turn that may not change the state does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, tool
from everthink.door.chat_request import ChatRequest
from everthink.messages import user_message
from everthink.runtime.rpc import exposed
from everthink.testing import ManualClock, ScriptedModel, calls, says, waits
from tests.support.agents import live
from tests.support.turns import accept_request

from ..support.browser import CONTINUE, TOOLS, outcome, quiet
from ..support.turns import all_over
from .conftest import Serve

pytestmark = pytest.mark.anyio

READER: Any = {"id": "reader", "query": {"readonly": "1"}}
REFUSED = "Connection is readonly"


class Board(Think):
    """Keeps a number that its tool can set."""

    initial_state: Any = {"count": 0}  # noqa: RUF012 - copied by the framework

    def should_connection_be_readonly(self, connection: Any, request: Any) -> bool:
        return request.query_params.get("readonly") == "1"

    @tool
    async def count(self, to: int) -> str:
        """Set the number."""
        await self.set_state({"count": to})
        return "set"

    @exposed(reads=True)
    async def lies(self) -> None:
        """Is marked as reading and writes all the same."""
        await self.set_state({"count": 99})


def board(*plays: Any, **members: Any) -> type[Board]:
    return type("Board", (Board,), {"model": ScriptedModel(*plays), **members})


async def state_of(server: Any, cls: type[Think]) -> Any:
    return (await live(server.app.agent(cls, "room"))).state


async def ask_as_reader(server: Any, cls: type[Think], text: str) -> None:
    """A turn that may not change the state, as rows of earlier releases have them."""
    home = (await live(server.app.agent(cls, "room")))._home
    request = ChatRequest(
        home.new_id(), [*home.chat.session.path, user_message(text, id=home.new_id())], is_readonly=True
    )
    await accept_request(home, request)


async def test_a_reader_is_shown_everything_and_may_do_nothing(serve: Serve) -> None:
    """Earlier releases let a reader chat, as the original does; now reading is all it may do."""
    clock = ManualClock()
    cls = board(calls("where", id="c0"))
    server = await serve(cls, clock=clock)
    writer = await server.connect(cls, id="writer")
    asked = await writer.say("Where?", **TOOLS)
    await writer.until_done(asked)
    reader = await server.connect(cls, **READER)
    await reader.until(lambda: len(reader.messages) == 2)
    before = [message.to_json() for message in reader.messages]

    request = await reader.say("Count")
    refused = await reader.until_done(request)
    assert refused["error"] is True
    assert refused["body"] == "You may read this conversation, but not write in it."
    await reader.answer("c0", "Paris", **CONTINUE)
    await reader.clear()
    await reader.settled()
    await clock.advance(1)  # it is shown how things are at most once in a second
    await reader.until(lambda: [m.to_json() for m in reader.messages] == before)
    await writer.settled()
    assert [m.to_json() for m in writer.messages] == before


async def test_a_method_that_reads_cannot_change_the_state_for_a_reader(serve: Serve) -> None:
    cls = board()
    server = await serve(cls)
    reader = await server.connect(cls, **READER)
    assert (await reader.call("lies"))[-1]["error"] == REFUSED
    assert await state_of(server, cls) == {"count": 0}


async def test_a_turn_that_may_not_change_the_state_remembers_it_over_a_restart(serve: Serve) -> None:
    go = asyncio.Event()
    cls = board(waits(go).says("First."), says("First."), calls("count", id="c1", to=1), says("I may not."))
    server = await serve(cls)
    writer = await server.connect(cls, id="writer")
    await writer.say("Wait")
    await writer.until(lambda: writer.messages)
    await ask_as_reader(server, cls, "Count")
    await server.app.evict(cls, "room")

    again = await server.connect(cls, id="writer", resumes=True)
    await again.until(lambda: again.text == "First.I may not.")
    await all_over(server.app, cls, "room")
    assert outcome(again, "c1")["state"] == "output-error"
    assert await state_of(server, cls) == {"count": 0}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_continuation_is_as_free_as_the_client_that_answered(serve: Serve, restarts: bool) -> None:
    clock = ManualClock()
    cls = board(calls("where", id="c0"), calls("count", id="c1", to=1), says("Done."))
    server = await serve(cls, clock=clock)
    writer = await server.connect(cls, id="writer")
    await writer.until_done(await writer.say("Where?", **TOOLS))
    reader = await server.connect(cls, **READER)
    await reader.answer("c0", "Rome", **CONTINUE)
    await reader.settled()
    await writer.answer("c0", "Paris", **CONTINUE)
    await writer.until_frame("message_updated")
    if restarts:
        await server.app.evict(cls, "room")
        writer = await server.connect(cls, id="writer")
        await writer.until_frame("mcp_servers")
    await quiet(clock)
    await writer.until(lambda: writer.text == "Done.")
    assert outcome(writer, "c0")["output"] == "Paris"
    assert await state_of(server, cls) == {"count": 1}


async def test_what_a_reading_turn_makes_another_agent_do_is_that_agents_own_doing(serve: Serve) -> None:
    class Other(Board):
        model = ScriptedModel()

        async def count_to(self, to: int) -> None:
            await self.set_state({"count": to})

    class Teller(Board):
        model = ScriptedModel(calls("pass_on", id="c1", to=3), says("Told."))

        @tool
        async def pass_on(self, to: int) -> str:
            """Tell the other one."""
            await server.app.agent(Other, "room").count_to(to)
            return "told"

    server = await serve(Teller, Other)
    watcher = await server.connect(Teller, **READER)
    await ask_as_reader(server, Teller, "Count")
    await watcher.until(lambda: watcher.text == "Told.")
    assert outcome(watcher, "c1")["output"] == "told"
    assert await state_of(server, Teller) == {"count": 0}
    assert await state_of(server, Other) == {"count": 3}
