"""Events as they happen, sent to the page."""

from __future__ import annotations

import pytest

from everthink.testing import ScriptedModel, says

from ..support.agents import assistant
from .conftest import EVENTS, ROOM, Develop

pytestmark = pytest.mark.anyio

TURN = ["chat:turn:start", "chat:step:start", "chat:step:finish", "chat:turn:finish"]


def of_turns(page: object) -> list[str]:
    return [event["type"] for event in page.frames if event["type"] in TURN]  # type: ignore[attr-defined]


async def test_events_arrive_as_they_happen_after_those_that_did(develop: Develop) -> None:
    # Given a turn that nobody watched
    cls = assistant(ScriptedModel(says("One."), says("Two.")))
    server = await develop(cls)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hello"))

    # When the page begins to watch it is told what happened, then what happens
    page = await server.connect(EVENTS)
    await page.until(lambda: "chat:turn:finish" in of_turns(page))
    before = len(page.frames)
    await chat.until_done(await chat.say("Again"))
    await page.until(lambda: of_turns(page).count("chat:turn:finish") == 2)

    # Then each came once, in order
    numbers = [int(event["id"].partition("-")[2]) for event in page.frames]
    assert numbers == sorted(set(numbers))
    live = page.frames[before:]
    finish = next(event for event in live if event["type"] == "chat:turn:finish")
    assert (finish["channel"], finish["payload"]["status"]) == ("agents:chat", "completed")

    # And a second page is told the same
    other = await server.connect(EVENTS)
    await other.until(lambda: len(other.frames) >= len(page.frames))
    assert other.frames[: len(page.frames)] == page.frames


async def test_only_the_events_of_that_agent_are_told(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("One."), says("Two.")))
    server = await develop(cls)
    page = await server.connect(EVENTS)
    elsewhere = await server.connect(cls, "elsewhere")
    await elsewhere.until_done(await elsewhere.say("Hello"))
    here = await server.connect(cls)
    await here.until_done(await here.say("Hello"))
    await page.until(lambda: "chat:turn:finish" in of_turns(page))
    late = await server.connect(EVENTS)
    await late.until(lambda: "chat:turn:finish" in of_turns(late))
    for one in (page, late):
        assert of_turns(one).count("chat:turn:start") == 1


async def test_what_people_said_does_not_travel_in_events(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("The cake is a lie.")))
    server = await develop(cls)
    page = await server.connect(EVENTS)
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Is there cake?"))
    await page.until(lambda: "chat:turn:finish" in of_turns(page))
    assert "cake" not in str(page.frames)


async def test_the_server_stops_while_a_page_watches(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("One.")))
    server = await develop(cls)
    page = await server.connect(EVENTS)
    await server.stop()
    assert (await page.until_closed())[0] == 1012


async def test_a_page_that_leaves_is_told_nothing_more(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("One.")))
    server = await develop(cls)
    page = await server.connect(EVENTS)
    await page.send("what is this?")
    await page.close()
    chat = await server.connect(cls)
    await chat.until_done(await chat.say("Hello"))
    assert [turn["status"] for turn in (await server.http(ROOM)).json["turns"]] == ["completed"]
