"""What children ask, heard at their parent's address, and answered though the line breaks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import Think, agent_tool, tool
from everthink.client.below import Below
from everthink.client.conversation import Conversation
from everthink.models.port import Request, ToolMessage
from everthink.testing import ScriptedModel, calls, says
from everthink.testing.scripted import Play
from tests.client.conftest import Serve
from tests.support.cable import Cable
from tests.support.hooks import until

pytestmark = pytest.mark.anyio


def once(name: str, words: str) -> ScriptedModel:
    """A model that calls a tool, and says something once it has the result."""

    def play(request: Request) -> Play:
        return says(words) if isinstance(request.messages[-1], ToolMessage) else calls(name, query="x")

    return ScriptedModel(play, repeat=True)


class Cleaner(Think):
    """It asks before it deletes."""

    model = once("delete", "All clean.")

    @tool(needs_approval=True)
    async def delete(self, query: str) -> str:
        """Delete."""
        return "deleted"


class Foreman(Think):
    """It has the cleaner work."""

    model = once("clean", "Overseen.")
    clean = agent_tool(Cleaner, description="Cleans.", display_name="The cleaner")


class Boss(Think):
    """It has the foreman work."""

    model = once("oversee", "It is done.")
    oversee = agent_tool(Foreman, description="Oversees.")


async def test_an_answer_is_brought_to_a_child_once_the_server_is_back(serve: Serve) -> None:
    server = await serve(Boss)
    cable = Cable(server.port)
    url = f"ws://127.0.0.1:{cable.port}/agents/boss/b"
    rang: list[Any] = []
    below, room = Below(url), Conversation(url)
    below.asked = lambda: rang.append(below.asking)
    below.watch(room)
    async with room:
        reply = room.say("Go")
        await until(lambda: below.asking)
        (asking,) = below.asking
        assert (asking.whom, asking.tool, asking.question) == ("Foreman → The cleaner", "delete", None)
        assert len(rang) == 1

        # When the server cannot be reached while the answer is given
        cable.pull()
        answering = asyncio.ensure_future(below.approve(asking, True))
        await asyncio.sleep(0)
        assert below.asking == []
        cable.plug()
        await answering

        # Then it has arrived
        assert (await reply).text == "It is done."
        assert [run.summary for run in room.runs] == ["Overseen."]
        assert below.asking == []
    await below.close()
    cable.close()
