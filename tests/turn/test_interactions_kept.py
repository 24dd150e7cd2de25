"""An answer to a call of a message that is still being streamed survives what stops the stream."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import tool
from everthink.testing import ScriptedModel, calls
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.turns import all_over

pytestmark = pytest.mark.anyio


@tool(needs_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool(client=True)
def pick() -> str:
    """Pick a file."""
    raise AssertionError


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("result", {"state": "output-available", "output": "a.txt"}),
        ("error", {"state": "output-error", "errorText": "closed"}),
        ("yes", {"state": "approval-responded"}),
        ("no", {"state": "output-denied"}),
    ],
)
async def test_an_answer_during_the_stream_survives_a_stop_in_the_middle(
    open_app: OpenApp, answer: str, expected: dict[str, Any]
) -> None:
    # Given an answer that has asked for both, and goes on streaming
    model = ScriptedModel(
        calls("pick", id="c1").calls("delete", {"path": "x"}, id="c2").says("and ").then_hangs()
    )
    app = await open_app(cls := assistant(model, get_tools=lambda self: [delete, pick]))
    handle = app.agent(cls, "room")
    agent: Any = await live(handle)
    await handle.submit_messages("Go")
    await model.until_silent()

    # When a person answers, and then the agent is stopped where it is
    match answer:
        case "result":
            assert await agent.apply_tool_result("c1", "a.txt")
        case "error":
            assert await agent.apply_tool_result("c1", is_error=True, error_text="closed")
        case _:
            assert await agent.apply_tool_approval("c2", answer == "yes")
    await app.evict(cls, "room")
    await all_over(app, cls, "room")

    # Then it is in the conversation, where the other call still waits; the model is not asked meanwhile
    [_, reply] = await handle.get_messages()
    assert (reply.text, model.asked) == ("and ", 1)
    assert (await live(handle)).has_pending_interaction()
    part = reply.tool_parts[0 if answer in ("result", "error") else 1]
    assert {key: part.get(key) for key in expected} == expected
