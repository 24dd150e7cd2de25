"""on_step_finish: the full record of a step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from everthink import Think, TurnConfig, tool
from everthink.hooks import StepResult
from everthink.models.port import (
    AssistantMessage,
    Finish,
    ModelEvent,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    Usage,
)
from everthink.testing.scripted import ScriptedModel, calls, calls_raw, says, thinks
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import configured

pytestmark = pytest.mark.anyio


@tool
async def look(place: str) -> str:
    """Look."""
    return f"nothing in {place}"


@tool
async def fall() -> str:
    """Fall."""
    raise ValueError("ouch")


def recorder(model: ScriptedModel, steps: list[StepResult], **members: Any) -> type[Think]:
    return assistant(
        model,
        get_tools=lambda self: [look, fall],
        on_step_finish=lambda self, step: steps.append(step),
        **members,
    )


@pytest.mark.case(171, 172)
async def test_a_text_step_tells_its_text_reason_and_tokens(open_app: OpenApp) -> None:
    # Given a model that thinks, cites, attaches and reports its usage
    steps: list[StepResult] = []
    play = (
        thinks("Hm, ", "well")
        .says("It ", "rains.")
        .cites("https://example.org", title="Example")
        .attaches("data:image/png;base64,AA==")
        .uses(10, 4, reasoning_tokens=2, cached_input_tokens=8)
        .finishes("stop", raw="end_turn")
    )
    model = ScriptedModel(play)
    app = await open_app(cls := recorder(model, steps))

    # When it answers
    await app.agent(cls, "room").save_messages("Weather?")

    # Then the step's record has all of it
    (step,) = steps
    assert step.step_number == 0
    assert step.text == "It rains."
    assert [part.text for part in step.reasoning] == ["Hm, well"]
    assert step.reasoning_text == "Hm, well"
    assert [source.url for source in step.sources] == ["https://example.org"]
    assert [(file.url, file.media_type) for file in step.files] == [
        ("data:image/png;base64,AA==", "image/png")
    ]
    assert (step.tool_calls, step.tool_results) == ([], [])
    assert (step.finish_reason, step.raw_finish_reason) == ("stop", "end_turn")
    assert step.usage == Usage(10, 4, 14, reasoning_tokens=2, cached_input_tokens=8)
    assert (step.model, step.response_id) == ("scripted", "resp_1")
    assert step.request == model.requests[0]
    assert step.warnings == []
    assert isinstance(step.response_messages[0], AssistantMessage)


@pytest.mark.case(173)
async def test_a_tool_step_lists_its_calls_and_results_in_call_order(open_app: OpenApp) -> None:
    # Given a step that calls four ways: well, badly, to nowhere and with broken input
    steps: list[StepResult] = []
    play = (
        says("Let me see.")
        .calls("look", place="the box", id="c1")
        .calls("fall", id="c2")
        .calls("fly", id="c3")
        .then(calls_raw("look", "{broken", id="c4"))
    )
    model = ScriptedModel(play, says("Done."))
    app = await open_app(cls := recorder(model, steps))

    # When it runs
    await app.agent(cls, "room").save_messages("Look")

    # Then each call is listed with its outcome
    step = steps[0]
    assert step.finish_reason == "tool-calls"
    assert [(c.tool_call_id, c.tool_name, c.input, c.invalid) for c in step.tool_calls] == [
        ("c1", "look", {"place": "the box"}, False),
        ("c2", "fall", {}, False),
        ("c3", "fly", {}, True),
        ("c4", "look", "{broken", True),
    ]
    assert [(r.tool_call_id, r.is_error) for r in step.tool_results] == [
        ("c1", False),
        ("c2", True),
        ("c3", True),
        ("c4", True),
    ]
    assert [r.output for r in step.tool_results[:2]] == ["nothing in the box", "ouch"]
    assert step.tool_results[0].input == {"place": "the box"}
    assert {c.type for c in step.tool_calls} == {"tool-call"}
    assert {r.type for r in step.tool_results} == {"tool-result"}

    # And what the next prompt gets of it is there
    said, results = step.response_messages
    assert said.content[:2] == [
        TextPart("Let me see."),
        ToolCallPart("c1", "look", {"place": "the box"}),
    ]
    assert isinstance(results, ToolMessage)
    assert results.content[0] == ToolResultPart("c1", "look", "nothing in the box")
    assert model.requests[1].messages[-2:] == step.response_messages
    assert steps[1].text == "Done."


@pytest.mark.case(172)
async def test_unknown_token_counts_are_none_and_never_zero(open_app: OpenApp) -> None:
    steps: list[StepResult] = []
    app = await open_app(cls := recorder(ScriptedModel(says("Hi.")), steps))
    await app.agent(cls, "room").save_messages("Hi")
    assert steps[0].usage == Usage(None, None, None, None, None, None)
    assert steps[0].reasoning_text is None
    assert steps[0].provider_metadata is None


async def test_the_providers_metadata_is_passed_on(open_app: OpenApp) -> None:
    # Given a provider that tells about its cache when it finishes
    cache = {"anthropic": {"cacheReadInputTokens": 7}}

    async def metered(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        async for event in events:
            if isinstance(event, Finish):
                yield Finish("stop", response_id="r9", model_id="m-2", provider_metadata=cache)
            else:
                yield event

    steps: list[StepResult] = []
    config = TurnConfig(experimental_transform=metered)
    app = await open_app(cls := recorder(ScriptedModel(says("Hi.")), steps, before_turn=configured(config)))
    await app.agent(cls, "room").save_messages("Hi")
    assert steps[0].provider_metadata == cache
    assert (steps[0].response_id, steps[0].model) == ("r9", "m-2")


async def test_a_provider_executed_call_is_listed_and_not_run_here(open_app: OpenApp) -> None:
    steps: list[StepResult] = []
    play = (
        calls("search", {"q": "x"}, id="c1", provider_executed=True)
        .provider_result({"hits": 2})
        .says("Two hits.")
    )
    app = await open_app(cls := recorder(ScriptedModel(play), steps))
    result = await app.agent(cls, "room").save_messages("Search")
    (step,) = steps
    assert [(c.tool_name, c.provider_executed) for c in step.tool_calls] == [("search", True)]
    assert [r.output for r in step.tool_results] == [{"hits": 2}]
    part = result.message.tool_parts[0]
    assert (part["output"], part["providerExecuted"]) == ({"hits": 2}, True)


@pytest.mark.case(175)
@pytest.mark.parametrize("is_async", [False, True])
async def test_raising_changes_nothing(open_app: OpenApp, is_async: bool, caplog: Any) -> None:
    def sync(self, step):
        raise ValueError("cannot count")

    async def later(self, step):
        raise ValueError("cannot count")

    model = ScriptedModel(calls("look", place="x"), says("Done."))
    cls = assistant(model, get_tools=lambda self: [look], on_step_finish=later if is_async else sync)
    app = await open_app(cls)
    result = await app.agent(cls, "room").save_messages("Look")
    assert (result.status, result.text) == ("completed", "Done.")
    assert [r.getMessage() for r in caplog.records if r.name == "everthink.hooks"] == [
        "Assistant.on_step_finish of room raised"
    ] * 2
