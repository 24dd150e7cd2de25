"""Whatever hooks and histories put together, the model is asked something it can answer."""

from __future__ import annotations

from typing import Any

import pytest

from everthink import StepConfig, Think, TurnConfig, tool
from everthink.messages import Message
from everthink.models import port as model
from everthink.prompt.wording import CONTINUE_NUDGE
from everthink.testing.scripted import ScriptedModel, calls, says
from tests.conftest import OpenApp
from tests.support.agents import assistant

pytestmark = pytest.mark.anyio

QUESTION = model.UserMessage([model.TextPart("Why?")])
CALL = model.ToolCallPart("c", "t", {})
SAID = model.AssistantMessage([model.TextPart("Because"), CALL])
RESULT = model.ToolMessage([model.ToolResultPart("c", "t", 1)])
NUDGE = model.UserMessage([model.TextPart(CONTINUE_NUDGE)])
BECAUSE = model.AssistantMessage([model.TextPart("Because")])


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([QUESTION, SAID, RESULT], [QUESTION, SAID, RESULT]),
        ([QUESTION, SAID, QUESTION], [QUESTION, BECAUSE, QUESTION]),
        ([RESULT, QUESTION], [QUESTION]),
        ([QUESTION, SAID], [QUESTION, BECAUSE, NUDGE]),
        ([QUESTION, BECAUSE, RESULT], [QUESTION, BECAUSE, NUDGE]),
        ([QUESTION, BECAUSE, model.ToolMessage([])], [QUESTION, BECAUSE, NUDGE]),
        (
            [QUESTION, SAID, model.ToolMessage([model.ApprovalResponse("a", "other", True)])],
            [QUESTION, BECAUSE, NUDGE],
        ),
    ],
)
async def test_a_prompt_of_before_turn_is_paired_and_ends_with_a_question(
    open_app: OpenApp, given: list[Any], shown: list[Any]
) -> None:
    scripted = ScriptedModel(says("So."))
    app = await open_app(
        cls := assistant(scripted, before_turn=lambda self, turn: TurnConfig(messages=list(given)))
    )
    result = await app.agent(cls, "room").save_messages("Hello")
    assert (result.status, result.error) == ("completed", None)
    assert scripted.last_request.messages == shown


async def test_a_prompt_of_before_step_is_paired(open_app: OpenApp) -> None:
    # Given a hook that shows the second step only the end of the conversation, without the call
    @tool
    def t() -> int:
        """Give one."""
        return 1

    class Forgetful(Think):
        def before_step(self, step: Any) -> StepConfig | None:
            return StepConfig(messages=[QUESTION, step.messages[-1]]) if step.step_number else None

    scripted = ScriptedModel(calls("t"), says("So."))
    Forgetful.model, Forgetful.get_tools = scripted, lambda self: [t]  # type: ignore[method-assign]
    app = await open_app(Forgetful)
    assert (await app.agent(Forgetful, "room").save_messages("Hello")).text == "So."
    assert scripted.last_request.messages == [QUESTION]


async def test_a_stored_answer_that_says_nothing_is_not_shown(open_app: OpenApp) -> None:
    # Given an answer of nothing but blank text, as some providers send before a call
    scripted = ScriptedModel(says("So."))
    app = await open_app(cls := assistant(scripted))
    handle = app.agent(cls, "room")
    await handle.add_messages(
        [
            Message("u", "user", [{"type": "text", "text": "Hello"}]),
            Message("a", "assistant", [{"type": "text", "text": "\n\n"}]),
        ]
    )
    assert (await handle.save_messages("Go on")).status == "completed"
    assert [type(m) for m in scripted.last_request.messages] == [model.UserMessage, model.UserMessage]


async def test_calls_that_share_an_id_are_shown_once(open_app: OpenApp) -> None:
    # Given two calls of one step under one id, as a client may have stored them
    part = {"type": "tool-t", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1}
    scripted = ScriptedModel(says("So."))
    app = await open_app(cls := assistant(scripted))
    handle = app.agent(cls, "room")
    await handle.add_messages(
        [Message("u", "user", [{"type": "text", "text": "Hi"}]), Message("a", "assistant", [part, {**part}])]
    )
    assert (await handle.save_messages("Go on")).status == "completed"
    assert scripted.last_request.messages[1:3] == [
        model.AssistantMessage([CALL]),
        model.ToolMessage([model.ToolResultPart("c", "t", 1)]),
    ]
