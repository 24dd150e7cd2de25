"""What one person's window sends along is part of that person's turns and of what continues those."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from everthink import Think, client_tool, tool
from everthink.hooks import TurnContext
from everthink.testing import ScriptedModel, calls, says

from ..support.server import Served
from ..support.turns import all_over
from .conftest import Serve
from .strangers import by_token, opened, people, said

pytestmark = pytest.mark.anyio

TOOL = {"name": "eves_tool", "description": "Hers.", "parameters": {"type": "object"}}


class Room(Think):
    """Remembers what its turns were given."""

    turns: list[tuple[Any, Any, Any]]

    @tool(needs_approval=True)
    async def refund(self) -> str:
        """Pay."""
        return "paid"

    def get_tools(self) -> Any:
        return {
            "where": client_tool("where", description="Where is the person?", parameters={"type": "object"})
        }

    def before_turn(self, turn: TurnContext) -> None:
        """Look."""
        self.turns.append((turn.trigger, turn.identity, turn.body))


def room(model: ScriptedModel) -> type[Room]:
    return type("Room", (Room,), {"model": model, "turns": []})


async def test_a_continuation_has_nothing_of_a_window_that_spoke_in_between(serve: Serve) -> None:
    # Given a question of ada's that asks her browser, and her answer while eve is being answered
    go = asyncio.Event()
    model = ScriptedModel(calls("where", id="c1"), says("To ").waits(go).says("eve."), says("To ada."))
    cls = room(model)
    server = await serve(cls, authenticate=by_token)
    ada, eve = await people(server, cls, "ada", "eve")
    await ada.until_done(await ada.request([said("u1", "Where am I?")], mode="ADA"))
    asked = await eve.request([*ada.messages, said("u2", "Me too")], mode="EVE", clientTools=[TOOL])
    await eve.until_text("To ")
    await ada.answer("c1", "Here", autoContinue=True)
    await ada.settled()
    go.set()
    await eve.until_done(asked)
    await all_over(server.app, cls, "room")
    # Then what continues ada's question has neither eve's fields nor her tools
    for (trigger, identity, body), request in zip(cls.turns, model.requests, strict=True):
        offers = {tool.name for tool in request.tools}
        if identity == "ada":
            assert body != {"mode": "EVE"}, trigger
            assert "eves_tool" not in offers, trigger
        else:
            assert (body, "eves_tool" in offers) == ({"mode": "EVE"}, True)


async def test_fields_of_who_asked_are_not_said_in_the_name_of_who_approved(serve: Serve) -> None:
    cls = room(
        ScriptedModel(calls("refund", id="c1"), says("Paid."), calls("refund", id="c2"), says("Paid."))
    )
    server = await serve(cls, authenticate=by_token)
    ada, eve = await people(server, cls, "ada", "eve")
    await eve.until_done(await eve.request([said("u1", "Refund")], admin=True))
    await ada.approve("c1")
    await eve.until_text("Paid.")
    await all_over(server.app, cls, "room")
    assert cls.turns == [("ws-chat", "eve", {"admin": True}), ("auto-continuation", "ada", None)]
    # Who answers their own question keeps what they sent
    cls.turns.clear()
    await ada.until_done(await ada.request([*ada.messages, said("u2", "Again")], tone="dry"))
    await ada.approve("c2")
    await ada.until(lambda: len(cls.turns) == 2)
    await all_over(server.app, cls, "room")
    assert cls.turns == [("ws-chat", "ada", {"tone": "dry"}), ("auto-continuation", "ada", {"tone": "dry"})]


async def test_a_turn_that_waited_through_a_restart_brings_its_own_fields(tmp_path: Path) -> None:
    hangs = asyncio.Event()
    cls = room(ScriptedModel(says("One ").waits(hangs), calls("where", id="c1"), says("Done.")))

    async def start(server: Served) -> Any:
        return (await people(server, cls, "ada"))[0]

    async with opened(tmp_path, cls, grace=0.0, authenticate=by_token) as server:
        ada = await start(server)
        first = await ada.request([said("u1", "First")], mode="one")
        await ada.until_text("One ")
        await ada.request([*ada.messages, said("u2", "Second")], mode="two")
        await ada.settled()
        assert first
    cls.turns.clear()
    cls.model = ScriptedModel(says("more."), calls("where", id="c1"), says("Done."))
    async with opened(tmp_path, cls, authenticate=by_token) as server:
        ada = await start(server)
        await all_over(server.app, cls, "room")
        await ada.answer("c1", "Here", autoContinue=True)
        await ada.until_text("Done.")
        await all_over(server.app, cls, "room")
    assert cls.turns[-1] == ("auto-continuation", "ada", {"mode": "two"})
