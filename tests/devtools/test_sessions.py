"""Sessions and search, as the page has them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import tool
from everthink.testing import ScriptedModel, calls, says

from ..support.agents import assistant
from ..support.server import Served
from .conftest import ROOM, Develop
from .test_memory import begun, post, say, shortening

pytestmark = pytest.mark.anyio


async def sessions(server: Served) -> Any:
    await begun(server)
    return (await server.http(f"{ROOM}/sessions")).json


async def names(server: Served) -> dict[str, str]:
    return {one["name"]: one["id"] for one in (await sessions(server))["sessions"]}


async def find(server: Served, words: str, *, everywhere: bool = False) -> list[Any]:
    answer = await server.http(f"{ROOM}/search?q={words}{'&all=1' if everywhere else ''}")
    assert answer.status == 200
    return answer.json["hits"]


async def test_sessions_are_made_opened_renamed_and_deleted(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("In main."), says("In the other.")))
    server = await develop(cls)
    assert await sessions(server) == {
        "live": "",
        "sessions": [
            {
                "id": "",
                "name": "",
                "parent": None,
                "input_tokens": 0,
                "output_tokens": 0,
                "end_reason": None,
                "created_at": 0,
                "updated_at": 0,
            }
        ],
    }
    chat = await say(server, cls, "Hello")
    other = await server.connect(cls)

    # A new one is empty, and every window follows when it is opened
    made = (await post(server, "sessions", name="  The   other ")).json
    assert made["name"] == "The other"
    assert (await sessions(server))["live"] == ""
    assert (await post(server, "sessions/open", id=made["id"])).status == 200
    for window in (chat, other):
        await window.until(lambda window=window: window.messages == [])
    assert (await sessions(server))["live"] == made["id"]
    await chat.until_done(await chat.say("Hello again"))

    # The journal shows the live one
    shown = (await server.http(ROOM)).json
    assert [m["id"] for m in shown["messages"]] == [m.id for m in chat.messages]
    assert shown["leaf"] == chat.messages[-1].id
    assert (await server.http(f"{ROOM}/memory")).json["session"] == {"id": made["id"], "name": "The other"}

    assert (await post(server, "sessions/rename", id=made["id"], name="Another")).status == 200
    assert (await post(server, "sessions/rename", id="", name="First")).status == 200
    assert await names(server) == {"Another": made["id"], "First": ""}

    # The live one cannot be deleted, the others can
    refused = await post(server, "sessions/delete", id=made["id"])
    assert refused.status == 409
    assert "cannot be deleted" in refused.json["error"]
    await post(server, "sessions/open", id="")
    await chat.until(lambda: [m.text for m in chat.messages] == ["Hello", "In main."])
    assert (await post(server, "sessions/delete", id=made["id"])).status == 200
    assert await names(server) == {"First": ""}
    assert await find(server, "again", everywhere=True) == []


async def test_the_live_session_outlives_the_process(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("Here.")))
    server = await develop(cls)
    made = (await post(server, "sessions", name="Other")).json
    await post(server, "sessions/open", id=made["id"])
    await say(server, cls, "Where?")
    await server.stop()
    # Looking at the journal starts no agent, and still knows which one is live
    again = await develop(assistant(ScriptedModel()))
    assert len((await again.http(ROOM)).json["messages"]) == 2
    assert (await sessions(again))["live"] == made["id"]


async def test_a_fork_has_the_conversation_up_to_a_message(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("One."), says("Two.")))
    server = await develop(cls)
    chat = await say(server, cls, "First", "Second")
    fork = await post(server, "sessions/fork", id="", message=chat.messages[1].id)
    assert (fork.status, fork.json["name"], fork.json["parent"]) == (200, "Fork of the conversation", "")
    await post(server, "sessions/open", id=fork.json["id"])
    await chat.until(lambda: [m.text for m in chat.messages] == ["First", "One."])
    named = await post(server, "sessions/fork", id=fork.json["id"], message=chat.messages[0].id, name="Short")
    assert (named.json["name"], named.json["parent"]) == ("Short", fork.json["id"])


async def test_a_fork_may_begin_at_a_summary(develop: Develop) -> None:
    cls = shortening(ScriptedModel(*(says(f"Answer {n}.") for n in range(3))))
    server = await develop(cls)
    chat = await say(server, cls, "One", "Two", "Three")
    await post(server, "memory/compact")
    await chat.until(lambda: len(chat.messages) == 3)
    fork = await post(server, "sessions/fork", id="", message=chat.messages[0].id)
    await post(server, "sessions/open", id=fork.json["id"])
    await chat.until(lambda: [m.text for m in chat.messages] == ["4 of them."])


@pytest.mark.parametrize(
    ("rest", "fields", "status"),
    [
        ("sessions/open", {"id": "nobody"}, 404),
        ("sessions/rename", {"id": "nobody", "name": "x"}, 404),
        ("sessions/rename", {"id": "", "name": "  "}, 400),
        ("sessions/delete", {"id": "nobody"}, 404),
        ("sessions/delete", {"id": ""}, 409),
        ("sessions/fork", {"id": "nobody", "message": "m"}, 404),
        ("sessions/fork", {"id": "", "message": "nothing"}, 404),
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(
    develop: Develop, rest: str, fields: dict[str, str], status: int
) -> None:
    server = await develop(assistant(ScriptedModel()))
    before = await sessions(server)
    answer = await post(server, rest, **fields)
    assert answer.status == status
    assert answer.json["error"]
    assert await sessions(server) == before


async def test_no_session_is_opened_while_a_turn_runs(develop: Develop) -> None:
    go = asyncio.Event()
    cls = assistant(ScriptedModel(says("Slowly ").waits(go).says("does it.")))
    server = await develop(cls)
    made = (await post(server, "sessions", name="Other")).json
    chat = await server.connect(cls)
    request = await chat.say("Go on")
    await chat.until_text("Slowly ")
    answer = await post(server, "sessions/open", id=made["id"])
    assert answer.status == 409
    assert "The live session stays." in answer.json["error"]
    go.set()
    await chat.until_done(request)
    assert (await sessions(server))["live"] == ""


async def test_calls_of_another_session_are_still_told_with_their_input(develop: Develop) -> None:
    @tool
    def look(at: str) -> str:
        """Look at it."""
        return f"saw {at}"

    cls = assistant(ScriptedModel(calls("look", at="gulls"), says("Seen.")), get_tools=lambda self: [look])
    server = await develop(cls)
    await say(server, cls, "Look")
    made = (await post(server, "sessions", name="Other")).json
    await post(server, "sessions/open", id=made["id"])
    [call] = (await server.http(ROOM)).json["calls"]
    assert (call["input"], call["output"]) == ({"at": "gulls"}, "saw gulls")


# --- search


async def test_search_says_where_a_message_is(develop: Develop) -> None:
    cls = shortening(ScriptedModel(*(says(f"Answer {n}.") for n in range(4)), says("Elsewhere.")))
    server = await develop(cls)
    chat = await say(server, cls, "A lighthouse by the sea", "Two", "The lighthouse again")
    await post(server, "memory/compact")
    await chat.until(lambda: chat.messages[0].id.startswith("compaction_"))
    summary = chat.messages[0].id

    hits = await find(server, "lighthouse")
    assert {hit["where"]: hit["summary"] for hit in hits} == {"summarised": summary, "shown": None}
    assert all("**lighthouse**" in hit["snippet"] for hit in hits)
    assert {(hit["role"], hit["session"], hit["session_name"]) for hit in hits} == {("user", "", "")}

    # In another session they are found only when all are asked for
    made = (await post(server, "sessions", name="Other")).json
    await post(server, "sessions/open", id=made["id"])
    await chat.until(lambda: chat.messages == [])
    assert await find(server, "lighthouse") == []
    assert len(await find(server, "lighthouse", everywhere=True)) == 2
    await chat.until_done(await chat.say("No lighthouse here"))
    found = await find(server, "lighthouse", everywhere=True)
    assert {hit["session_name"] for hit in found} == {"", "Other"}


async def test_search_knows_messages_of_another_branch(develop: Develop) -> None:
    cls = assistant(ScriptedModel(says("A gull."), says("A tern.")))
    server = await develop(cls)
    chat = await say(server, cls, "A bird?")
    await chat.until_done(await chat.request(chat.messages[:1], trigger="regenerate-message"))
    [hit] = await find(server, "gull")
    assert (hit["where"], hit["text"]) == ("branch", "A gull.")
    [hit] = await find(server, "tern")
    assert hit["where"] == "shown"


@pytest.mark.parametrize("words", ["", "%20", "nothing", "%22*%20OR", "%00"])
async def test_search_for_nothing_finds_nothing(develop: Develop, words: str) -> None:
    cls = assistant(ScriptedModel(says("Yes.")))
    server = await develop(cls)
    await say(server, cls, "Hello")
    assert await find(server, words) == []
    assert await find(server, words, everywhere=True) == []
