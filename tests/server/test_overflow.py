"""A prompt that is too long, as a chat window sees it: one answer, one done, no error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import tool
from everthink.testing import ScriptedModel, calls, overflows, says
from everthink.testing.scripted import Play

from ..support.overflow import Shortener, roomy, talk
from ..support.server import kinds
from .conftest import Serve

pytestmark = pytest.mark.anyio

OLD = talk("What is a bee?", "An insect, and a long story about it.")


def dones(client: Any, request: str) -> list[dict[str, Any]]:
    return [frame for frame in client.responses(request) if frame["done"]]


@pytest.mark.case(389)
@pytest.mark.parametrize(
    "refused",
    [overflows(), says("A wa").then_overflows()],
    ids=["before it opens", "after some text"],
)
async def test_both_tabs_get_the_answer_with_one_done_and_no_error(serve: Serve, refused: Play) -> None:
    # Given two tabs and a conversation that is too long
    cls = roomy(ScriptedModel(refused, says("A cousin.")), Shortener())
    server = await serve(cls)
    await server.app.agent(cls, "room").add_messages(OLD)
    asker, watcher = await server.connect(cls, id="a"), await server.connect(cls, id="b")
    await watcher.until_frame("mcp_servers")

    request = await asker.say("And a wasp?")
    await asyncio.gather(asker.until_done(request), watcher.until_done(request))
    await asker.settled()
    await watcher.settled()

    for client in (asker, watcher):
        (done,) = dones(client, request)
        assert done["outcome"] == "completed"
        assert "error" not in done
        assert "error" not in kinds(client)
        assert client.messages[-1].text == "A cousin."
        stored = client.of("chat_messages")[-1]["messages"]
        assert "A wa" not in str(stored[-1])
        assert len([m for m in stored if m["role"] == "assistant" and "A cousin." in str(m)]) == 1


async def test_trap_the_transcript_comes_once_more_after_an_answer_that_began_anew(serve: Serve) -> None:
    # The hook of the tab that asked puts both beginnings into one answer and shows that when the stream ends
    cls = roomy(ScriptedModel(says("A wa").then_overflows(), says("A cousin."), says("Next.")), Shortener())
    server = await serve(cls)
    await server.app.agent(cls, "room").add_messages(OLD)
    chat = await server.connect(cls)
    await chat.until_frame("mcp_servers")

    await chat.until_done(await chat.say("And a wasp?"))
    await chat.settled()
    ending = [kind for kind in kinds(chat) if kind in ("chat_messages", "done")]
    assert ending[-3:] == ["chat_messages", "done", "chat_messages"]

    # And a turn that did not begin anew ends as ever
    await chat.until_done(await chat.say("And a hornet?"))
    await chat.settled()
    ending = [kind for kind in kinds(chat) if kind in ("chat_messages", "done")]
    assert ending[-2:] == ["chat_messages", "done"]


@pytest.mark.case(389)
async def test_after_a_tool_the_stream_goes_on_with_the_numbers_it_had(serve: Serve) -> None:
    done: list[int] = []

    @tool
    def count(upto: int) -> int:
        """Count."""
        done.append(upto)
        return upto

    model = ScriptedModel(calls("count", upto=3), overflows(), says("Three."))
    cls = roomy(model, Shortener(), get_tools=lambda self: [count])
    server = await serve(cls)
    await server.app.agent(cls, "room").add_messages(OLD)
    chat = await server.connect(cls)
    await chat.until_frame("mcp_servers")

    request = await chat.say("Count!")
    await chat.until_done(request)

    assert done == [3]
    assert chat.seqs(request) == list(range(len(chat.seqs(request))))
    assert len(dones(chat, request)) == 1
    assert chat.messages[-1].text == "Three."


async def test_trap_a_tab_that_comes_after_the_end_is_told_that_it_failed(serve: Serve) -> None:
    # Given a conversation that could not be shortened
    cls = roomy(
        ScriptedModel(says("A wa").then_overflows()),
        lambda messages, context: None,
        on_chat_error=lambda self, error, context: "This conversation is too long.",
    )
    server = await serve(cls)
    chat = await server.connect(cls)
    await chat.until_frame("mcp_servers")
    request = await chat.say("And a wasp?")
    await chat.until_done(request)
    (error,) = [frame for frame in chat.responses(request) if frame.get("error")]
    assert error["body"] == "This conversation is too long."
    assert [done["outcome"] for done in dones(chat, request)] == ["error"]

    # When another tab opens later, in another process even
    await server.app.evict(cls, "room")
    late = await server.connect(cls, resumes=True)
    await late.until_done(request)
    (error,) = [frame for frame in late.responses(request) if frame.get("error")]
    assert error["body"] == "This conversation is too long."
