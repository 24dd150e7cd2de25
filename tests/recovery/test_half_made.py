"""A call that the model was still writing when it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Literal

import pytest

from everthink import Think, tool
from everthink.errors import TurnInterrupted
from everthink.models import port as model
from tests.conftest import OpenApp
from tests.support.agents import live

pytestmark = pytest.mark.anyio


class Hesitant:
    """Writes half a call and falls silent; asked again it makes the call under another id, or not at all."""

    name = "hesitant"
    continues: Literal["prefill", "prompt"] = "prompt"

    def __init__(self, *, calls_again: bool) -> None:
        self.calls_again, self.asked = calls_again, 0
        self.is_silent = asyncio.Event()

    async def stream(self, request: model.Request) -> AsyncGenerator[model.ModelEvent, None]:
        self.asked += 1
        yield model.Opened()
        if self.asked == 1:
            yield model.ToolInputStart("first", "add")
            yield model.ToolInputDelta("first", '{"a": 1, ')
            self.is_silent.set()
            await asyncio.Event().wait()
        answered = any(isinstance(message, model.ToolMessage) for message in request.messages)
        if self.calls_again and not answered:
            yield model.ToolInputStart("second", "add")
            yield model.ToolInputDelta("second", '{"a": 1, "b": 2}')
            yield model.ToolCallReady("second", "add", '{"a": 1, "b": 2}')
            yield model.Finish("tool-calls")
            return
        yield model.TextStart("t")
        yield model.TextDelta("t", "It is three.")
        yield model.TextEnd("t")
        yield model.Finish("stop")


def calculator(hesitant: Hesitant) -> type[Think]:
    class Calculator(Think):
        model = hesitant  # type: ignore[assignment]

        @tool
        def add(self, a: int, b: int) -> int:
            """Add."""
            return a + b

    return Calculator


@pytest.mark.case(380)
@pytest.mark.parametrize("calls_again", [True, False])
async def test_a_half_written_call_is_made_again_in_its_place_or_told_to_be_over(
    open_app: OpenApp, calls_again: bool
) -> None:
    # Given a process that ends while the model writes a call
    hesitant = Hesitant(calls_again=calls_again)
    app = await open_app(cls := calculator(hesitant))
    agent = app.agent(cls, "room")
    asking = asyncio.create_task(agent.save_messages("One and two?"))
    await hesitant.is_silent.wait()
    home = (await live(agent))._home
    shown = asyncio.Event()
    home.feed.join(lambda _: shown.set())
    while not await home.store.fetch("SELECT 1 FROM segments WHERE chunks LIKE '%tool-input-delta%'"):
        await shown.wait()
        shown.clear()
    await app.evict(cls, "room")
    with suppress(TurnInterrupted):
        await asking

    # When it comes back
    await agent.wait_until_stable()

    # Then there is one call, complete under the id that readers know, or ended; and one answer
    _, answer = await agent.get_messages()
    (call,) = answer.tool_parts
    assert answer.text == "It is three."
    assert call["toolCallId"] == "first"
    if calls_again:
        assert (call["state"], call["input"], call["output"]) == ("output-available", {"a": 1, "b": 2}, 3)
    else:
        assert call["state"] == "output-error"


@pytest.mark.case(114)
async def test_a_turn_builds_on_a_conversation_that_recovery_finished(open_app: OpenApp) -> None:
    hesitant = Hesitant(calls_again=False)
    app = await open_app(cls := calculator(hesitant))
    agent = app.agent(cls, "room")
    asking = asyncio.create_task(agent.save_messages("One and two?"))
    await hesitant.is_silent.wait()
    await app.evict(cls, "room")
    with suppress(TurnInterrupted):
        await asking
    await agent.wait_until_stable()
    result = await agent.run_turn("Again?")
    assert result.text == "It is three."
    assert [m.role for m in await agent.get_messages()] == ["user", "assistant", "user", "assistant"]
    assert await agent.list_fibers() == []
