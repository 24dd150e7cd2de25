"""The demo agent remembers: across restarts, beyond its small window, and in every session."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from everthink.devtools import demo
from everthink.models.demo import DemoModel
from everthink.testing.client import Client

from .conftest import Develop

pytestmark = pytest.mark.anyio


class Demo(demo.Demo):
    """In a hurry."""

    model = DemoModel(pace=0)


def asked_of(client: Client) -> list[str]:
    """The calls that a person is asked about."""
    parts = [part for message in client.messages for part in message.tool_parts]
    return [part["toolCallId"] for part in parts if part["state"] == "approval-requested"]


async def test_what_it_was_told_is_remembered_after_a_restart_and_a_summary(develop: Develop) -> None:
    server = await develop(Demo)
    chat = await server.connect(Demo)
    await chat.until_done(await chat.say("Hello"))
    await chat.until_done(await chat.say("Remember that my dog is called Rex"))
    assert "I wrote that down." in chat.messages[-1].text
    for _ in range(4):
        await chat.until_done(await chat.say("count to 200"))
    await chat.until(lambda: any(m.id.startswith("compaction_") for m in chat.messages))
    [summary] = [m for m in chat.messages if m.id.startswith("compaction_")]
    assert "Remember that my dog is called Rex" in summary.text
    await server.stop()

    again = await develop(Demo)
    chat = await again.connect(Demo)
    await chat.until_done(await chat.say("What do you remember?"))
    assert chat.messages[-1].text == "My prompt tells me: My dog is called Rex."


async def test_it_looks_up_what_a_summary_hides(develop: Develop) -> None:
    server = await develop(Demo)
    chat = await server.connect(Demo)
    await chat.until_done(await chat.say("my name is Ada"))
    for _ in range(4):
        await chat.until_done(await chat.say("count to 200"))
    await chat.until_done(await chat.say("What did we say about Ada?"))
    assert "“Nice to meet you, Ada." in chat.messages[-1].text


async def test_it_has_two_researchers_look_at_two_things_at_once(develop: Develop) -> None:
    server = await develop(Demo)
    chat = await server.connect(Demo)
    await chat.until_done(await chat.say("Ask the researcher about Whales and Ships"))
    assert "three books about Whales. The library has three books about Ships." in chat.messages[-1].text
    told = (await server.http("/everthink/inspect/demo/room")).json["runs"]
    assert [(run["title"], run["status"], run["is_waiting"]) for run in told] == [
        ("Researcher", "completed", False),
        ("Researcher", "completed", False),
    ]


async def test_a_researcher_asks_before_it_borrows(develop: Develop) -> None:
    server = await develop(Demo)
    chat = await server.connect(Demo)
    asked = await chat.say("Ask the researcher about lighthouses, and borrow a book")
    run = await chat.until_frame("agent-tool-event")
    child = await server.connect(f"/agents/demo/room/sub/researcher/{quote(run['event']['runId'])}")
    await child.until(lambda: asked_of(child))
    await child.approve(asked_of(child)[0])
    await chat.until_done(asked)
    assert "yours for four weeks" in chat.messages[-1].text


@pytest.mark.parametrize(
    "said",
    ["May I ask you another question about a book?", "Tell me a story about an agent", "How does it work?"],
    ids=["asking", "telling", "working"],
)
async def test_nobody_is_sent_to_the_researcher_by_chance(develop: Develop, said: str) -> None:
    server = await develop(Demo)
    chat = await server.connect(Demo)
    await chat.until_done(await chat.say(said))
    assert chat.messages[-1].tool_parts == []
