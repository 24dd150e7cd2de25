"""Two tabs in front of an agent that asks them for something."""

from __future__ import annotations

from typing import Any

from everthink import Think
from everthink.testing import ManualClock, ScriptedModel, calls
from everthink.testing.client import Client

from .agents import assistant
from .server import Served

WHERE = {"name": "where", "description": "Where are you?", "parameters": {"type": "object"}}
TOOLS = {"clientTools": [WHERE]}
CONTINUE = {"autoContinue": True}


def outcome(client: Client, call: str) -> dict[str, Any]:
    """The part of a call, as it is on the screen."""
    parts = [part for message in client.messages for part in message.tool_parts]
    return next(part for part in parts if part["toolCallId"] == call)


async def quiet(clock: ManualClock) -> None:
    """Let the time pass after which a continuation begins."""
    await clock.until_waiting()
    await clock.advance(0.05)


class Asked:
    """Two tabs in front of an agent that has asked the browser for something."""

    def __init__(self, server: Served, cls: type[Think], clock: ManualClock, model: ScriptedModel) -> None:
        self.server, self.cls, self.clock, self.model = server, cls, clock, model
        self.one: Client
        self.two: Client

    @classmethod
    async def make(cls, serve: Any, *plays: Any, **members: Any) -> Asked:
        clock, model = ManualClock(), ScriptedModel(*plays)
        agent = assistant(model, **members)
        made = cls(await serve(agent, clock=clock), agent, clock, model)
        made.one = await made.server.connect(agent, id="one")
        made.two = await made.server.connect(agent, id="two")
        await made.two.until_frame("mcp_servers")
        request = await made.one.say("Where am I?", **TOOLS)
        assert (await made.one.until_done(request))["outcome"] == "completed"
        await made.two.until_done(request)
        return made

    async def quiet(self) -> None:
        await quiet(self.clock)


ONE_CALL = calls("where", id="c1")
TWO_CALLS = calls("where", id="c1").calls("where", id="c2")
