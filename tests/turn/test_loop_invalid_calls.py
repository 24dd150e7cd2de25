"""Calls that cannot run: unknown tools, broken JSON, input that does not fit, and their repair."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import StepConfig, Think, TurnConfig, tool
from everthink.hooks.values import InvalidCall
from everthink.models.port import TextPart, ToolCallPart, UserMessage
from everthink.testing.scripted import Play, ScriptedModel, calls, calls_raw, says
from tests.conftest import OpenApp
from tests.support.agents import assistant
from tests.support.hooks import configured, only, results, types, watch

pytestmark = pytest.mark.anyio


class Desk:
    """An agent with one tool, `look(place, times=1)`, that remembers how it was called."""

    def __init__(self, *plays: Any, config: TurnConfig | None = None, **members: Any) -> None:
        self.ran: list[tuple[str, int]] = []
        self.model = ScriptedModel(*plays)

        @tool
        async def look(place: str, times: int = 1) -> str:
            """Look."""
            self.ran.append((place, times))
            return f"nothing in {place}"

        self.look = look
        self.cls: type[Think] = assistant(
            self.model,
            get_tools=lambda agent: [look],
            before_turn=configured(*([config] if config else [])),
            **members,
        )

    @property
    def read(self) -> list[tuple[Any, bool]]:
        return [(part.output, part.is_error) for part in results(self.model.requests[1])]


@pytest.mark.case(646)
@pytest.mark.parametrize(
    ("play", "name", "input", "complaint"),
    [
        (
            calls("fly", to="Mars", id="c1"),
            "fly",
            {"to": "Mars"},
            "There is no tool 'fly'. Available tools: look.",
        ),
        (calls_raw("look", "{broken", id="c1"), "look", "{broken", "The input of 'look' is not valid JSON"),
        (calls("look", place="x", times="many", id="c1"), "look", {"place": "x", "times": "many"}, "times"),
        (calls("look", id="c1"), "look", {}, "place"),
        (calls_raw("look", "  ", id="c1"), "look", {}, "place"),
        (calls_raw("look", '["x"]', id="c1"), "look", ["x"], "look"),
    ],
)
async def test_a_call_that_cannot_run_is_told_to_the_model_and_the_loop_goes_on(
    open_app: OpenApp, play: Play, name: str, input: Any, complaint: str
) -> None:
    # Given a model that makes a mistake and then mends it
    desk = Desk(play, calls("look", place="the box"), says("Nothing."))
    app = await open_app(desk.cls)
    handle = app.agent(desk.cls, "room")
    shown = await watch(handle)

    # When it runs
    result = await handle.save_messages("Look")

    # Then the mistake was shown and read, nothing ran for it, and the loop went on
    (error,) = only(shown, "tool-input-error")
    assert (error.tool_call_id, error.tool_name, error.input, error.dynamic) == ("c1", name, input, True)
    assert complaint in error.error_text
    assert desk.read == [(error.error_text, True)]
    assert desk.ran == [("the box", 1)]
    assert (result.status, result.text, desk.model.asked) == ("completed", "Nothing.", 3)

    # And it is stored as a failed call
    part = result.message.tool_parts[0]
    assert (part["type"], part["state"], part["errorText"]) == (
        f"tool-{name}",
        "output-error",
        error.error_text,
    )
    # The call the model reads back has an object as its input, as providers demand.
    said = desk.model.requests[1].messages[-2]
    assert isinstance(said.content[-1], ToolCallPart)
    assert isinstance(said.content[-1].input, dict)


@pytest.mark.case(646)
async def test_mistakes_count_as_steps(open_app: OpenApp) -> None:
    desk = Desk(*(calls("fly") for _ in range(5)), config=TurnConfig(max_steps=3))
    app = await open_app(desk.cls)
    result = await app.agent(desk.cls, "room").save_messages("Fly")
    assert (result.status, desk.model.asked) == ("completed", 3)


async def test_empty_input_is_an_empty_object(open_app: OpenApp) -> None:
    ran: list[int] = []

    @tool
    async def ping() -> str:
        """Ping."""
        ran.append(1)
        return "pong"

    model = ScriptedModel(calls_raw("ping", ""), calls_raw("ping", " \n"), says("Done."))
    app = await open_app(cls := assistant(model, get_tools=lambda self: [ping]))
    result = await app.agent(cls, "room").save_messages("Ping")
    assert len(ran) == 2
    assert [part["input"] for part in result.message.tool_parts] == [{}, {}]


async def test_a_mistake_beside_a_good_call_does_not_hold_it_up(open_app: OpenApp) -> None:
    desk = Desk(calls("fly", id="c1").calls("look", place="x", id="c2"), says("Done."))
    app = await open_app(desk.cls)
    await app.agent(desk.cls, "room").save_messages("Go")
    assert desk.ran == [("x", 1)]
    assert [is_error for _, is_error in desk.read] == [True, False]


@pytest.mark.case(649)
@pytest.mark.parametrize("where", ["turn", "step"])
async def test_a_call_to_an_inactive_tool_is_a_call_to_an_unknown_one(open_app: OpenApp, where: str) -> None:
    # Given a model that calls a tool it was not offered
    members: dict[str, Any] = {}
    if where == "step":
        members["before_step"] = lambda self, step: StepConfig(active_tools=[])
    desk = Desk(
        calls("look", place="x"),
        says("Fine."),
        config=TurnConfig(active_tools=[]) if where == "turn" else None,
        **members,
    )
    app = await open_app(desk.cls)
    handle = app.agent(desk.cls, "room")
    shown = await watch(handle)

    # When it runs, then nothing ran and the model was told
    await handle.save_messages("Look")
    assert desk.ran == []
    assert desk.read == [("There is no tool 'look'. Available tools: none.", True)]
    assert "tool-input-error" in types(shown)


# --- repair


@pytest.mark.case(161)
@pytest.mark.parametrize(
    "mended",
    [
        {"place": "the box"},
        '{"place": "the box"}',
        ("look", {"place": "the box"}),
        ("look", '{"place": "the box"}'),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_repair_is_used_and_the_tool_runs_with_it(
    open_app: OpenApp, mended: Any, is_async: bool
) -> None:
    # Given a repair for broken input
    seen: list[InvalidCall] = []

    def sync(call: InvalidCall) -> Any:
        seen.append(call)
        return mended

    async def later(call: InvalidCall) -> Any:
        return sync(call)

    config = TurnConfig(repair_tool_call=later if is_async else sync, system="Be tidy.")
    desk = Desk(calls_raw("look", "{broken", id="c1"), says("Nothing."), config=config)
    app = await open_app(desk.cls)
    handle = app.agent(desk.cls, "room")
    shown = await watch(handle)

    # When the model breaks it
    result = await handle.save_messages("Look")

    # Then the repair knew everything about the call, and the tool ran with what it gave
    (call,) = seen
    assert (call.tool_call_id, call.tool_name, call.input) == ("c1", "look", "{broken")
    assert list(call.tools) == ["look"]
    assert call.system == "Be tidy."
    assert call.messages == [UserMessage([TextPart("Look")])]
    assert "not valid JSON" in str(call.error)
    assert desk.ran == [("the box", 1)]
    assert desk.read == [("nothing in the box", False)]
    assert only(shown, "tool-input-error") == []
    assert result.message.tool_parts[0]["input"] == {"place": "the box"}


@pytest.mark.case(161)
async def test_a_repair_may_name_another_tool(open_app: OpenApp) -> None:
    config = TurnConfig(repair_tool_call=lambda call: ("look", {"place": "Mars"}))
    desk = Desk(calls("fly", to="Mars"), says("Nothing."), config=config)
    app = await open_app(desk.cls)
    result = await app.agent(desk.cls, "room").save_messages("Fly")
    assert desk.ran == [("Mars", 1)]
    assert result.message.tool_parts[0]["output"] == "nothing in Mars"


async def test_without_a_repair_the_error_stays(open_app: OpenApp) -> None:
    asked: list[str] = []
    config = TurnConfig(repair_tool_call=lambda call: asked.append(call.tool_name))
    desk = Desk(calls("look", place="x", times="many"), says("Sorry."), config=config)
    app = await open_app(desk.cls)
    await app.agent(desk.cls, "room").save_messages("Look")
    assert (asked, desk.ran) == (["look"], [])
    assert "times" in desk.read[0][0]


async def test_a_repair_that_raises_is_what_the_model_reads(open_app: OpenApp) -> None:
    def broken(call: InvalidCall) -> None:
        raise ValueError("no tools at hand")

    desk = Desk(calls("look"), says("Sorry."), config=TurnConfig(repair_tool_call=broken))
    app = await open_app(desk.cls)
    result = await app.agent(desk.cls, "room").save_messages("Look")
    assert desk.read == [("Repairing the call failed: no tools at hand", True)]
    assert (result.status, desk.ran) == ("completed", [])


async def test_a_repair_gets_one_try(open_app: OpenApp) -> None:
    tries: list[int] = []

    def useless(call: InvalidCall) -> Any:
        tries.append(1)
        return {"place": 3, "times": "many"}

    desk = Desk(calls("look"), says("Sorry."), config=TurnConfig(repair_tool_call=useless))
    app = await open_app(desk.cls)
    await app.agent(desk.cls, "room").save_messages("Look")
    assert (tries, desk.ran) == ([1], [])
    assert "times" in desk.read[0][0]


async def test_good_calls_are_not_repaired(open_app: OpenApp) -> None:
    tries: list[int] = []
    config = TurnConfig(repair_tool_call=lambda call: tries.append(1))
    desk = Desk(calls("look", place="x"), says("Done."), config=config)
    app = await open_app(desk.cls)
    await app.agent(desk.cls, "room").save_messages("Look")
    assert (tries, desk.ran) == ([], [("x", 1)])


async def test_a_repaired_call_passes_the_hooks_with_the_repaired_input(open_app: OpenApp) -> None:
    inputs: list[Any] = []
    desk = Desk(
        calls("look"),
        says("Done."),
        config=TurnConfig(repair_tool_call=lambda call: {"place": "x"}),
        before_tool_call=lambda self, call: inputs.append(call.input),
        after_tool_call=lambda self, outcome: inputs.append(outcome.input),
    )
    app = await open_app(desk.cls)
    await app.agent(desk.cls, "room").save_messages("Look")
    assert inputs == [{"place": "x", "times": 1}, {"place": "x"}]
