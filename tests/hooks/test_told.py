"""What a hook does that would be lost without a word, and what is said of it."""

from __future__ import annotations

import contextlib
import copy
import logging
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from everthink import AgentError, Allow, Substitute, Think, TurnConfig, exposed, tool
from everthink.calling import ask
from everthink.clock import SystemClock
from everthink.errors import InvalidSettings, ToolDefinitionError
from everthink.hooks import has_tool_call, step_count_is
from everthink.kinds import RETURNS, check_returned
from everthink.runtime.rpc import exposed_method
from everthink.schedules.retry import Retry, retrying
from everthink.session.repair import mended_by
from everthink.settings import meant
from everthink.testing import ScriptedModel, calls, says
from everthink.tools.output import model_output
from tests.conftest import OpenApp
from tests.support.agents import assistant, live
from tests.support.server import open_app as open_app_in
from tests.support.server import served

# --- what they return


async def answering(open_app: OpenApp, **hooks: Any) -> Any:
    """What comes of a turn that calls the tool `look` with `x=1`, then says something."""

    @tool
    def look(x: int) -> int:
        """Look."""
        return x

    model = ScriptedModel(calls("look", x=1), says("Done."))
    app = await open_app(cls := assistant(model, look=look, **hooks))
    return await app.agent(cls).save_messages("Go")


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [False, True, "no"])
async def test_a_validator_that_answers_is_told_to_raise(open_app: OpenApp, answer: Any) -> None:
    app = await open_app(
        cls := assistant(ScriptedModel(), validate_state_change=lambda self, state, source: answer)
    )
    agent = await live(app.agent(cls))
    with pytest.raises(InvalidSettings, match=r"validate_state_change returned .*To refuse the state, raise"):
        await agent.set_state({"a": 1})
    assert agent.state is None


@pytest.mark.anyio
@pytest.mark.parametrize("hook", ["should_connection_be_readonly", "should_send_protocol_messages"])
async def test_a_yes_or_no_hook_of_a_connection_answers_with_a_bool(
    tmp_path: Path, hook: str, caplog: pytest.LogCaptureFixture
) -> None:
    cls = assistant(ScriptedModel(), **{hook: lambda self, connection, request: "no"})
    app = open_app_in(tmp_path, cls)
    async with served(app) as server:
        chat = await server.connect(cls)
        assert (await chat.until_closed())[0] == 1011
    assert f"{hook} returned 'no', a str. Return True or False, or None." in caplog.text


@pytest.mark.parametrize("hook", sorted(RETURNS))
def test_a_wrong_answer_names_the_hook(hook: str) -> None:
    with pytest.raises(InvalidSettings, match=rf"^{hook} returned 5, an int\. Return "):
        check_returned(hook, 5)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("after_tool_call", "To answer in the place of a tool, return Substitute(…) from before_tool_call."),
        ("on_step_finish", "To change a step, return StepConfig(…) from before_step"),
        ("on_chunk", "What is said is shown as it is."),
        ("on_chat_response", "The answer is stored already."),
    ],
)
async def test_a_hook_that_only_looks_on_is_told_once_that_nobody_reads_what_it_returns(
    open_app: OpenApp, hook: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await answering(open_app, **{hook: lambda self, given: Substitute("mine")})
    assert (result.status, result.text) == ("completed", "Done.")
    (told,) = [record.getMessage() for record in caplog.records if f"{hook} returned" in record.getMessage()]
    assert words in told
    assert "It has no effect." in told


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [True, 5])
async def test_an_error_hook_that_returns_no_words_is_told(
    open_app: OpenApp, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("Half").then_fails("Broke.", kind="fatal"))
    app = await open_app(cls := assistant(model, on_chat_error=lambda self, error, ctx: answer))
    assert (await app.agent(cls).save_messages("Go")).error == "Broke."
    assert f"on_chat_error returned {answer!r}" in caplog.text


@pytest.mark.anyio
async def test_a_classifier_that_returns_no_word_is_told(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(says("Half").then_fails("Broke.", kind="fatal"))
    app = await open_app(cls := assistant(model, classify_chat_error=lambda self, error, ctx: True))
    assert (await app.agent(cls).save_messages("Go")).status == "error"
    assert "classify_chat_error returned True" in caplog.text


@pytest.mark.anyio
async def test_a_stop_condition_answers_with_a_bool(open_app: OpenApp) -> None:
    result = await answering(
        open_app, before_turn=lambda self, turn: TurnConfig(stop_when=lambda steps: "no")
    )
    assert result.status == "error"
    assert "stop_when returned 'no', a str. Return True or False." in result.error


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: has_tool_call(5), r"has_tool_call: name is 5, an int\. It takes text"),  # type: ignore[arg-type]
        (lambda: step_count_is("3"), r"step_count_is: count is '3', a str"),  # type: ignore[arg-type]
        (lambda: step_count_is(0), r"step_count_is: count is 0, an int\. It takes a whole number of at"),
        (lambda: Allow(5), r"Allow\.input is 5, an int\. It takes a dict"),
    ],
)
def test_a_wrong_value_is_refused_at_the_call(made: Any, told: str) -> None:
    with pytest.raises(InvalidSettings, match=told):
        made()


