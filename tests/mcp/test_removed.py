"""A server that is removed asks nobody any more: what its tools wait for ends with words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from tests.support.browser import quiet
from tests.support.mcp_stack import Assistant, Serving, Stack

from everthink.testing import ManualClock, ScriptedModel, calls, says

pytestmark = pytest.mark.anyio

GONE = "The MCP server 'travel' was removed while its tool waited for a person: the call does not go on."
SEATS = {"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}


def travel() -> MCPServer[Any]:
    """A server whose tool asks a person how many seats to book."""
    server = MCPServer[Any]("travel", request_state_security=RequestStateSecurity(keys=[b"k" * 32]))
    form = ElicitRequestFormParams(message="How many seats?", requested_schema=SEATS)

    @server.tool()
    async def book(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        """Book a trip."""
        if not ctx.input_responses:
            return InputRequiredResult(input_requests={"seats": ElicitRequest(params=form)}, request_state="")
        return "Booked."

    return server


@pytest.fixture
async def clock(anyio_backend: str) -> ManualClock:
    return ManualClock()


@pytest.fixture
async def stack(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Stack]:
    async with Stack(f"sqlite:///{tmp_path}/app.db", clock) as stack:
        yield stack


@pytest.fixture
async def serving(anyio_backend: str) -> AsyncIterator[Serving]:
    async with Serving(travel()) as serving:
        yield serving


def parts_of(chat: Any) -> list[dict[str, Any]]:
    """The calls on the screen of a window."""
    return [part for message in chat.messages for part in message.tool_parts]


@pytest.mark.parametrize("restarts", [0, 1])
@pytest.mark.parametrize("approval", ["never", "always"], ids=["question", "approval"])
async def test_an_open_question_of_a_server_ends_when_it_is_removed(
    stack: Stack,
    serving: Serving,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    approval: str,
    restarts: int,
) -> None:
    # Given a tool of a server that has asked a person something
    model = ScriptedModel(calls("travel_book"), says("Then not."))
    monkeypatch.setattr(Assistant, "script", model)
    chat = await stack.connect()
    await stack.add(chat, "travel", serving.url, approval=approval)
    await chat.until_done(await chat.say("A trip, please"))
    assert [part["state"] for part in parts_of(chat)] == ["approval-requested"]
    if restarts:
        await stack.restart()
        chat = await stack.connect()
        await chat.until(lambda: parts_of(chat))

    # When the server is removed
    [answer] = await chat.call("remove", "travel")
    assert answer["result"] is True

    # Then the question is over, in every window, and the model hears why
    await chat.until(lambda: parts_of(chat)[0]["state"] == "output-error")
    assert parts_of(chat)[0]["errorText"] == GONE
    await quiet(clock)
    await chat.until_text("Then not.")
    assert GONE in str(model.last_request.messages[-1])


async def test_what_others_ask_stays_open(
    stack: Stack, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Assistant, "script", ScriptedModel(calls("travel_book")))
    agent = await stack.live()
    await agent.add_mcp_server("travel", serving.url)
    await agent.add_mcp_server("more travel", serving.url + "?v=2")
    await agent.save_messages("A trip, please")
    assert await agent.remove_mcp_server("more travel") is True
    (part,) = [part for message in await agent.get_messages() for part in message.tool_parts]
    assert part["state"] == "approval-requested"
