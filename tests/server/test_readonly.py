"""A client that may only read chats like everybody, and what is done for it changes no state either."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, tool
from everthink.testing import ManualClock, ScriptedModel, calls, says, waits

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


def board(*plays: Any, **members: Any) -> type[Board]:
    return type("Board", (Board,), {"model": ScriptedModel(*plays), **members})


async def state_of(server: Any, cls: type[Think]) -> Any:
    return (await server.app.agent(cls, "room").instance()).state


async def test_a_tool_in_a_turn_of_a_reader_cannot_change_the_state(serve: Serve) -> None:
    mine, yours = calls("count", id="c1", to=1), calls("count", id="c2", to=2)
    cls = board(mine, says("I may not."), yours, says("Done."))
    server = await serve(cls)
    reader, writer = await server.connect(cls, **READER), await server.connect(cls, id="writer")
    await writer.until_frame("mcp_servers")

    # The reader is answered; the model reads why its tool could not
    await reader.until_done(await reader.say("Count"))
    assert outcome(reader, "c1")["errorText"] == REFUSED
    assert reader.text == "I may not."
    assert await state_of(server, cls) == {"count": 0}

    # Whoever may write is not held up by who watches
    await writer.until_done(await writer.say("Count"))
    assert outcome(writer, "c2")["output"] == "set"
    assert await state_of(server, cls) == {"count": 2}


async def test_a_turn_that_waits_remembers_over_a_restart_that_its_client_may_only_read(serve: Serve) -> None:
    go = asyncio.Event()
    cls = board(waits(go).says("First."), says("First."), calls("count", id="c1", to=1), says("I may not."))
    server = await serve(cls)
    reader = await server.connect(cls, **READER)
    writer = await server.connect(cls, id="writer")
    await writer.say("Wait")
    await reader.until(lambda: reader.messages)
    await reader.say("Count")
    await writer.until(lambda: len(writer.messages) >= 2)
    await server.app.evict(cls, "room")

    again = await server.connect(cls, id="writer", resumes=True)
    await again.until(lambda: again.text == "First.I may not.")
    await all_over(server.app, cls, "room")
    assert outcome(again, "c1")["errorText"] == REFUSED
    assert await state_of(server, cls) == {"count": 0}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_continuation_is_as_free_as_the_client_that_answered(serve: Serve, restarts: bool) -> None:
    clock = ManualClock()
    cls = board(calls("where", id="c0"), calls("count", id="c1", to=1), says("I may not."))
    server = await serve(cls, clock=clock)
    writer = await server.connect(cls, id="writer")
    await writer.until_done(await writer.say("Where?", **TOOLS))
    reader = await server.connect(cls, **READER)
    await reader.answer("c0", "Paris", **CONTINUE)
    await reader.until_frame("message_updated")
    if restarts:
        await server.app.evict(cls, "room")
        writer = await server.connect(cls, id="writer")
        await writer.until_frame("mcp_servers")
    await quiet(clock)
    await writer.until(lambda: writer.text == "I may not.")
    assert outcome(writer, "c1")["errorText"] == REFUSED
    assert await state_of(server, cls) == {"count": 0}


async def test_what_a_reader_makes_another_agent_do_is_that_agents_own_doing(serve: Serve) -> None:
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
    reader = await server.connect(Teller, **READER)
    await reader.until_done(await reader.say("Count"))
    assert outcome(reader, "c1")["output"] == "told"
    assert await state_of(server, Teller) == {"count": 0}
    assert await state_of(server, Other) == {"count": 3}
