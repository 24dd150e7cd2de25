"""What a request from a window carries besides its messages, and what code says while windows are open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink.testing import ScriptedModel, says

from ..support.agents import assistant
from ..support.browser import WHERE
from ..support.server import kinds
from .conftest import Serve

pytestmark = pytest.mark.anyio


@pytest.mark.case(319, 321, 322)
async def test_the_tools_of_a_window_reach_the_model_until_it_says_otherwise(serve: Serve) -> None:
    model = ScriptedModel(*[says("ok")] * 7)
    cls = assistant(model)
    server = await serve(cls)
    chat = await server.connect(cls)

    async def shown(**body: Any) -> list[str]:
        await chat.until_done(await chat.say("Go", **body))
        return [tool.name for tool in model.last_request.tools]

    assert await shown(clientTools=[WHERE]) == ["where"]
    assert await shown() == ["where"]
    assert await shown(clientTools=[{"name": "camera"}]) == ["camera"]
    assert await shown(clientTools=[]) == []
    assert await shown() == []
    # they are the window's own: the next one, or the same after a restart, declares them anew
    assert await shown(clientTools=[WHERE]) == ["where"]
    await server.app.evict(cls, "room")
    chat = await server.connect(cls)
    await chat.until_frame("mcp_servers")
    assert await shown() == []


@pytest.mark.case(332, 333)
async def test_what_else_a_request_says_is_seen_by_its_turn_and_forgotten_by_one_that_says_nothing(
    serve: Serve,
) -> None:
    bodies: list[Any] = []
    cls = assistant(
        ScriptedModel.forever(says("ok")), before_turn=lambda self, turn: bodies.append(turn.body)
    )
    server = await serve(cls)
    chat = await server.connect(cls)
    for body in ({"tone": "warm", "n": [1]}, {}):
        await chat.until_done(await chat.say("Go", **body))
    # and a turn that code starts takes the last one
    await chat.until_done(await chat.say("Go", tone="cold"))
    await server.app.agent(cls, "room").save_messages("From code")
    assert bodies == [{"tone": "warm", "n": [1]}, None, {"tone": "cold"}, {"tone": "cold"}]


@pytest.mark.case(337)
async def test_a_regeneration_of_nothing_is_an_ordinary_request(serve: Serve) -> None:
    cls = assistant(ScriptedModel())
    server = await serve(cls)
    chat = await server.connect(cls)
    request = await chat.request([], trigger="regenerate-message")
    done = await chat.until_done(request)
    assert done["error"]
    assert "No messages" in done["body"]


@pytest.mark.case(7, 8, 9, 118)
async def test_what_code_says_and_clears_reaches_every_window(serve: Serve) -> None:
    cls = assistant(ScriptedModel(says("Saved."), says("Chatted.")))
    server = await serve(cls)
    tabs = [await server.connect(cls, id=name) for name in ("a", "b")]
    await asyncio.gather(*(tab.until_frame("mcp_servers") for tab in tabs))
    agent = server.app.agent(cls, "room")
    saved = await agent.save_messages("One")
    chatted = await agent.chat("Two")
    for tab in tabs:
        await tab.until_done(chatted.request_id)
        assert kinds(tab)[3:] == ["chat_messages", "chunks", "chat_messages", "done"] * 2
        assert [m.text for m in tab.messages] == ["One", "Saved.", "Two", "Chatted."]
        assert "messageIds" not in tab.responses(saved.request_id)[-1]
    await agent.clear_messages()
    for tab in tabs:
        await tab.until_frame("chat_clear")
        assert tab.messages == []
