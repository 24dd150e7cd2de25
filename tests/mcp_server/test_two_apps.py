"""An agent of one app asks an agent of another one over MCP: its words, its answer, and either side killed.

a tab --> Reader (an app) --library_ask_librarian--> Librarian (another app, its own process)
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everthink import Think
from everthink.models.port import ToolMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.client import Client
from everthink.testing.node import Node
from everthink.testing.scripted import Play

from ..conftest import OpenApp
from ..mcp.room import room
from ..support.server import served
from ..support.turns import Database

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LIBRARY = '''
import asyncio
import os

from everthink import App, Think, exposed, tool
from everthink.testing import ScriptedModel, calls, says

found = asyncio.Event()


def answer(request):
    last = request.messages[-1]
    if os.environ.get("AGAIN"):
        return says("shelf 4.")
    match last.content[0].text:
        case "Where is Emma?":
            return says("It is on ").waits(found).says("shelf 4.")
        case "Lend me Emma.":
            return says("I ask first. ").then(calls("lend", title="Emma"))
        case "Burn Emma.":
            return says("No ").then_fails("The provider is away.", kind="fatal")
        case other:
            return says(f"You said: {other}")


class Librarian(Think):
    """Knows where the books are."""

    model = ScriptedModel.forever(answer)

    @tool(needs_approval=True)
    def lend(self, title: str) -> str:
        """Lend a book."""
        return f"{title} is yours."

    @exposed
    def find(self) -> None:
        found.set()


app = App(Librarian, store="sqlite:///everthink.db", mcp=True)
'''

ASK = "library_ask_librarian"


@pytest.fixture
def shelves(tmp_path: Path) -> Path:
    """Where the library keeps what it was asked."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "library.py").write_text(LIBRARY)
    return folder


@pytest.fixture
async def library(shelves: Path, anyio_backend: str) -> AsyncIterator[Node]:
    """The other app, in a process of its own."""
    async with Node("library:app", folder=shelves) as node:
        yield node


def at(node: Node) -> dict[str, Any]:
    return {"library": f"http://{node.host}/mcp"}


def questions(folder: Path) -> list[str]:
    """What the librarian was asked, ever."""
    messages = Database(folder).messages()
    return [part["text"] for one in messages if one["role"] == "user" for part in one["parts"]]


async def test_the_answer_of_an_agent_of_another_app_is_the_result_of_a_tool(
    open_app: OpenApp, library: Node, shelves: Path
) -> None:
    # Given an agent whose app names the other one
    chat = await room(open_app, at(library))

    # When it asks the agent of the other app, twice
    first = await chat.output(ASK, message="My name is Ada.", conversation="desk")
    second = await chat.output(ASK, message="Hello?", conversation="desk")

    # Then it has its answers, in one conversation over there
    assert first == {"conversation": "desk", "status": "completed", "text": "You said: My name is Ada."}
    assert second["text"] == "You said: Hello?"
    assert questions(shelves) == ["My name is Ada.", "Hello?"]
    [told] = [tool for tool in chat.model.last_request.tools if tool.name == ASK]
    assert told.description.startswith("Knows where the books are.")


async def test_an_agent_adds_the_other_app_itself_and_has_it_after_a_restart(
    open_app: OpenApp, library: Node
) -> None:
    near = {"allow_addresses": [library.host]}
    chat = await room(open_app, **near)
    added = await chat.agent.add_mcp_server("library", at(library)["library"])
    assert (added.state, added.tools) == ("ready", (ASK,))

    await chat.app.close()
    chat = await room(open_app, **near)

    asked = await chat.output(ASK, message="Hello?", conversation="desk")
    assert asked["text"] == "You said: Hello?"


async def test_what_the_other_agent_cannot_do_alone_is_told_and_not_done(
    open_app: OpenApp, library: Node
) -> None:
    chat = await room(open_app, at(library))

    waits = await chat.output(ASK, message="Lend me Emma.", conversation="desk")
    fails = await chat.error(ASK, message="Burn Emma.", conversation="fire")

    assert (waits["status"], waits["waits_for"][0]["tool"]) == ("waiting", "lend")
    assert fails == "No \nThis did not work: The provider is away."


@pytest.fixture
async def tab(open_app: OpenApp, library: Node) -> AsyncIterator[Client]:
    """A tab in front of an agent that passes questions on to the librarian, and looks again if need be."""
    cls = passing_on()
    async with served(await open_app(cls, mcp_servers=at(library))) as server:
        yield await server.connect(cls)


