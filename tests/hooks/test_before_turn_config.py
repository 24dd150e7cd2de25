"""What before_turn may change, each field on its way to the model, and for one turn only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from everthink import StepConfig, Think, TurnConfig, tool
from everthink.errors import InvalidSettings
from everthink.hooks import has_tool_call, step_count_is
from everthink.models.port import (
    Finish,
    ModelEvent,
    Settings,
    Source,
    TextDelta,
    TextPart,
    ToolCallReady,
    UserMessage,
)
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import configured, offered, only, results, script, watch

pytestmark = pytest.mark.anyio


@tool
async def look(place: str = "here") -> str:
    """Look somewhere."""
    return f"nothing {place}"


@tool
async def listen() -> str:
    """Listen."""
    return "silence"


def configurable(model: ScriptedModel, *configs: TurnConfig | None, **members: Any) -> type[Think]:
    members.setdefault("get_tools", lambda self: [look, listen])
    return assistant(model, before_turn=configured(*configs), **members)


@pytest.mark.case(158)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_output_tokens", 100),
        ("temperature", 0.0),
        ("top_p", 0.9),
        ("top_k", 40),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -0.5),
        ("stop_sequences", ["END"]),
        ("seed", 0),
        ("headers", {"x-tenant": "a"}),
        ("provider_options", {"anthropic": {"effort": "high"}}),
    ],
)
async def test_a_setting_reaches_every_call_of_its_turn_and_no_other(
    open_app: OpenApp, field: str, value: Any
) -> None:
    # Given a turn of two steps with this setting, and one without
    model = ScriptedModel(calls("look"), says("Nothing."), says("Bye."))
    app = await open_app(cls := configurable(model, TurnConfig(**{field: value})))
    handle = app.agent(cls, "room")

    # When both run
    await handle.save_messages("Look")
    await handle.save_messages("Bye")

    # Then both calls of the first have it, and nothing else is set
    expected = Settings(**{field: value})
    assert [request.settings for request in model.requests] == [expected, expected, Settings()]


async def test_all_settings_together_reach_the_model(open_app: OpenApp) -> None:
    settings: dict[str, Any] = {
        "max_output_tokens": 10,
        "temperature": 0.1,
        "top_p": 0.2,
        "top_k": 3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.5,
        "stop_sequences": ["a", "b"],
        "seed": 6,
        "headers": {"h": "1"},
        "provider_options": {"p": {"q": 1}},
    }
    model = ScriptedModel(says("Hello."))
    app = await open_app(cls := configurable(model, TurnConfig(**settings)))
    await app.agent(cls, "room").save_messages("Hi")
    assert model.last_request.settings == Settings(**settings)


async def test_another_model_answers_that_turn_only(open_app: OpenApp) -> None:
    usual, other = ScriptedModel(says("Usual.")), ScriptedModel(says("Other."), name="other")
    app = await open_app(cls := configurable(usual, TurnConfig(model=other)))
    handle = app.agent(cls, "room")
    assert (await handle.save_messages("1")).text == "Other."
    assert (await handle.save_messages("2")).text == "Usual."


async def test_a_cheaper_model_may_answer_continuations(open_app: OpenApp) -> None:
    usual, cheap = ScriptedModel(says("Well,")), ScriptedModel(says("yes."), name="cheap")
    cls = assistant(
        usual, before_turn=lambda self, turn: TurnConfig(model=cheap) if turn.continuation else None
    )
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    await handle.save_messages("Go on")
    assert (await handle.continue_last_turn()).text == "yes."


@pytest.mark.case(155, 156)
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TurnConfig(system="S"), "S"),
        (TurnConfig(instructions="I"), "I"),
        (TurnConfig(system="S", instructions="I"), "I"),
        (TurnConfig(system=""), ""),
    ],
)
async def test_a_prompt_of_its_own_replaces_the_whole_prompt_for_that_turn(
    open_app: OpenApp, config: TurnConfig, expected: str
) -> None:
    model = ScriptedModel(calls("look"), says("One."), says("Two."))
    app = await open_app(cls := configurable(model, config, system_prompt="Usual."))
    handle = app.agent(cls, "room")
    await handle.save_messages("1")
    await handle.save_messages("2")
    assert [request.system for request in model.requests[:2]] == [expected, expected]
    assert model.requests[2].system.startswith("Usual.")


async def test_other_messages_are_sent_and_never_stored(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("One."), says("Two."))
    config = TurnConfig(messages=[UserMessage([TextPart("Instead")])])
    app = await open_app(cls := configurable(model, config))
    handle = app.agent(cls, "room")
    await handle.save_messages("1")
    await handle.save_messages("2")
    assert script(model.requests[0]) == [("user", "Instead")]
    assert script(model.requests[1])[0] == ("user", "Instead")
    assert script(model.requests[2])[0] == ("user", "1")
    assert [message.text for message in await handle.get_messages()] == ["1", "One.", "2", "Two."]
    assert config.messages == [UserMessage([TextPart("Instead")])]


async def test_more_tools_are_added_for_that_turn_and_run(open_app: OpenApp) -> None:
    # Given a turn that brings a tool of its own and another version of a known one
    @tool
    async def smell() -> str:
        """Smell."""
        return "smoke"

    @tool(name="look")
    async def look_harder() -> str:
        """Look harder."""
        return "a door"

    model = ScriptedModel(calls("smell").calls("look"), says("Smoke."), says("Bye."))
    app = await open_app(cls := configurable(model, TurnConfig(tools=[smell, look_harder])))
    handle = app.agent(cls, "room")

    # When it and another turn run
    await handle.save_messages("Smell")
    await handle.save_messages("Bye")

    # Then they were offered and run once, beside the usual ones
    assert offered(model.requests[0]) == ["look", "listen", "smell"]
    assert model.requests[0].tools[0].description == "Look harder."
    assert [part.output for part in results(model.requests[1])] == ["smoke", "a door"]
    assert offered(model.requests[2]) == ["look", "listen"]
    assert model.requests[2].tools[0].description == "Look somewhere."


@pytest.mark.case(157)
@pytest.mark.parametrize(
    ("active", "expected"),
    [(["listen"], ["listen"]), ([], []), (["listen", "unheard_of"], ["listen"]), (("look",), ["look"])],
)
async def test_active_tools_limit_what_that_turn_is_offered(
    open_app: OpenApp, active: Any, expected: list[str]
) -> None:
    model = ScriptedModel(says("One."), says("Two."))
    app = await open_app(cls := configurable(model, TurnConfig(active_tools=active)))
    handle = app.agent(cls, "room")
    await handle.save_messages("1")
    await handle.save_messages("2")
    assert [offered(request) for request in model.requests] == [expected, ["look", "listen"]]


@pytest.mark.parametrize("choice", ["auto", "none", "required", "tool:listen"])
async def test_a_tool_choice_reaches_every_call_of_that_turn(open_app: OpenApp, choice: str) -> None:
    model = ScriptedModel(calls("listen"), says("Silence."), says("Bye."))
    app = await open_app(cls := configurable(model, TurnConfig(tool_choice=choice)))
    handle = app.agent(cls, "room")
    await handle.save_messages("Listen")
    await handle.save_messages("Bye")
    assert [request.tool_choice for request in model.requests] == [choice, choice, "auto"]


async def test_a_tool_choice_is_left_out_when_no_tool_is_offered(open_app: OpenApp) -> None:
    model = ScriptedModel(says("Hello."))
    config = TurnConfig(tool_choice="required", active_tools=[])
    app = await open_app(cls := configurable(model, config))
    assert (await app.agent(cls, "room").save_messages("Hi")).status == "completed"
    assert model.last_request.tool_choice == "auto"


@pytest.mark.case(154)
async def test_max_steps_holds_for_that_turn_and_the_class_rules_the_others(open_app: OpenApp) -> None:
    # Given an agent of three steps, a turn of one, and a model that never stops calling
    model = ScriptedModel(*(calls("look") for _ in range(4)))
    app = await open_app(cls := configurable(model, TurnConfig(max_steps=1), max_steps=3))
    handle = app.agent(cls, "room")

    # When both turns run, then one step and three were taken
    assert (await handle.save_messages("1")).status == "completed"
    assert model.asked == 1
    assert (await handle.save_messages("2")).status == "completed"
    assert model.asked == 4


@pytest.mark.parametrize("max_steps", [0, -1])
async def test_max_steps_below_one_is_refused_and_not_endless(open_app: OpenApp, max_steps: int) -> None:
    model = ScriptedModel(calls("look"), calls("look"))
    config = TurnConfig()
    config.max_steps = max_steps
    app = await open_app(cls := configurable(model, config))
    with pytest.raises(InvalidSettings, match=f"before_turn returned: TurnConfig.max_steps is {max_steps},"):
        await app.agent(cls, "room").save_messages("Look")
    assert model.asked == 0


@pytest.mark.case(154)
async def test_a_turn_takes_ten_steps_unless_told_otherwise(open_app: OpenApp) -> None:
    model = ScriptedModel(*(calls("look") for _ in range(12)))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [look]))
    result = await app.agent(cls, "room").save_messages("Look")
    assert (model.asked, result.status) == (10, "completed")
    assert [part["state"] for part in result.message.tool_parts] == ["output-available"] * 10


async def _called_listen(steps: list[Any]) -> bool:
    return steps[-1].tool_calls[0].tool_name == "listen"


@pytest.mark.case(162, 651)
@pytest.mark.parametrize(
    ("stop_when", "steps"),
    [
        (has_tool_call("listen"), 3),
        (has_tool_call("unheard_of"), 4),
        (step_count_is(2), 2),
        (step_count_is(9), 4),
        (_called_listen, 3),
        (lambda steps: steps[0].text == "", 1),
        ([has_tool_call("listen"), step_count_is(2)], 2),
        ((lambda steps: False, has_tool_call("look")), 1),
    ],
)
async def test_a_stop_condition_can_only_end_a_turn_earlier_than_max_steps(
    open_app: OpenApp, stop_when: Any, steps: int
) -> None:
    # Given a model that looks twice, listens and looks on, in a turn of at most four steps
    model = ScriptedModel(calls("look"), calls("look"), calls("listen"), calls("look"), calls("look"))
    config = TurnConfig(stop_when=stop_when, max_steps=4)
    app = await open_app(cls := configurable(model, config))

    # When it runs, then it stops after the step for which a condition is true
    result = await app.agent(cls, "room").save_messages("Go")
    assert (model.asked, result.status) == (steps, "completed")
    # And the last step's tools have run
    assert all(part["state"] == "output-available" for part in result.message.tool_parts)


async def test_a_stop_condition_sees_all_steps_with_their_results(open_app: OpenApp) -> None:
    seen: list[list[Any]] = []

    def watchful(steps: list[Any]) -> bool:
        seen.append([step.tool_results[0].output for step in steps])
        return False

    model = ScriptedModel(calls("look"), calls("listen"), says("Done."))
    app = await open_app(cls := configurable(model, TurnConfig(stop_when=watchful)))
    await app.agent(cls, "room").save_messages("Go")
    assert seen == [["nothing here"], ["nothing here", "silence"]]


async def test_a_stop_condition_that_raises_is_an_error_of_the_answer(open_app: OpenApp) -> None:
    def broken(steps: list[Any]) -> bool:
        raise ValueError("cannot tell")

    model = ScriptedModel(calls("look"), says("Never said."))
    app = await open_app(cls := configurable(model, TurnConfig(stop_when=broken)))
    result = await app.agent(cls, "room").save_messages("Go")
    assert (result.status, result.error, model.asked) == ("error", "cannot tell", 1)
    assert result.message.tool_parts[0]["output"] == "nothing here"


@pytest.mark.case(160)
async def test_a_transform_rewrites_the_events_before_anything_else_sees_them(open_app: OpenApp) -> None:
    # Given a transform that shouts and drops one word
    async def shout(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        async for event in events:
            if isinstance(event, TextDelta):
                if event.text == "quiet ":
                    continue
                event.text = event.text.upper()
            yield event

    chunks: list[str] = []
    model = ScriptedModel(says("a ", "quiet ", "word"), says("another"))
    cls = configurable(
        model,
        TurnConfig(experimental_transform=shout),
        on_chunk=lambda self, context: chunks.append(context.chunk.text),
    )
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)

    # When that turn and another run
    await handle.save_messages("1")
    await handle.save_messages("2")

    # Then readers, hooks and storage saw the changed text, for one turn
    assert [chunk.delta for chunk in only(shown, "text-delta")] == ["A ", "WORD", "another"]
    assert chunks == ["A ", "WORD", "another"]
    assert [message.text for message in await handle.get_messages()] == ["1", "A WORD", "2", "another"]


async def test_a_transform_may_invent_calls_that_then_run(open_app: OpenApp) -> None:
    asked: list[int] = []

    async def calling(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        asked.append(1)
        async for event in events:
            if isinstance(event, Finish) and len(asked) == 1:
                yield ToolCallReady("made-up", "listen", "")
                yield Finish("tool-calls")
            else:
                yield event

    model = ScriptedModel(says("Hm."), says("Silence."))
    app = await open_app(cls := configurable(model, TurnConfig(experimental_transform=calling)))
    await app.agent(cls, "room").save_messages("Listen")
    assert [part.output for part in results(model.requests[1])] == ["silence"]


async def test_a_transform_that_raises_is_an_error_of_the_answer(open_app: OpenApp) -> None:
    async def broken(events: AsyncIterator[ModelEvent]) -> AsyncIterator[ModelEvent]:
        async for event in events:
            yield event
            if isinstance(event, TextDelta):
                raise ValueError("cannot read that")

    model = ScriptedModel(says("Half", " an answer"))
    app = await open_app(cls := configurable(model, TurnConfig(experimental_transform=broken)))
    result = await app.agent(cls, "room").save_messages("Hi")
    assert (result.status, result.error, result.text) == ("error", "cannot read that", "Half")


async def test_a_step_may_still_change_what_the_turn_has_set(open_app: OpenApp) -> None:
    model = ScriptedModel(calls("look"), says("Nothing."))
    cls = configurable(
        model,
        TurnConfig(
            system="Turn.",
            active_tools=["look"],
            tool_choice="required",
            provider_options={"p": {"of": "turn"}},
        ),
        before_step=lambda self, step: (
            StepConfig(
                system="Step.",
                active_tools=["listen"],
                tool_choice="none",
                provider_options={"p": {"of": "step"}},
            )
            if step.step_number == 1
            else None
        ),
    )
    app = await open_app(cls)
    await app.agent(cls, "room").save_messages("Look")
    first, second = model.requests
    assert (first.system, offered(first), first.tool_choice) == ("Turn.", ["look"], "required")
    assert (second.system, offered(second), second.tool_choice) == ("Step.", ["listen"], "none")
    assert first.settings.provider_options == {"p": {"of": "turn"}}
    assert second.settings.provider_options == {"p": {"of": "step"}}


async def test_sources_reach_hooks_and_readers(open_app: OpenApp) -> None:
    seen: list[Any] = []
    model = ScriptedModel(says("See there.").cites("https://example.org", title="Example"))
    cls = assistant(model, on_chunk=lambda self, context: seen.append(context.chunk))
    app = await open_app(cls)
    handle = app.agent(cls, "room")
    shown = await watch(handle)
    await handle.save_messages("Where?")
    assert [chunk.url for chunk in seen if isinstance(chunk, Source)] == ["https://example.org"]
    assert [chunk.title for chunk in only(shown, "source-url")] == ["Example"]
