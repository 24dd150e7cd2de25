"""How a step may end, and what the loop makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from everthink import StepResult, Think, TurnConfig, tool
from everthink.models.port import Finish, FinishReason, ModelEvent, Opened, ToolCallPart, ToolCallReady
from everthink.testing.scripted import Play, ScriptedModel, calls, opens, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import configured, only, types, watch

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def without_finish(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
    async for event in events:
        if not isinstance(event, Finish):
            yield event


async def without_anything(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
    async for event in events:
        if isinstance(event, Opened):
            yield event


def transformed(model: ScriptedModel, transform: Any, steps: list[StepResult]) -> type[Think]:
    return assistant(
        model,
        get_tools=lambda self: [look],
        before_turn=configured(TurnConfig(experimental_transform=transform)),
        on_step_finish=lambda self, step: steps.append(step),
    )


@pytest.mark.parametrize("reason", ["stop", "length", "content-filter", "error", "other"])
async def test_the_models_reason_to_stop_reaches_hooks_and_readers(
    open_app: OpenApp, reason: FinishReason
) -> None:
    steps: list[StepResult] = []
    model = ScriptedModel(says("So far.").finishes(reason, raw=f"raw-{reason}"))
    cls = assistant(model, on_step_finish=lambda self, step: steps.append(step))
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    result = await handle.save_messages("Hi")
    assert (result.status, result.text, model.asked) == ("completed", "So far.", 1)
    assert (steps[0].finish_reason, steps[0].raw_finish_reason) == (reason, f"raw-{reason}")
    assert only(shown, "finish")[0].finish_reason == reason


async def test_a_whole_turn_is_shown_as_start_steps_and_finish(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    result = await handle.save_messages("Look")
    assert types(shown) == [
        "start",
        "start-step",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-available",
        "finish-step",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ]
    assert shown[0].message_id == result.message.id


async def test_an_answer_that_breaks_off_without_a_finish_counts_as_far_as_it_came(open_app: OpenApp) -> None:
    steps: list[StepResult] = []
    model = ScriptedModel(says("So far."))
    app = await open_app(cls := transformed(model, without_finish, steps))
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.text) == ("completed", "So far.")
    assert (steps[0].finish_reason, steps[0].usage.input_tokens) == ("other", None)


async def test_calls_without_a_finish_are_answered_all_the_same(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(cls := transformed(model, without_finish, []))
    assert (await app.agent(cls, "room").save_messages("Look")).text == "Done."


@pytest.mark.parametrize("play", [opens(), says("Never seen.")])
async def test_an_answer_of_nothing_at_all_is_an_error(open_app: OpenApp, play: Play) -> None:
    steps: list[StepResult] = []
    model = ScriptedModel(play)
    app = await open_app(cls := transformed(model, without_anything, steps))
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.message, steps) == ("error", None, [])
    assert result.error == "scripted ended its answer without saying anything."


async def test_an_answer_of_thinking_alone_is_an_answer(open_app: OpenApp) -> None:
    model = ScriptedModel(thinks("Hm."))
    app = await open_app(cls := assistant(model))
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.text) == ("completed", "")
    assert [part["text"] for part in result.message.parts if part["type"] == "reasoning"] == ["Hm."]


async def test_what_a_provider_says_about_a_call_travels_with_it(open_app: OpenApp) -> None:
    # Given a provider that signs its calls
    signed = {"google": {"thoughtSignature": "s"}}
    heard: list[Any] = []

    async def signing(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        async for event in events:
            if isinstance(event, ToolCallReady):
                event.provider_metadata = signed
            yield event

    model = ScriptedModel(calls("look", id="c1"), says("Done."), says("Bye."))
    cls = assistant(
        model,
        get_tools=lambda self: [look],
        before_turn=configured(TurnConfig(experimental_transform=signing)),
        before_tool_call=lambda self, call: heard.append(call.provider_metadata),
        after_tool_call=lambda self, outcome: heard.append(outcome.provider_metadata),
    )
    app = await open_app(cls)
    handle = app.agent(cls, "room")

    # When it calls, then hooks see it, and it goes back to the model in this turn and the next
    result = await handle.save_messages("Look")
    await handle.save_messages("Bye")
    assert heard == [signed, signed]
    assert result.message.tool_parts[0]["callProviderMetadata"] == signed
    for request in model.requests[1:]:
        assert request.messages[1].content == [ToolCallPart("c1", "look", {}, False, signed)]


async def test_limits_set_on_the_live_agent_hold_from_the_next_turn(open_app: OpenApp) -> None:
    model = ScriptedModel(*(calls("look") for _ in range(5)))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look], max_steps=2))
    handle = app.agent(cls, "room")
    await handle.save_messages("1")
    assert model.asked == 2
    (await handle.instance()).max_steps = 3
    await handle.save_messages("2")
    assert model.asked == 5
