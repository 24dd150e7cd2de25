"""before_step: what it is shown, what it may change for one step, and what raising does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from everthink import StepConfig, Think, ToolContext, TurnConfig, tool
from everthink.hooks import StepContext
from everthink.models.port import Settings, TextPart, ToolMessage, UserMessage
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import breathe, configured, offered, script, soon, types, watch

pytestmark = pytest.mark.anyio


@tool
async def look() -> str:
    """Look."""
    return "seen"


@tool
async def listen() -> str:
    """Listen."""
    return "silence"


def stepper(model: ScriptedModel, *configs: StepConfig | None, **members: Any) -> type[Think]:
    """An agent whose steps get these configs, one each."""
    members.setdefault("get_tools", lambda self: [look, listen])
    left = list(configs)
    return assistant(model, before_step=lambda self, step: left.pop(0) if left else None, **members)


@pytest.mark.case(168, 170)
async def test_the_context_holds_the_steps_so_far_and_what_the_model_will_read(open_app: OpenApp) -> None:
    # Given a turn of two steps
    seen: list[StepContext] = []
    model = ScriptedModel(calls("look", id="c1"), says("Done."))
    cls = assistant(model, get_tools=lambda self: [look], before_step=lambda self, step: seen.append(step))
    app = await open_app(cls)

    # When it runs
    await app.agent(cls, "room").save_messages("Look")

    # Then the first step saw nothing before it, the second the first with its result
    first, second = seen
    assert (first.step_number, first.steps) == (0, [])
    assert first.messages == [UserMessage([TextPart("Look")])]
    assert first.model is model
    assert first.model.name == "scripted"
    assert second.step_number == 1
    assert [result.output for step in second.steps for result in step.tool_results] == ["seen"]
    assert second.steps[0].tool_calls[0].tool_call_id == "c1"
    assert second.messages == model.requests[1].messages
    assert isinstance(second.messages[-1], ToolMessage)


@pytest.mark.case(170)
async def test_it_fires_once_per_step_on_every_turn(open_app: OpenApp) -> None:
    numbers: list[int] = []
    model = ScriptedModel(calls("look"), calls("look"), says("One."), says("Two."))
    cls = assistant(
        model, get_tools=lambda self: [look], before_step=lambda self, step: numbers.append(step.step_number)
    )
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("1")
    await app.agent(cls, "room").chat("2")
    assert numbers == [0, 1, 2, 0]


@pytest.mark.case(169)
async def test_a_step_may_use_another_model_and_an_async_hook_is_awaited(open_app: OpenApp) -> None:
    # Given an async hook that picks another model for the second step, once it is allowed to
    usual = ScriptedModel(calls("look"))
    other = ScriptedModel(calls("look"), name="other")
    last = ScriptedModel(says("Done."), name="last")
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def before_step(self, step):
        if step.step_number == 1:
            entered.set()
            await go_on.wait()
            return StepConfig(model=other)
        return StepConfig(model=last) if step.step_number == 2 else None

    app = await open_app(cls := assistant(usual, get_tools=lambda self: [look], before_step=before_step))

    # When the turn runs
    turn = asyncio.create_task(app.agent(cls, "room").save_messages("Look"))
    await soon(entered.wait())
    await breathe()
    assert other.asked == 0
    go_on.set()

    # Then each step was answered by its own model
    assert (await soon(turn)).text == "Done."
    assert (usual.asked, other.asked, last.asked) == (1, 1, 1)


async def test_the_model_shown_is_the_turns_and_the_steps_choice_lasts_one_step(open_app: OpenApp) -> None:
    usual, once = ScriptedModel(calls("look"), says("Done.")), ScriptedModel(calls("look"), name="once")
    seen: list[str] = []
    choices = [StepConfig(model=once), None, None]

    def before_step(self, step):
        seen.append(step.model.name)
        return choices.pop(0)

    app = await open_app(cls := assistant(usual, get_tools=lambda self: [look], before_step=before_step))
    await app.agent(cls, "room").save_messages("Look")
    assert seen == ["scripted", "scripted", "scripted"]
    assert (once.asked, usual.asked) == (1, 2)


@pytest.mark.parametrize(
    ("config", "read", "usual", "changed"),
    [
        (StepConfig(system="Step."), lambda r: r.system, "Turn.", "Step."),
        (StepConfig(system=""), lambda r: r.system, "Turn.", ""),
        (StepConfig(active_tools=["listen"]), offered, ["look", "listen"], ["listen"]),
        (StepConfig(active_tools=[]), offered, ["look", "listen"], []),
        (StepConfig(tool_choice="none"), lambda r: r.tool_choice, "required", "none"),
        (StepConfig(tool_choice="tool:listen"), lambda r: r.tool_choice, "required", "tool:listen"),
        (
            StepConfig(messages=[UserMessage([TextPart("Instead")])]),
            lambda r: script(r)[0],
            ("user", "Look"),
            ("user", "Instead"),
        ),
        (
            StepConfig(provider_options={"p": {"of": "step"}}),
            lambda r: r.settings,
            Settings(temperature=0.5, provider_options={"p": {"of": "turn"}}),
            Settings(temperature=0.5, provider_options={"p": {"of": "step"}}),
        ),
    ],
)
async def test_a_change_holds_for_its_step_and_falls_back_to_the_turns_value(
    open_app: OpenApp, config: StepConfig, read: Any, usual: Any, changed: Any
) -> None:
    # Given a turn of three steps whose second is changed in one field
    model = ScriptedModel(calls("look"), calls("listen"), says("Done."))
    cls = stepper(
        model,
        None,
        config,
        StepConfig(),
        before_turn=configured(
            TurnConfig(
                system="Turn.",
                tool_choice="required",
                temperature=0.5,
                provider_options={"p": {"of": "turn"}},
            )
        ),
    )
    app = await open_app(cls)

    # When it runs, then only that step differs
    await app.agent(cls, "room").save_messages("Look")
    assert [read(request) for request in model.requests] == [usual, changed, usual]


async def test_no_tools_after_the_first_step_is_a_one_liner(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("Done."))
    cls = assistant(
        model,
        get_tools=lambda self: [look],
        before_step=lambda self, step: StepConfig(active_tools=[]) if step.step_number > 0 else None,
    )
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("Look")
    assert [offered(request) for request in model.requests] == [["look"], []]


async def test_a_steps_own_messages_are_mended_so_that_every_call_has_its_result(open_app: OpenApp) -> None:
    def before_step(self, step):
        if step.step_number == 1:  # forgets the results but keeps the calls
            kept = [message for message in step.messages if not isinstance(message, ToolMessage)]
            return StepConfig(messages=[*kept, UserMessage([TextPart("Well?")])])

    model = ScriptedModel(says("Hm.").calls("look"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look], before_step=before_step))
    assert (await app.agent(cls, "room").save_messages("Look")).status == "completed"
    assert script(model.requests[1]) == [("user", "Look"), ("assistant", "Hm."), ("user", "Well?")]


async def test_a_value_of_ones_own_reaches_the_tools_and_the_next_steps_of_the_turn(
    open_app: OpenApp,
) -> None:
    # Given a hook that counts in a value of its own, and a tool that reads it
    seen: list[Any] = []
    read: list[Any] = []

    def before_step(self, step):
        seen.append(step.context)
        return StepConfig(context=[*(step.context or []), step.step_number])

    @tool
    async def peek(ctx: ToolContext) -> None:
        """Peek."""
        read.append(ctx.context)

    model = ScriptedModel(calls("peek"), calls("peek"), says("One."), says("Two."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [peek], before_step=before_step))

    # When two turns run
    await app.agent(cls, "room").save_messages("1")
    await app.agent(cls, "room").save_messages("2")

    # Then each step built on the one before, and the next turn started afresh
    assert seen == [None, [0], [0, 1], None]
    assert read == [[0], [0, 1]]


@pytest.mark.case(175)
async def test_raising_before_the_first_step_is_an_error_of_the_answer(open_app: OpenApp) -> None:
    # Given a hook that raises at once
    told: list[Any] = []

    async def before_step(self, step):
        raise ValueError("no more steps")

    model = ScriptedModel()
    cls = assistant(
        model,
        before_step=before_step,
        on_chat_error=lambda self, error, ctx: told.append((str(error), ctx.stage)),
        on_chat_response=lambda self, response: told.append(response.status),
    )
    app = await open_app(cls)

    # When a turn runs, then it ends in error, nothing was asked and nothing is stored
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.error, result.message) == ("error", "no more steps", None)
    assert (model.asked, told) == (0, [("no more steps", "stream")])


@pytest.mark.case(175)
async def test_raising_later_keeps_what_was_said_and_done_before(open_app: OpenApp) -> None:
    def before_step(self, step):
        if step.step_number == 1:
            raise ValueError("no more steps")

    model = ScriptedModel(says("Let me look.").calls("look"))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look], before_step=before_step))
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    result = await handle.save_messages("Look")
    assert (result.status, result.error) == ("error", "no more steps")
    stored = (await handle.get_messages())[-1]
    assert (stored.text, stored.tool_parts[0]["output"]) == ("Let me look.", "seen")
    assert types(shown)[-1] == "finish-step"


async def test_a_step_config_has_no_say_over_the_whole_turn() -> None:
    for field in ("output", "max_steps", "stop_when", "tools"):
        with pytest.raises(TypeError, match=field):
            StepConfig(**{field: None})
