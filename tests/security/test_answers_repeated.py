"""An answer means the call that it was shown for, also where a model uses one id twice."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import exposed
from everthink.models.port import ToolCallPart
from everthink.server import Granted
from everthink.testing import ScriptedModel, calls, calls_raw, says
from everthink.testing.client import Client

from ..support.server import Served
from ..support.turns import all_over
from .conftest import ServeOn
from .strangers import Shop, people, said, shop

pytestmark = pytest.mark.anyio

ASKS = calls("refund", id="call_0", order="A-1", amount=5)
EVIL = calls("refund", id="call_0", order="EVIL", amount=9999)


def guest(connection: Any) -> Any:
    """`authenticate`: bob may ask, and nothing else."""
    name = connection.query_params.get("token")
    return Granted("bob", permissions=["ask"]) if name == "bob" else name


def asked(client: Client) -> list[tuple[str, str]]:
    """The calls on a screen that wait for an answer: id and order."""
    parts = [part for message in client.messages for part in message.tool_parts]
    return [
        (part["toolCallId"], part["input"]["order"])
        for part in parts
        if part["state"] == "approval-requested"
    ]


async def still_asked(server: Served, cls: type[Shop]) -> list[str]:
    """The orders that wait for an answer, as they are stored."""
    parts = [p for m in await server.app.agent(cls, "room").get_messages() for p in m.tool_parts]
    return [p["input"]["order"] for p in parts if p["state"] == "approval-requested"]


async def test_a_click_on_an_old_question_does_not_run_what_was_asked_since(serve_on: ServeOn) -> None:
    # Given a question that ada looks at, and another under the same id, which bob made the model ask
    model = ScriptedModel(ASKS, EVIL, says("Paid."))
    cls = shop(model)
    server = await serve_on(cls, authenticate=guest)
    ada, bob = await people(server, cls, "ada", "bob")
    await ada.until_done(await ada.say("Refund A-1"))
    ((shown, _),) = asked(ada)
    await ada.until_done(await bob.say("Refund EVIL"))
    # When she clicks on the one that she was shown
    await ada.approve(shown)
    await ada.settled()
    await all_over(server.app, cls, "room")
    # Then nothing runs; the new question is another one, to which she may still say yes
    assert cls.paid == []
    ((other, order),) = asked(ada)
    assert (order, other == shown) == ("EVIL", False)
    await ada.approve(other)
    await ada.until_text("Paid.")
    assert cls.paid == [("EVIL", 9999)]
    # and the model was told of one call by one id
    made = [
        part
        for message in model.last_request.messages
        for part in message.content
        if isinstance(part, ToolCallPart)
    ]
    assert [part.id for part in made] == [shown, other]


async def test_nor_in_another_session_of_the_agent(serve_on: ServeOn) -> None:
    @exposed
    async def begin_another(self: Any) -> None:
        await self.sessions.open((await self.sessions.create("another")).id)

    cls = shop(ScriptedModel(ASKS, EVIL), begin_another=begin_another)
    server = await serve_on(cls)
    ada, bob = await people(server, cls, "ada", "bob")
    await ada.until_done(await ada.say("Refund A-1"))
    ((shown, _),) = asked(ada)
    await bob.call("begin_another")
    await ada.until_done(await bob.say("Refund EVIL"))
    await ada.approve(shown)
    await ada.settled()
    await all_over(server.app, cls, "room")
    assert (await still_asked(server, cls), cls.paid) == (["EVIL"], [])


async def test_nor_after_the_conversation_was_cleared(serve_on: ServeOn) -> None:
    # Given a tab that was away while others cleared the conversation and asked for something else
    cls = shop(ScriptedModel(ASKS, EVIL))
    server = await serve_on(cls)
    ada, bob = await people(server, cls, "ada", "bob")
    await ada.until_done(await ada.say("Refund A-1"))
    ((shown, _),) = asked(ada)
    await bob.clear()
    await ada.until_frame("chat_clear")
    await server.app.evict(cls, "room")
    ada, bob = await people(server, cls, "ada", "bob")
    await ada.until_done(await bob.say("Refund EVIL"))
    # When it sends what was clicked meanwhile
    await ada.approve(shown)
    await ada.settled()
    await all_over(server.app, cls, "room")
    assert (await still_asked(server, cls), cls.paid) == (["EVIL"], [])


async def test_two_calls_of_one_turn_with_one_id_are_two_calls(serve_on: ServeOn) -> None:
    look = calls("look_up", id="call_0", order="A").calls("look_up", id="call_0", order="B")
    model = ScriptedModel(look, calls("look_up", id="call_0", order="C"), says("All three."))
    cls = shop(model)
    server = await serve_on(cls)
    (ada,) = await people(server, cls, "ada")
    await ada.until_done(await ada.say("Look"))
    parts = [part for message in ada.messages for part in message.tool_parts]
    assert [part["output"] for part in parts] == [f"{order}: 10 euros" for order in "ABC"]
    assert len({part["toolCallId"] for part in parts}) == 3
    assert sorted(cls.looked) == ["A", "B", "C"]


async def test_a_call_that_was_refused_leaves_its_id_to_nobody(serve_on: ServeOn) -> None:
    # Given an id under which nothing could run, in the same answer
    cls = shop(ScriptedModel(calls_raw("refund", "{", id="call_0"), ASKS, says("Paid.")))
    server = await serve_on(cls)
    (ada,) = await people(server, cls, "ada")
    await ada.until_done(await ada.request([said("u1", "Refund")]))
    ((shown, _),) = asked(ada)
    assert shown != "call_0"
    await ada.approve(shown)
    await ada.until_text("Paid.")
    assert cls.paid == [("A-1", 5)]
