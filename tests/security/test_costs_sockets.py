"""The same over real sockets: a stranger with costly inputs, and what becomes of the conversation."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from everthink import Think
from everthink.limits import MIB, Limits
from everthink.models.port import Request
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play
from tests.support.agents import live

from .conftest import Serve, ServeOn
from .strangers import said
from .test_costs_schemas import clique, doubling, nested

pytestmark = pytest.mark.anyio


def play(request: Request) -> Play:
    return calls("show", x="no number") if len(request.messages) == 1 and request.tools else says("ok")


class Target(Think):
    model = ScriptedModel.forever(play)


@pytest.mark.parametrize("schema", [doubling(14), doubling(40), clique(30), nested(60), {"enum": [0] * 2000}])
async def test_a_hostile_schema_is_refused_and_nothing_is_stored(serve: Serve, schema: Any) -> None:
    server = await serve(Target)
    bad, good = await server.connect(Target), await server.connect(Target)
    tools = [{"name": "show", "parameters": schema}]
    request = await bad.request([said("u1", "Hi")], clientTools=tools)
    await bad.until(lambda: any(f.get("id") == request and f.get("error") for f in bad.frames))
    (refusal,) = [f for f in bad.frames if f.get("id") == request and f.get("error")]
    assert "cannot be used" in refusal["body"]
    assert len(refusal["body"]) < 500
    assert await server.app.agent(Target, "room").get_messages() == []
    await good.until_done(await good.say("Hello"))
    assert good.text == "ok"


async def test_a_model_that_is_led_into_a_maze_of_choices_is_told_so(serve: Serve) -> None:
    """Within the bounds of a declaration, beyond those of a check: the call fails and the turn goes on."""
    choice = {"type": "object", "additionalProperties": {"$ref": "#/$defs/n"}}
    maze = {"$defs": {"n": {"anyOf": [choice] * 60}}, "additionalProperties": {"$ref": "#/$defs/n"}}
    deep: dict[str, Any] = {"a": {"a": {"a": {"a": {"a": 7}}}}}
    shown: list[str] = []

    def lost(request: Request) -> Play:
        shown.append(str(request.messages))
        return calls("show", **deep) if len(request.messages) == 1 else says("ok")

    cls = type("Lost", (Think,), {"model": ScriptedModel.forever(lost)})
    server = await serve(cls)
    bad = await server.connect(cls)
    tools = [{"name": "show", "parameters": maze}]
    await bad.until_done(await bad.request([said("u1", "Hi")], clientTools=tools))
    (part,) = bad.messages[-1].tool_parts
    assert part["state"] == "output-error"
    assert "too complex to check" in shown[-1]


async def test_what_one_request_adds_is_bounded_in_all_on_both_engines(serve_on: ServeOn) -> None:
    server = await serve_on(Target)
    tab = await server.connect(Target)
    many = [said(f"u{n}", "word " * (MIB // 5 // 8)) for n in range(9)]
    request = await tab.request(many)
    await tab.until(lambda: any(f.get("id") == request and f.get("error") for f in tab.frames))
    assert f"more than {Limits().text_bytes}" in tab.frames[-1]["body"]
    assert await server.app.agent(Target, "room").get_messages() == []
    await tab.until_done(await tab.request(many[:7]))
    assert len(await server.app.agent(Target, "room").get_messages()) == 8


async def test_a_long_text_is_found_by_its_beginning_on_both_engines(serve_on: ServeOn) -> None:
    server = await serve_on(Target)
    tab = await server.connect(Target)
    text = "harbor " + "word " * 150_000 + "lighthouse"
    await tab.until_done(await tab.request([said("u1", text)]))
    agent: Any = await live(server.app.agent(Target, "room"))
    assert [hit.id for hit in await agent.session.search("harbor")] == ["u1"]
    assert await agent.session.search("lighthouse") == []
    assert (await agent.get_messages())[0].text == text


async def test_a_socket_that_has_sent_a_large_message_holds_nothing_of_it(serve: Serve) -> None:
    """Many that did, and then say nothing, would take all memory there is."""
    server = await serve(Target)
    tab = await server.connect(Target)
    large = said("u1", "Hi")
    large.parts.append({"type": "file", "mediaType": "image/png", "url": "data:,file-" + "A" * MIB})
    await tab.until_done(await tab.request([large]))
    frames = [one for one in gc.get_objects() if type(one) is Frame and one.opcode is Opcode.TEXT]
    assert [len(one.data) for one in frames if b"data:,file-" in one.data and b"use_chat" in one.data] == []