@pytest.mark.anyio
async def test_whether_to_retry_is_said_with_a_bool() -> None:
    def fails(attempt: int) -> None:
        raise OSError("away")

    with pytest.raises(InvalidSettings, match="should_retry returned 'no'"):
        await retrying(
            fails,
            Retry(),
            should_retry=lambda error, attempt: "no",  # type: ignore[arg-type,return-value]
            clock=SystemClock(),
        )


@pytest.mark.anyio
async def test_a_hook_that_may_say_it_is_heard() -> None:
    assert await ask("stop_when", lambda steps: True, []) is True
    assert await ask("on_chat_error", lambda error, ctx: None, OSError(), None) is None


# --- what they change


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("before_turn", lambda turn: setattr(turn, "system", "x"), "Return TurnConfig(system=…)"),
        ("before_turn", lambda turn: setattr(turn, "max_steps", 3), "Return TurnConfig(max_steps=…)"),
        ("before_turn", lambda turn: turn.messages.clear(), "Return TurnConfig(messages=[…])"),
        ("before_turn", lambda turn: turn.messages.append(1), "turn.messages is there to be read"),
        ("before_turn", lambda turn: turn.tools.update(a=1), "Return TurnConfig(tools=[…])"),
        ("before_step", lambda step: setattr(step, "model", "demo"), "Return StepConfig(model=…)"),
        ("before_step", lambda step: step.messages.pop(), "Return StepConfig(messages=[…])"),
    ],
)
async def test_changing_what_a_hook_is_given_to_read_is_refused(
    open_app: OpenApp, name: str, change: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.suppress(FrozenInstanceError):  # raised where nothing was said yet
        result = await answering(open_app, **{name: lambda self, given: change(given)})
        assert result.status == "error"
    assert told in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "field", "told"),
    [
        ("before_tool_call", "input", "Return Allow(input=…)"),
        ("after_tool_call", "output", "ToolOutcome.output is there to be read"),
        ("on_step_finish", "text", "The step is over"),
        ("on_chunk", "chunk", "experimental_transform"),
        ("on_chat_response", "message", "The answer is stored"),
    ],
)
async def test_assigning_to_what_a_hook_is_given_is_told_in_the_log(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture, name: str, field: str, told: str
) -> None:
    hook = {name: lambda self, given: setattr(given, field, 99)}
    assert (await answering(open_app, **hook)).text == "Done."
    assert told in caplog.text


@pytest.mark.anyio
async def test_changing_the_input_and_output_of_a_call_in_place_changes_nothing(open_app: OpenApp) -> None:
    ran: list[list[int]] = []

    class Assistant(Think):
        model = ScriptedModel(calls("look", x=[1]), says("Done."))

        @tool
        def look(self, x: list[int]) -> list[int]:
            """Look."""
            ran.append(x)
            return [*x]

        def before_tool_call(self, call: Any) -> None:
            call.input["x"].append(99)
            call.input["y"] = 99

        def after_tool_call(self, outcome: Any) -> None:
            outcome.input["x"].append(99)
            outcome.output.append(99)

    app = await open_app(Assistant)
    result = await app.agent(Assistant).save_messages("Go")
    assert ran == [[1]]
    part = result.message.tool_parts[0]
    assert (part["input"], part["output"]) == ({"x": [1]}, [1])
    assert Assistant.model.last_request.messages[-1].content[0].output == [1]


@pytest.mark.anyio
async def test_a_copy_of_what_a_hook_is_given_is_its_own(open_app: OpenApp) -> None:
    def before_turn(self: Any, turn: Any) -> TurnConfig:
        for copied in (copy.copy(turn.messages), copy.deepcopy(turn.messages), turn.messages.copy()):
            copied.clear()
        copy.deepcopy(turn.tools.copy()).clear()
        return TurnConfig(messages=turn.messages + turn.messages[:0])

    assert (await answering(open_app, before_turn=before_turn)).text == "Done."


# --- interrupted calls


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "returned None"),
        ("over", "returned 'over', a str"),
        ({"type": "banana"}, "There are no parts of type 'banana'"),
        ({"type": "text"}, "part.text is missing"),
        ({"type": "tool-pay", "toolCallId": "1", "state": "gone"}, "There is no state 'gone'"),
        ({"type": "tool-pay", "state": "output-error"}, "part.toolCallId is missing"),
        ({"type": "data-x", "data": object()}, "is not JSON"),
    ],
)
def test_a_repair_that_could_not_be_read_again_is_refused(made: Any, told: str) -> None:
    part = {"type": "tool-pay", "toolCallId": "1", "state": "input-available", "input": {}}
    with pytest.raises(InvalidSettings) as refused:
        mended_by(lambda part: made, part)
    assert "repair_interrupted_tool_part returned" in str(refused.value)
    assert told in str(refused.value)


