"""What a caller gets to hold: pending calls, streams of every turn, the end of a submission."""

from __future__ import annotations

import asyncio

import pytest

from everthink import chunks, client_tool, tool
from everthink.errors import TurnFailed
from everthink.testing import ScriptedModel, calls, fails, says
from tests.conftest import OpenApp
from tests.support.agents import assistant, live

pytestmark = pytest.mark.anyio


@tool(needs_approval=True)
def refund(order: str) -> str:
    """Pay an order back."""
    return f"paid {order}"


async def test_a_result_names_the_calls_that_wait_for_a_person(open_app: OpenApp) -> None:
    # Given a model that asks for an approval and for a tool in the browser
    model = ScriptedModel(calls("refund", order="A-1").calls("locate"), says("Done."))
    tools = [refund, client_tool("locate", "Where the person is.")]
    app = await open_app(cls := assistant(model, get_tools=lambda self: tools))
    agent = app.agent(cls, "room")

    # When the turn has ended to ask
    result = await agent.save_messages("Refund A-1")

    # Then both are named with what they are, and the agent says that it waits
    assert [(call.tool_name, call.input, call.kind) for call in result.pending] == [
        ("refund", {"order": "A-1"}, "approval"),
        ("locate", {}, "client"),
    ]
    assert (await live(agent)).has_pending_interaction()

    # And once they are answered nothing is pending any more
    await agent.apply_tool_approval(result.pending[0].tool_call_id, True)
    await agent.apply_tool_result(result.pending[1].tool_call_id, {"city": "Rome"})
    assert (await agent.continue_last_turn()).pending == []
    assert not (await live(agent)).has_pending_interaction()


async def test_a_regeneration_and_a_continuation_can_be_followed_chunk_by_chunk(open_app: OpenApp) -> None:
    model = ScriptedModel(says("One."), says("T", "wo."), says("Th", "ree."))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls, "room")
    await agent.save_messages("Hi")

    # When both are iterated instead of awaited
    again = [chunk async for chunk in agent.regenerate()]
    more = [text async for text in agent.continue_last_turn().text()]

    # Then their chunks came one by one, and the conversation has both
    assert [c.delta for c in again if isinstance(c, chunks.TextDelta)] == ["T", "wo."]
    assert more == ["Th", "ree."]
    assert [message.text for message in await agent.get_messages()] == ["Hi", "Two.", "Three."]


async def test_a_failed_stream_says_whether_anything_was_kept(open_app: OpenApp) -> None:
    model = ScriptedModel(fails("no"), says("Half ").then_fails("cut off"))
    app = await open_app(cls := assistant(model, on_chat_error=lambda self, error, ctx: "Sorry."))
    agent = app.agent(cls, "room")

    with pytest.raises(TurnFailed) as nothing:
        _ = [chunk async for chunk in agent.chat("Hi")]
    with pytest.raises(TurnFailed) as half:
        _ = [chunk async for chunk in agent.chat("Hi")]

    assert (nothing.value.kept, half.value.kept) == ("", "What was said before the failure is stored.")


async def test_observers_learn_the_error_itself_and_people_what_the_hook_says(open_app: OpenApp) -> None:
    model = ScriptedModel(fails("the key of account 42 has expired"))
    app = await open_app(cls := assistant(model, on_chat_error=lambda self, error, ctx: "Sorry."))
    failures: list[str] = []
    app.events.subscribe(lambda e: failures.append(e.payload["error"]), type="chat:request:failed")

    result = await app.agent(cls, "room").save_messages("Hi")

    assert result.error == "Sorry."
    assert [("42" in text, "Sorry" in text) for text in failures] == [(True, False)]


async def test_the_end_of_a_submission_can_be_awaited(open_app: OpenApp) -> None:
    # Given a submission that runs
    goes = asyncio.Event()
    model = ScriptedModel(says("Report.").waits(goes))
    app = await open_app(cls := assistant(model))
    agent = app.agent(cls, "room")
    accepted = await agent.submit_messages("Report, please")
    waiting = asyncio.create_task(agent.wait_for_submission(accepted.submission_id))
    await model.until_silent()
    assert not waiting.done()

    # When it ends
    goes.set()

    # Then whoever waits is told how, now and later
    assert (await waiting).status == "completed"
    assert (await agent.wait_for_submission(accepted.submission_id)).status == "completed"
    assert await agent.wait_for_submission("unknown") is None
