"""The child of a call is made by the call: nobody puts words into its conversation before it begins."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import Think, agent_tool
from everthink.models.port import Request
from everthink.testing import ScriptedModel, calls, says

from .conftest import ServeOn

pytestmark = pytest.mark.anyio

CHILD = "/agents/assistant/room/sub/helper/agent-tool:c1"


def words(request: Request) -> str:
    return str(request.messages)


async def test_nobody_is_there_before_the_call_that_makes_a_child(serve_on: ServeOn) -> None:
    # Given an agent whose next call will be `c1`
    class Helper(Think):
        model: Any = ScriptedModel(says("Of the moon."), says("Well."))

    class Assistant(Think):
        model: Any = ScriptedModel(calls("ask", id="c1", query="Of what?"), says("Of the moon."))
        ask = agent_tool(Helper, description="Ask the helper.")

    server = await serve_on(Assistant)
    # When a client goes to the address that its child will have, by socket and by request
    stranger = await server.connect(CHILD)
    await stranger.until_closed()
    assert stranger.closed == (4404, "Sub-agent connection rejected (404)")
    assert (await server.http(f"{CHILD}/anything", method="POST")).status == 404
    assert (await server.http(f"{CHILD}/get-messages")).json == []
    # Then the child that the call makes hears what the call says, and nothing else
    window = await server.connect(Assistant, "room")
    await window.until_done(await window.say("Go"))
    [asked] = Helper.model.requests
    assert "cheese" not in words(asked)
    assert len(asked.messages) == 1
    # And from then on people may talk to it
    friend = await server.connect(CHILD)
    await friend.until_done(await friend.say("Really?"))
    assert friend.messages[-1].text == "Well."


async def test_other_children_are_made_by_their_address_as_before(serve_on: ServeOn) -> None:
    class Helper(Think):
        model: Any = ScriptedModel(says("Hello."))

    class Assistant(Think):
        model: Any = ScriptedModel()
        ask = agent_tool(Helper, description="Ask the helper.")

    server = await serve_on(Assistant)
    window = await server.connect("/agents/assistant/room/sub/helper/notes")
    await window.until_done(await window.say("Hi"))
    assert window.messages[-1].text == "Hello."