def passing_on() -> type[Think]:
    """The class of such an agent."""
    return type(
        "Reader", (Think,), {"model": ScriptedModel.forever(pass_on), "wait_for_mcp_connections": True}
    )


def pass_on(request: Any) -> Play:
    last = request.messages[-1]
    if not isinstance(last, ToolMessage):
        if last.content[0].text == "And?":
            return calls(ASK, conversation="desk")
        return calls(ASK, message=last.content[0].text, conversation="desk")
    told = str(last.content)
    return calls(ASK, conversation="desk") if "may or may not" in told else says("So they say.")


def asked(chat: Client) -> list[dict[str, Any]]:
    """The calls of the last answer, as they are on the screen."""
    return chat.messages[-1].tool_parts


async def until_half_said(chat: Client) -> None:
    await chat.until(lambda: chat.messages and "It is on" in str(asked(chat)))


async def test_the_words_of_the_other_agent_are_seen_before_its_answer_is_whole(
    tab: Client, library: Node
) -> None:
    # Given a tab whose agent has asked another one, which is in the middle of its answer
    request = await tab.say("Where is Emma?")
    await until_half_said(tab)
    [half] = asked(tab)

    # When the other one goes on
    await (await library.connect("/agents/librarian/desk")).call("find")
    await tab.until_done(request)

    # Then its words were progress, and its answer is the result
    assert (half["preliminary"], half["output"]["message"]) == (True, "It is on")
    [whole] = asked(tab)
    assert (whole["state"], whole["output"]["text"]) == ("output-available", "It is on shelf 4.")
    assert not whole.get("preliminary")


async def test_nobody_knows_when_the_other_app_is_killed_in_mid_answer_and_the_answer_is_there_afterwards(
    tab: Client, library: Node, shelves: Path
) -> None:
    # Given an answer that has begun
    request = await tab.say("Where is Emma?")
    await until_half_said(tab)

    # When the other app dies
    await library.kill()
    await tab.until_done(request)

    # Then the model is told that nobody knows, and of its look into the conversation that nothing was run
    *lost, vain = asked(tab)  # a look may still meet the connection of before
    assert lost
    assert all(one["errorText"].endswith("It may or may not have taken effect.") for one in lost)
    assert vain["errorText"].endswith("Nothing was run.")
    # And once the app is there again, the answer to what was asked once can be had
    await library.start(AGAIN="1")
    await tab.until_done(await tab.say("And?"))
    [found] = asked(tab)
    assert found["output"]["text"] == "It is on shelf 4."
    assert questions(shelves) == ["Where is Emma?"]


async def test_a_question_to_an_app_that_was_killed_and_started_again_is_asked_once(
    open_app: OpenApp, library: Node, shelves: Path
) -> None:
    chat = await room(open_app, at(library))
    await chat.output(ASK, message="One.", conversation="desk")

    # While it is away nothing is run
    await library.kill()
    told = await chat.error(ASK, message="Two.", conversation="desk")
    assert told.endswith("Nothing was run.")

    # Once it is back, the connection of before is good for nothing, and the question is asked all the same
    await library.start()
    assert (await chat.output(ASK, message="Three.", conversation="desk"))["text"] == "You said: Three."
    await library.restart()
    assert (await chat.output(ASK, message="Four.", conversation="desk"))["text"] == "You said: Four."
    assert questions(shelves) == ["One.", "Three.", "Four."]


READER = """
from everthink import App
from tests.mcp_server.test_two_apps import passing_on

Reader = passing_on()
app = App(Reader, store="sqlite:///everthink.db", mcp_servers={servers!r}, grace=0)
"""


async def test_an_app_that_is_killed_while_it_asks_finds_the_answer_after_its_restart(
    library: Node, shelves: Path, tmp_path: Path
) -> None:
    # Given two processes, one of which waits for the answer of the other
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "reader.py").write_text(READER.format(servers=at(library)))
    async with Node("reader:app", folder=folder, env={"PYTHONPATH": os.pathsep.join(sys.path)}) as reader:
        tab = await reader.connect("/agents/reader/room")
        await tab.say("Where is Emma?")
        await until_half_said(tab)

        # When the one that waits dies, the other goes on, and the first is started again
        await reader.kill()
        await (await library.connect("/agents/librarian/desk")).call("find")
        await reader.start()
        tab = await reader.connect("/agents/reader/room", resumes=True)
        await tab.until_text("So they say.")

        # Then it was told that nobody knows, and has looked
        lost, found = asked(tab)
        assert "may or may not" in lost["errorText"]
        assert found["output"]["text"] == "It is on shelf 4."
    assert questions(shelves) == ["Where is Emma?"]
