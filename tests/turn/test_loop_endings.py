"""How a step may end, and what the loop makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from everthink import Think, TurnConfig, tool
from everthink.hooks import StepResult
from everthink.models.port import (
    Finish,
    FinishReason,
    ModelEvent,
    Opened,
    TextEnd,
    ToolCallPart,
    ToolCallReady,
)
from everthink.recovery import ChatRecovery
from everthink.recovery.incident import TERMINAL_MESSAGE
from everthink.testing.clock import ManualClock
from everthink.testing.scripted import Play, ScriptedModel, calls, opens, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.cuts import Reports
from tests.support.hooks import configured, only, types, watch
from tests.support.turns import record_events

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def without_anything(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
    async for event in events:
        if isinstance(event, Opened):
            yield event


def transformed(model: ScriptedModel, transform: Any, steps: list[StepResult]) -> type[Think]:
    return assistant(
        model,
        get_tools=lambda self: [look],
        before_turn=lambda self, turn: TurnConfig(experimental_transform=transform),
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


def cut_at_first(times: int) -> Callable[[AsyncIterator[ModelEvent]], AsyncIterator[ModelEvent]]:
    """Loses the end of so many streams."""
    left = times

    async def transform(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        nonlocal left
        left, is_cut = left - 1, left > 0
        async for event in events:
            if not (is_cut and isinstance(event, TextEnd | Finish)):
                yield event

    return transform


async def test_an_answer_that_breaks_off_without_a_finish_goes_on(open_app: OpenApp) -> None:
    model = ScriptedModel(says("So far, "), says("so good."))
    app = await open_app(cls := transformed(model, cut_at_first(1), []))
    events = record_events(app, "chat:stream:cut", "chat:recovery:completed")
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    result = await handle.save_messages("Hi")
    assert (result.status, result.text, model.asked) == ("completed", "So far, so good.", 2)
    assert [event.type for event in events] == ["chat:stream:cut", "chat:recovery:completed"]
    assert types(shown).count("finish") == 1


async def test_without_recovery_an_answer_that_breaks_off_is_an_error_and_keeps_its_words(
    open_app: OpenApp,
) -> None:
    model = ScriptedModel(says("So far, "))
    cls = transformed(model, cut_at_first(1), [])
    cls.chat_recovery = False
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.text) == ("error", "So far, ")
    assert "ended without a finish reason" in (result.error or "")


async def test_a_provider_that_breaks_off_for_ever_is_asked_so_often_and_given_time(
    open_app: OpenApp,
) -> None:
    clock, model = ManualClock(), ScriptedModel.forever(says("Never seen."))
    cls = transformed(model, without_anything, [])
    cls.chat_recovery = ChatRecovery(max_attempts=3)
    app = await open_app(cls, clock=clock)
    reports = Reports(app, "chat:stream:cut")
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Hi"))
    for number, seconds in enumerate((1, 2, 4, 8), 1):
        await reports.until("cut", number)
        await clock.until_waiting()
        await clock.advance(seconds)
    result = await turn
    assert (result.status, result.error, model.asked) == ("error", TERMINAL_MESSAGE, 4)


async def test_calls_without_a_finish_are_answered_all_the_same(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("Done."))
    app = await open_app(cls := transformed(model, cut_at_first(1), []))
    result = await app.agent(cls, "room").save_messages("Look")
    assert (result.status, result.text, model.asked) == ("completed", "Done.", 2)


@pytest.mark.parametrize("play", [opens(), says("Never seen.")])
async def test_an_answer_of_nothing_at_all_is_an_error(open_app: OpenApp, play: Play) -> None:
    steps: list[StepResult] = []
    cls = transformed(ScriptedModel(play), without_anything, steps)
    cls.chat_recovery = False
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.message, steps) == ("error", None, [])
    assert "ended without a finish reason" in (result.error or "")


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
    (await live(handle)).max_steps = 3
    await handle.save_messages("2")
    assert model.asked == 5


async def test_a_turn_that_runs_out_of_steps_says_so(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), calls("look"), says("Again."))
    cls = assistant(model, get_tools=lambda self: [look], max_steps=2)
    app = await open_app(cls)
    events = record_events(app, "chat:turn:finish")
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    result = await handle.save_messages("Look")
    # in the result, the event, and the message that pages show, now and later
    assert (result.status, result.stopped_by) == ("completed", "max_steps")
    assert events[0].payload["stoppedBy"] == "max_steps"
    assert only(shown, "finish")[0].message_metadata == {"stoppedBy": "max_steps", "steps": 2}
    assert (await handle.get_messages())[-1].metadata == {"stoppedBy": "max_steps", "steps": 2}
    # One that comes to an end by itself has nothing to say
    again = await handle.save_messages("Again")
    assert (again.stopped_by, "stoppedBy" in events[1].payload) == (None, False)


async def test_a_condition_that_stops_a_turn_is_told_too(open_app: OpenApp) -> None:
    config = TurnConfig(stop_when=lambda steps: True)
    cls = assistant(
        ScriptedModel(calls("look")), get_tools=lambda self: [look], before_turn=lambda self, turn: config
    )
    app = await open_app(cls)
    assert (await app.agent(cls, "room").save_messages("Look")).stopped_by == "stop_when"


async def test_a_conversation_that_cannot_be_read_for_the_model_fails_at_that_stage(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    cls = assistant(ScriptedModel(), on_chat_error=lambda self, error, ctx: told.append(ctx.stage))
    app = await open_app(cls)

    def broken(*_: Any) -> Any:
        raise LookupError("no such message")

    monkeypatch.setattr("everthink.turn.assemble.as_prompt", broken)
    with pytest.raises(LookupError):
        await app.agent(cls, "room").save_messages("Hi")
    assert told == ["transcript"]
