"""Tools that run in the browser, inside the loop."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import tool
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import only, types, watch

pytestmark = pytest.mark.anyio


@pytest.mark.case(647)
async def test_a_browser_tool_ends_the_turn_though_other_tools_of_the_step_ran(open_app: OpenApp) -> None:
    # Given a step that calls a server tool and a browser tool
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel(calls("cursor", id="c1").calls("look", id="c2"), says("Never said."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When it runs
    result = await handle.chat("Go", client_tools=[{"name": "cursor"}])

    # Then ours ran, the browser's waits, and the model was not asked again
    assert (result.status, model.asked) == ("completed", 1)
    states = [(part["toolName"], part["state"]) for part in result.message.tool_parts]
    assert states == [("cursor", "input-available"), ("look", "output-available")]
    assert types(shown)[-2:] == ["finish-step", "finish"]
    assert only(shown, "finish")[0].finish_reason == "tool-calls"


async def test_browser_tools_may_be_answered_within_the_turn(open_app: OpenApp) -> None:
    asked: list[Any] = []

    async def answer(name, input, call_id):
        asked.append((name, input, call_id))
        return {"line": 3}

    model = ScriptedModel(calls("cursor", id="c1"), says("Line 3."))
    app = await open_app(cls := assistant(model))
    result = await app.agent(cls, "room").chat(
        "Where?", client_tools=[{"name": "cursor"}], on_client_tool_call=answer
    )
    assert asked == [("cursor", {}, "c1")]
    assert (result.text, result.message.tool_parts[0]["output"]) == ("Line 3.", {"line": 3})
