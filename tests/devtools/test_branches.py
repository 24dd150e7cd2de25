"""Versions of an answer: seen after a reload, and chosen to go on from."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from everthink import tool
from everthink.models.port import AssistantMessage, TextPart
from everthink.testing import ManualClock, ScriptedModel, calls, says

from ..support.agents import assistant
from ..support.server import Served
from .conftest import ROOM, Develop

pytestmark = pytest.mark.anyio


async def answered_again(develop: Develop, *more: Any) -> tuple[Served, Any, ScriptedModel]:
    """A question with three versions of its answer, a second apart."""
    clock = ManualClock()
    model = ScriptedModel(says("First."), says("Second."), says("Third."), *more)
    cls = assistant(model)
    server = await develop(cls, clock=clock)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("A word?", message_id="q"))
    for _ in range(2):
        await clock.advance(1)
        question = chat.messages[:1]
        await chat.until_done(await chat.request(question, trigger="regenerate-message"))
    return server, chat, model


def texts(versions: list[Any]) -> list[str]:
    return ["".join(p.get("text", "") for m in v["messages"] for p in m["parts"]) for v in versions]


async def choose(server: Served, id: str) -> Any:
    return await server.http(f"{ROOM}/leaf", method="POST", body=json.dumps({"message": id}).encode())


async def test_every_version_of_an_answer_is_known_to_whoever_comes_later(develop: Develop) -> None:
    server, chat, _ = await answered_again(develop)
    shown = (await server.http(ROOM)).json
    fork = shown["forks"]["q"]
    assert (len(fork["versions"]), fork["active"]) == (3, 2)
    assert fork["versions"][2] == chat.messages[-1].id == shown["leaf"]
    assert {m["id"]: m["parent"] for m in shown["messages"]} == {
        "q": None,
        **dict.fromkeys(fork["versions"], "q"),
    }
    answers = (await server.http(f"{ROOM}/answers/q")).json
    assert texts(answers["versions"]) == ["First.", "Second.", "Third."]
    assert answers["active"] == 2


async def test_a_version_goes_as_far_as_the_next_question(develop: Develop) -> None:
    # Given an answer in two messages, as after an approval, and a conversation that went on
    @tool(needs_approval=True)
    def send(to: str) -> str:
        """Send it."""
        return f"sent to {to}"

    model = ScriptedModel(calls("send", id="c1", to="Ada"), says("Done."), says("Bye."), says("Anew."))
    cls = assistant(model, get_tools=lambda self: [send])
    server = await develop(cls)
    chat = await server.connect(cls, resumes=True)
    await chat.until_done(await chat.say("Send it", message_id="q"))
    await chat.approve("c1")
    await chat.until(lambda: [m.text for m in chat.messages[2:]] == ["Done."])
    await chat.until(lambda: chat.of("use_chat_response")[-1]["done"])
    await chat.until_done(await chat.say("Thanks"))
    question = [message for message in chat.messages if message.id == "q"]
    await chat.until_done(await chat.request(question, trigger="regenerate-message"))

    # Then the first version is both messages, and nothing of what came after
    versions = (await server.http(f"{ROOM}/answers/q")).json["versions"]
    assert [len(version["messages"]) for version in versions] == [2, 1]
    assert texts(versions) == ["Done.", "Anew."]


async def test_the_conversation_goes_on_from_the_version_that_was_chosen(develop: Develop) -> None:
    server, chat, model = await answered_again(develop, says("After the first."))
    other = await server.connect("/agents/assistant/room")
    versions = (await server.http(ROOM)).json["forks"]["q"]["versions"]

    # When the first version is chosen
    answer = await choose(server, versions[0])
    assert (answer.status, answer.json) == (200, {"leaf": versions[0]})

    # Then every window shows it, and what is said next hangs below it
    for window in (chat, other):
        await window.until(lambda window=window: window.messages[-1].text == "First.")
    fork = (await server.http(ROOM)).json["forks"]["q"]
    assert fork == {"versions": versions, "active": 0}
    await chat.until_done(await chat.say("Go on"))
    said = [m for m in model.last_request.messages if isinstance(m, AssistantMessage)]
    assert [p.text for m in said for p in m.content if isinstance(p, TextPart)] == ["First."]
    assert [m.text for m in chat.messages] == ["A word?", "First.", "Go on", "After the first."]


async def test_going_back_to_a_version_brings_back_all_that_followed_it(develop: Develop) -> None:
    server, chat, _ = await answered_again(develop, says("More."), says("Fourth."))
    await chat.until_done(await chat.say("Go on", message_id="q2"))
    await chat.until_done(await chat.request(chat.messages[:1], trigger="regenerate-message"))
    assert [m.text for m in chat.messages] == ["A word?", "Fourth."]
    versions = (await server.http(ROOM)).json["forks"]["q"]["versions"]
    assert (await choose(server, versions[2])).status == 200
    await chat.until(lambda: [m.text for m in chat.messages] == ["A word?", "Third.", "Go on", "More."])


async def test_a_choice_outlives_the_process(develop: Develop) -> None:
    server, chat, _ = await answered_again(develop)
    versions = (await server.http(ROOM)).json["forks"]["q"]["versions"]
    await choose(server, versions[1])
    await chat.until(lambda: chat.messages[-1].text == "Second.")
    await server.stop()
    again = await develop(assistant(ScriptedModel()))
    stored = (await again.http("/agents/assistant/room/get-messages")).json
    assert [m["id"] for m in stored] == ["q", versions[1]]


async def test_nothing_is_chosen_while_a_turn_runs(develop: Develop) -> None:
    go = asyncio.Event()
    server, chat, _ = await answered_again(develop, says("Slowly ").waits(go).says("does it."))
    versions = (await server.http(ROOM)).json["forks"]["q"]["versions"]
    request = await chat.say("Go on")
    await chat.until_text("Slowly ")
    refused = await choose(server, versions[0])
    assert refused.status == 409
    assert "Nothing was changed" in refused.json["error"]
    go.set()
    await chat.until_done(request)
    assert [m.text for m in chat.messages] == ["A word?", "Third.", "Go on", "Slowly does it."]


async def test_a_choice_that_makes_no_sense_is_refused(develop: Develop) -> None:
    server, chat, _ = await answered_again(develop)
    assert (await choose(server, "nobody")).status == 404
    for body in (b"", b"[]", b'{"message": 1}', b"x" * 20_000):
        answer = await server.http(f"{ROOM}/leaf", method="POST", body=body)
        assert answer.status in (400, 404, 413)
    await chat.settled()
    assert chat.messages[-1].text == "Third."