@pytest.mark.anyio
async def test_a_wrong_repair_fails_the_turn_and_leaves_the_message_as_it_was(open_app: OpenApp) -> None:
    class Careful(Think):
        model = ScriptedModel(calls("pay"), says("Then not."))

        @tool(needs_approval=True)
        def pay(self) -> str:
            """Pay."""
            return "paid"

        def repair_interrupted_tool_part(self, part: Any) -> Any:
            part["state"] = "gone"
            return part

    app = await open_app(Careful)
    agent = app.agent(Careful)
    await agent.save_messages("Pay")
    with pytest.raises(AgentError, match="repair_interrupted_tool_part returned"):
        await agent.save_messages("Never mind")
    assert (await agent.get_messages())[1].tool_parts[0]["state"] == "approval-requested"


# --- who is named


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [7, OSError("no database")])
async def test_a_hook_that_fails_is_named_and_not_the_tool(
    open_app: OpenApp, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def before_tool_call(self: Any, call: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    await answering(open_app, before_tool_call=before_tool_call)
    assert "before_tool_call failed for tool look" in caplog.text
    assert "raised" not in [record.message.split()[-1] for record in caplog.records]


@pytest.mark.anyio
async def test_a_failing_needs_approval_is_named_and_not_the_tool(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    async def asks(input: Any) -> Any:
        raise OSError("no database")

    @tool(needs_approval=asks)
    def pay() -> str:
        """Pay."""
        return "paid"

    app = await open_app(cls := assistant(ScriptedModel(calls("pay"), says("No.")), pay=pay))
    await app.agent(cls).save_messages("Pay")
    assert "needs_approval failed for tool pay" in caplog.text


@pytest.mark.anyio
async def test_a_substitute_that_is_no_json_is_the_hooks(
    open_app: OpenApp, caplog: pytest.LogCaptureFixture
) -> None:
    await answering(open_app, before_tool_call=lambda self, call: Substitute(object()))
    assert "before_tool_call of tool 'look' returned something that is not JSON" in caplog.text
    assert "The tool was not run." in caplog.text
    assert "The call ran" not in caplog.text


# --- tools


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"strict": "yes"}, r"tool: strict is 'yes', a str\. It takes True or False, or None"),
        ({"description": 5}, r"tool: description is 5, an int\. It takes text"),
        ({"title": 7}, r"tool: title is 7, an int"),
        ({"client": "no"}, r"its client is 'no', a str"),
    ],
)
def test_an_option_of_a_tool_of_another_kind_is_refused(options: Any, told: str) -> None:
    def look() -> str:
        return ""

    with pytest.raises(ToolDefinitionError, match=told):
        tool(look, **options)


@pytest.mark.parametrize(
    ("view", "told"),
    [
        (None, "It returned None"),
        ([{"type": "image", "data": "…"}], "no part that a model takes"),
        ([{"type": "text", "text": "a"}, {"type": "picture"}], "picture"),
    ],
)
def test_a_view_that_no_model_takes_is_told(view: Any, told: str, caplog: pytest.LogCaptureFixture) -> None:
    @tool(to_model_output=lambda result: view)
    def shot() -> str:
        return "x"

    with caplog.at_level(logging.WARNING):
        assert model_output(shot, "plain") == ("plain", None)
    assert "to_model_output of tool 'shot' failed" in caplog.text
    assert told in caplog.text


def test_tool_and_callable_may_stand_in_either_order() -> None:
    class Assistant(Think):
        model = ScriptedModel()

        @tool
        @exposed(description="first")
        def one(self) -> str:
            return "1"

        @exposed(description="second")
        @tool
        def two(self) -> str:
            return "2"

    found = [exposed_method(Assistant, name) for name in ("one", "two")]
    assert [info.description if info else None for info in found] == ["first", "second"]


def test_a_function_with_self_outside_of_a_class_is_told_where_to_go() -> None:
    def late(self, x: str) -> str:
        return x

    with pytest.raises(ToolDefinitionError, match=r"takes 'self' and is not written in a class.*ctx\.agent"):
        tool(late)


def test_a_plain_method_in_the_place_of_a_tool_is_told_where_the_class_is_written() -> None:
    class Base(Think):
        model = ScriptedModel()

        @tool
        def a(self) -> str:
            return "a"

    with pytest.raises(ToolDefinitionError, match=r"Sub\.a is no tool"):

        class Sub(Base):
            def a(self) -> str:  # type: ignore[override]
                return "b"


def test_a_name_that_a_class_method_reads_is_ones_own() -> None:
    class Assistant(Think):
        model = ScriptedModel()
        models = {"fast": "demo"}  # noqa: RUF012

        @classmethod
        def pick(cls) -> str:
            return cls.models["fast"]

    class Other(Think):
        model = ScriptedModel()
        prompt = "mine"

        @staticmethod
        def say() -> str:
            return Other.prompt

    assert meant("models", {}, Assistant) is meant("prompt", "", Other) is None
