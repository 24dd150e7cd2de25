"""Calls that ask a person first."""

from __future__ import annotations

import asyncio
import json

import pytest

from everthink import ToolError, tool
from everthink.testing import calls, says

from ..support.browser import CONTINUE, Asked, outcome
from .conftest import Serve

pytestmark = pytest.mark.anyio


class Careful:
    """An agent with a tool that asks first."""

    def __init__(self, raises: bool = False) -> None:
        ran: list[str] = []

        @tool(needs_approval=True)
        async def wipe(disk: str) -> str:
            """Wipe a disk."""
            ran.append(disk)
            if raises:
                raise ToolError("disk on fire")  # for people to read
            return f"{disk} is empty"

        self.ran = ran
        self.tools = lambda agent: [wipe]


WIPE = calls("wipe", id="w1", disk="sda")


@pytest.mark.case(279, 281, 282)
async def test_an_approved_tool_runs_in_the_continuation_and_settles_the_earlier_message(
    serve: Serve,
) -> None:
    careful = Careful()
    asked = await Asked.make(serve, WIPE, says("Wiped."), get_tools=careful.tools)
    one, two = asked.one, asked.two
    assert outcome(one, "w1")["state"] == "approval-requested"
    await one.approve("w1")
    await one.until_frame("message_updated")
    part = outcome(one, "w1")
    assert (part["state"], part["approval"]["approved"]) == ("approval-responded", True)
    assert careful.ran == []
    before = len(two.frames)
    await asked.quiet()
    await two.until_text("Wiped.")
    request = two.of("use_chat_response")[-1]["id"]
    done = await two.until_done(request)
    assert careful.ran == ["sda"]
    assert done["continuation"]
    types = [json.loads(f["body"])["type"] for f in two.responses(request) if "seq" in f]
    assert types[:3] == ["start", "tool-output-available", "start-step"]
    await two.until(lambda: [m.role for m in two.messages] == ["user", "assistant", "assistant"])
    assert two.messages[1].parts[-1]["output"] == "sda is empty"
    # the update comes before the chunk that carries the output
    order = [
        f["type"] if f["type"].endswith("updated") else json.loads(f["body"])["type"]
        for f in two.frames[before:]
        if f["type"].endswith("updated") or "seq" in f
    ]
    assert order.index("cf_agent_message_updated") < order.index("tool-output-available")


@pytest.mark.case(280, 283)
async def test_a_denied_tool_never_runs_and_the_agent_goes_on(serve: Serve) -> None:
    careful = Careful()
    asked = await Asked.make(serve, WIPE, says("Then not."), get_tools=careful.tools)
    await asked.one.approve("w1", False)
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    await asked.two.until_text("Then not.")
    await asked.two.until(lambda: len(asked.two.of("chat_messages")) == 4)
    part = outcome(asked.two, "w1")
    assert (part["state"], part["approval"]["approved"]) == ("output-denied", False)
    assert careful.ran == []


@pytest.mark.case(284)
async def test_an_approved_tool_that_raises_is_an_error(serve: Serve) -> None:
    careful = Careful(raises=True)
    asked = await Asked.make(serve, WIPE, says("It burns."), get_tools=careful.tools)
    await asked.one.approve("w1")
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    await asked.two.until_text("It burns.")
    part = outcome(asked.two, "w1")
    assert (part["state"], part["errorText"]) == ("output-error", "disk on fire")


@pytest.mark.case(297)
async def test_a_call_that_awaits_approval_holds_the_batch(serve: Serve) -> None:
    careful = Careful()
    asked = await Asked.make(
        serve, WIPE.calls("where", id="c1"), says("All settled."), get_tools=careful.tools
    )
    await asked.one.answer("c1", 1, **CONTINUE)
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    await asked.one.settled()
    assert asked.model.asked == 1
    await asked.one.approve("w1")
    await asked.one.until_frame("message_updated", count=2)
    await asked.quiet()
    await asked.two.until_text("All settled.")
    assert careful.ran == ["sda"]


async def test_a_tab_that_joins_a_continuation_gets_it_without_what_the_conversation_holds(
    serve: Serve,
) -> None:
    # Given a continuation that has run the approved tool and speaks
    go, careful = asyncio.Event(), Careful()
    asked = await Asked.make(serve, WIPE, says("All ").waits(go).says("gone."), get_tools=careful.tools)
    await asked.one.approve("w1")
    await asked.one.until_frame("message_updated")
    await asked.quiet()
    await asked.two.until_text("All ")

    # When a tab opens, and asks although it was offered the stream when it came
    three = await asked.server.connect(asked.cls, id="three")
    request = (await three.until_frame("stream_resuming"))["id"]
    await three.probe("p")
    await three.until_frame("stream_resuming", count=2)
    await three.ack(request)
    await three.until(lambda: any(f.get("replayComplete") for f in three.frames))
    go.set()
    await three.until_done(request)

    # Then it is told the words from their beginning, and no outcome of a call that its window cannot find
    told = [json.loads(f["body"])["type"] for f in three.responses(request) if "seq" in f]
    assert [type for type in told if type != "message-metadata"][:3] == ["start", "start-step", "text-start"]
    assert not any(type.startswith("tool-output") for type in told)
    # Those who count the chunks miss none
    assert [f["seq"] for f in three.responses(request) if "seq" in f] == list(range(len(told)))
    assert three.of("stream_resume_none") == []
    assert three.text == "All gone."


@pytest.mark.parametrize("yes", [True, False], ids=["yes", "no"])
async def test_of_two_tabs_that_answer_at_once_the_slower_is_shown_what_counts(
    serve: Serve, yes: bool
) -> None:
    careful = Careful()
    asked = await Asked.make(serve, WIPE, says("So be it."), get_tools=careful.tools)
    one, two = asked.one, asked.two
    await one.approve("w1", yes)
    await two.until_frame("message_updated")
    before = len(two.frames)
    # When the other tab, which has not seen it yet, says the opposite
    await two.approve("w1", not yes)
    await two.settled()
    # Then it is shown the conversation as it is, and nothing else happens
    (told,) = [frame for frame in two.frames[before:] if frame["type"] == "cf_agent_chat_messages"]
    (part,) = [part for message in told["messages"] for part in message["parts"] if "toolCallId" in part]
    assert part["approval"]["approved"] is yes
    await asked.quiet()
    await two.until_text("So be it.")
    assert len(careful.ran) == yes
